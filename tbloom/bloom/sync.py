"""The filter for threads and processes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic_ns

import redis

from tbloom.bloom.claims.heartbeat import run_in_thread
from tbloom.bloom.claims.held import Claim
from tbloom.bloom.claims.verbs import ClaimVerbs
from tbloom.bloom.exchange import Usual
from tbloom.bloom.verbs import Verbs
from tbloom.engine.flow import Flow
from tbloom.engine.sync import SyncDriver
from tbloom.errors import TBloomError
from tbloom.items import Item

#: The replies to one item, in RESP: {0, '1'} and {0, '0'}.
_ONE, _ZERO = _EXPECTED = b"*2\r\n:0\r\n$1\r\n1\r\n", b"*2\r\n:0\r\n$1\r\n0\r\n"
_ANSWERS = {_ONE: "1", _ZERO: "0"}


class TimeBloom(ClaimVerbs["redis.Redis | redis.RedisCluster"], SyncDriver):
    """A set of recently seen items, shared through Redis: a Bloom filter per time slice.

    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the filter is stored with other parameters, and ``ConfigError``
    for an argument that can't be right, such as an empty item.
    """

    _OTHER = "AsyncTimeBloom"
    _heartbeat: threading.Thread | None = None
    _usual: Usual | None = None
    #: Ends that thread.
    _stop_heartbeat: Callable[[], object] = staticmethod(lambda: None)

    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        With ``within``, only that number of newest slices is asked. With ``keep``, a new item is remembered for that number
        of slices, the current one included, in place of all: it goes into the slice that leaves the window then, and counts
        there for ``last_seen``, ``info`` and ``within``. An item that is seen stays for as long as it was to. An item that
        is claimed, and not yet committed, is new: ``add`` does not see claims.
        """
        usual, exchange = self._usual or self._prepared(), self._exchange
        if (
            usual is None
            or usual.calls is not exchange.calls
            or within is not None
            or keep is not None
            or exchange.pending_answers.exist
            or not usual.begins <= monotonic_ns() < usual.ends
        ):
            return self._in_flow(Verbs.add.flow(self, item, within, keep))
        key = self.config.digest(item)
        if self._cache.size and self._cache.holds(key, usual.calls):
            return False
        lane, reply = None, None
        try:
            lane = exchange.lanes.take()
            request = usual.adding.packed([key], lane)
            reply = self._connections.ask(request, _EXPECTED)
            if reply:
                exchange.lanes.give_back([lane])
                if self._cache.size:
                    self._cache_seen([key], usual.calls)
                return reply == _ONE
            if reply is None:  # nothing was executed
                unused, lane = lane, None  # first, for the case of an interrupt
                exchange.lanes.give_back([unused])
            else:
                exchange.keep_unanswered(usual, key, lane, "")  # the flow fetches the answer
                lane = None
            return self._in_flow(Verbs.add.flow(self, item))
        except BaseException:  # an interrupt
            if lane is not None:
                exchange.keep_unanswered(usual, key, lane, _ANSWERS.get(reply or b"", ""))
            raise

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Has the item been seen within the window, or the newest ``within`` slices? Changes nothing."""
        usual = self._usual or self._prepared()
        if (
            usual is None
            or within is not None
            or self._cache.size
            or not usual.begins <= monotonic_ns() < usual.ends
        ):
            return self._in_flow(Verbs.contains.flow(self, item, within))
        request = usual.probing.packed([self.config.digest(item)])
        reply = self._connections.ask(request, _EXPECTED)
        return reply == _ONE if reply else self._in_flow(Verbs.contains.flow(self, item))

    def _prepared(self) -> Usual | None:
        if self._connections.keeps:
            self._usual = self._exchange.usual_calls(self._connections.renewal)
        return self._usual

    def _in_flow(self, flow: Flow[bool]) -> bool:
        """The answer of a flow. The next usual call is prepared then, not now: an error would hide the answer."""
        self._usual = None
        return self.run(flow)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    @contextmanager
    def claiming(self, item: Item, within: int | None = None) -> Iterator[bool]:
        """``with seen.claiming(item) as is_new:`` commits a new item at the end, or releases it on an exception."""
        is_new = self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(redis.RedisError):  # a heartbeat will release it
                    self.release(item)
            raise
        if is_new:
            try:
                self.commit(item)
            except TBloomError:  # it can't be committed
                self.release(item)
                raise

    def close(self) -> None:
        """Ends the session, which frees its claims, and closes the client, if ``from_url`` made it."""
        self._stop_heartbeat()
        self._heartbeat = None
        self._let_go()
        try:
            with suppress(redis.RedisError, TBloomError):  # without it the session ends by its TTL
                self.end_session()
            self._warn_of_uncommitted()
        finally:
            super().close()

    def _keep_session(self) -> None:
        """Starts the thread that sends heartbeats, if it does not run."""
        with self._claims.own.lock:
            if self._heartbeat and self._heartbeat.is_alive():  # after a fork it is not
                return
            closed, send = threading.Event(), weakref.WeakMethod(self._send_heartbeat)
            self._stop_heartbeat = weakref.finalize(self, closed.set)
            arguments = (send, closed, self._beat_seconds())
            self._heartbeat = threading.Thread(target=run_in_thread, args=arguments, daemon=True)
            self._heartbeat.start()
