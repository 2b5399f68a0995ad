"""The filter with its claims, for threads and processes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context
from typing import Self, Unpack

import redis

from tbloom.arguments import Item, encode
from tbloom.bloom.base import ClientSettings
from tbloom.claims.calls import Claim
from tbloom.claims.fleet import Fleet
from tbloom.claims.heartbeat import run_in_thread
from tbloom.claims.verbs import ClaimVerbs
from tbloom.engine.forks import ProcessLock
from tbloom.engine.sync import SyncDriver
from tbloom.engine.urls import ClientOptions
from tbloom.errors import ConfigMismatch, TBloomError


class TimeBloom(ClaimVerbs["redis.Redis | redis.RedisCluster"], SyncDriver):
    """A set of recently seen items, shared through Redis: a Bloom filter per time slice.

    Objects are safe to use from many threads, and after a fork. Each method may raise redis-py's
    errors, ``ConfigMismatch`` if the filter is stored with other parameters, and ``ConfigError``
    for an argument that can't be right, such as an empty item.
    """

    _OTHER = "AsyncTimeBloom"
    _heartbeat: threading.Thread | None = None
    #: Stop the heartbeat thread.
    _stop_heartbeat: Callable[[], object] = staticmethod(lambda: None)

    def _set_up_driver(self) -> None:
        super()._set_up_driver()
        #: Guards the start of the heartbeat thread.
        self._starting = ProcessLock()

    @classmethod
    def open(
        cls,
        client: redis.Redis | redis.RedisCluster | str,
        name: str,
        *,
        client_options: ClientOptions = None,
        secret: bytes | None = None,
        **own: Unpack[ClientSettings],
    ) -> Self:
        """Open a stored filter with its stored parameters. ``client`` is yours, or a URL as for ``from_url``.

        The other arguments are the arguments of ``from_url`` that are not stored.
        :raises ConfigError: if no filter has this name.
        """
        return cls._open(client, name, client_options, own, secret)

    def fleet(self, queue: str = "") -> Fleet:
        """Return what can be seen of the sessions that take items of a queue, and of the items that are kept for them.

        ``fleet.look()`` has the crawlers and the numbers of pages, as ``tbloom queue`` shows them; ``fleet.kept(["failed"])``
        yields the pages of some states ("left", "failed", "given up"); ``fleet.retry(pages)`` and ``fleet.drop(pages)`` free them.
        """
        return Fleet(self, queue)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def claiming(self, item: Item, within: int | None = None) -> AbstractContextManager[bool]:
        """Claim the item in ``with seen.claiming(item) as is_new:``.

        At the end of the block, a new item is committed. A WARNING says if another session has taken it over meanwhile. If the
        block raises an exception, the item is released. If the commit fails, it stays claimed, as after ``commit``; but with
        ConfigMismatch it is released.
        """
        return self._claiming(item, within)

    @contextmanager
    def _claiming(self, item: Item, within: int | None) -> Iterator[bool]:
        item = encode(item)  # the caller may change a buffer
        is_new = self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(redis.RedisError):  # a heartbeat repeats the release
                    self.release(item)
            raise
        if is_new:
            try:
                self.commit(item)
            except ConfigMismatch:  # another try would be refused too
                self.release(item)
                raise

    def close(self) -> None:
        """End the session, which frees its claims, and close the client, if ``from_url`` made it. Later calls raise TBloomError."""
        if self._is_closed:
            return
        self._stop_heartbeat()
        self._heartbeat = None
        self._stop_retrying()
        try:
            if self._claims.is_used:
                # After an error, the session ends by its TTL.
                with suppress(redis.RedisError, TBloomError):
                    self.end_session()
            self._warn_of_taken_over()
            self._warn_of_uncommitted()
        finally:
            super().close()

    def _keep_session(self) -> None:
        """Start the thread that sends heartbeats, unless it runs."""
        with self._starting.lock:
            if self._heartbeat and self._heartbeat.is_alive():  # a forked child has no such thread
                return
            closed, send = threading.Event(), weakref.WeakMethod(self._send_heartbeat)
            self._stop_heartbeat = weakref.finalize(self, closed.set)
            arguments = (run_in_thread, send, closed, self._beat_seconds())
            # Python 3.14 and gevent may give a thread the context of the request that claims first.
            self._heartbeat = threading.Thread(
                target=Context().run, name="tbloom-heartbeat", args=arguments, daemon=True
            )
            try:
                self._heartbeat.start()
            except RuntimeError as error:  # from Python 3.12 on
                if "at interpreter shutdown" not in str(error):
                    raise
