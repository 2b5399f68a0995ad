"""The filter for threads and processes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import redis

from tbloom.bloom.base import Base
from tbloom.bloom.claims.heartbeat import run_in_thread
from tbloom.bloom.claims.held import Claim
from tbloom.bloom.info import FilterInfo
from tbloom.engine.flow import Flow
from tbloom.engine.sync import SyncDriver
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.items import Item, rereadable
from tbloom.window import Period

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.bloom.base import Arguments

T = TypeVar("T")


class TimeBloom(Base["redis.Redis | redis.RedisCluster"], SyncDriver):
    """A set of recently seen items, shared through Redis: a Bloom filter per time slice.

    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the filter is stored with other parameters, and ``ConfigError``
    for an argument that can't be right, such as an empty item.
    """

    _OTHER = "AsyncTimeBloom"
    _heartbeat: threading.Thread | None = None
    #: Ends that thread.
    _stop_heartbeat: Callable[[], object] = staticmethod(lambda: None)

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[Arguments]) -> Self:
        """A filter with a client of its own, closed by ``close()``; ``arguments`` as for the class.

        ``url`` is redis-py's; ``redis+cluster://host:port`` reaches a cluster by one of its nodes.
        A reply is waited for 2 seconds, unless the URL has another ``socket_timeout``. Where the
        connection fails, the call is sent again for 5 seconds (``retry_for``), and gets the first
        answer.
        """
        return cls._from_url(url, name, arguments)

    def add(self, item: Item, within: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        With ``within``, only that number of newest slices is asked.
        """
        return self._ask(self._protocol.add, item, within)

    def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat inside the call is False the second time."""
        return self._ask(self._protocol.add_many, rereadable(items), within)

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Has the item been seen within the window, or the newest ``within`` slices? Changes nothing."""
        return self._ask(self._protocol.contains, item, within)

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``contains`` for each item, in order."""
        return self._ask(self._protocol.contains_many, rereadable(items), within)

    def last_seen(self, item: Item) -> Period | None:
        """The newest slice that holds the item: its label, start and end. None: not seen within the window. Changes nothing.

        An item counts for the slice in which it was new: a later ``add`` that finds it changes nothing.
        """
        return self._ask(self._protocol.last_seen, item)

    def last_seen_many(self, items: Iterable[Item]) -> list[Period | None]:
        """``last_seen`` for each item, in order."""
        return self._ask(self._protocol.last_seen_many, rereadable(items))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Claim:
        """Claims the item, so that no other process works on it.

        ``Claim.NEW``: you work on it; ``commit`` or ``release`` it in the end. ``Claim.SEEN``: it was
        committed, or added, within the window. ``Claim.BUSY``: a living session has claimed it,
        perhaps another thread of yours.

        A process that claims items sends heartbeats from a thread of its own. After ``session_ttl``
        seconds without one, other processes may claim its items. A ``note`` (at most 65,536
        characters; the item, for example) is kept with the claim, for ``take_over``. The items that
        the session ``previous_owner`` has claimed and handed over (``hand_over``) are new too.
        """
        self._keep_session()
        return self._ask(self._protocol.claim, item, within, note, previous_owner)

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> list[Claim]:
        """``claim`` for each item, in order; a repeat of a new one is busy."""
        self._keep_session()
        notes = notes and rereadable(notes)
        verb = self._protocol.claim_many
        return self._ask(verb, rereadable(items), within, notes, previous_owner)

    def commit(self, item: Item) -> None:
        """The work on the item is done: it is seen from now on, also if another session has claimed it.

        It is written into the current slice, also if an older one holds it. If this raises one of
        redis-py's errors, the commit is tried again with each heartbeat, until ``close``.
        """
        self._keep_session()
        self._ask(self._protocol.commit, item)

    def commit_many(self, items: Iterable[Item]) -> None:
        """``commit`` for each item."""
        self._keep_session()
        self._ask(self._protocol.commit_many, rereadable(items))

    def release(self, item: Item) -> None:
        """The work on the item was not done: others may claim it."""
        self._ask(self._protocol.release, item)

    def release_many(self, items: Iterable[Item]) -> None:
        """``release`` for each item."""
        self._ask(self._protocol.release_many, rereadable(items))

    def abandon_many(self, items: Iterable[Item]) -> None:
        """As ``release_many``, but items with a note wait for another process to ``take_over``."""
        self._ask(self._protocol.release_many, rereadable(items), "abandon")

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

    def take_over(self, limit: int = 100, prefix: str = "") -> list[str]:
        """Claims at most ``limit`` items that dead sessions have left with a note; returns these notes.

        With ``prefix``, only notes that begin with it. Call it at the start and from time to time.
        Claims without a note simply end.
        """
        self._keep_session()
        return self._ask(self._protocol.take_over, limit, prefix)

    def other_sessions(self) -> dict[str, int]:
        """The other living sessions, and until when each counts as alive (ms, by the server's clock)."""
        return self._run(self._protocol.sessions.others())

    def pause_session(self) -> None:
        """Takes this session off the server while it claims nothing, so that no other process waits for it.

        The next claim puts it back. No other thread may claim meanwhile.
        """
        self._run(self._protocol.sessions.pause())

    def end_session(self) -> None:
        """Ends this session. Its remaining claims are treated as a dead session's. The next claim begins another one."""
        self._run(self._protocol.sessions.end())

    def import_many(self, items: Iterable[Item], label: str | None = None) -> int:
        """Remembers the items in the slice with that label, or the current one; returns how many it wrote.

        Items that this slice or a newer one holds are not written.
        """
        return self._ask(self._protocol.import_many, rereadable(items), label)

    def keys(self, at: datetime | None = None) -> list[str]:
        """The Redis keys of the slices that are live now, or ``at`` another time; oldest first."""
        return self._ask(self._protocol.keys, at)

    def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """What the filter holds, slice by slice.

        Takes about a millisecond per 4 MB of filter; with an ``earlier`` answer, per 4 MB of the
        slices that have changed since.
        """
        return self._ask(self._protocol.info, earlier)

    def warnings(self) -> list[str]:
        """What threatens the filter, or has harmed it, a sentence each: a server that drops keys when its
        memory is full, and slices that it has dropped early."""
        return self._ask(self._protocol.warnings)

    def clear(self) -> None:
        """Forgets everything, for all clients, also if the filter is stored with other parameters.

        Each shard at once; several shards one after another.
        """
        self._run(self._protocol.clear())

    def swap(self, name: str) -> None:
        """Puts the filter ``name`` in the place of this one, for all clients; what this one held is forgotten.

        The other filter is built under a name that begins with this one's in braces, such as ``{blocked}:new``, so that
        both are on the same node of a cluster; with the same parameters, and one shard. What both filters hold is seen at
        any moment. Claims and sessions of this one stay. Raises TBloomError if there is no such filter, also if it has
        taken the place already, in a call whose answer was lost.
        """
        self._ask(self._protocol.swap, name)

    def reconfigure(self) -> None:
        """Gives a stored filter this object's parameters, and keeps what it has seen.

        Capacity, error rate, hashes, bits, ``slices`` and ``grow`` may change. Clients with the old
        parameters get ConfigMismatch from then on. If the call ends half-way, the next client with
        the new ones finishes it. Raises ConfigMismatch where granularity, time zone or shards differ,
        because items are found by these, and TBloomError while the filter has slices later than the
        current one: then the server's clock was set back.
        """
        self._ask(self._protocol.reconfigure)

    def close(self) -> None:
        """Ends the session, which frees its claims, and closes the client, if ``from_url`` made it."""
        self._stop_heartbeat()
        self._heartbeat, self._retry_for = None, 0.0
        self.keep_connections()  # none from now on
        try:
            with suppress(redis.RedisError, TBloomError):  # without it the session ends by its TTL
                self.end_session()
        finally:
            super().close()

    def _ask(self, verb: Callable[..., Flow[T]], *args: Any) -> T:
        """The verb's answer; asked again if it met other parameters, and that is mended."""
        try:
            return self._run(verb(*args))
        except ConfigMismatch as error:
            self._run(self._protocol.agree(error))
        return self._run(verb(*args))

    def _keep_session(self) -> None:
        """Starts the thread that sends heartbeats, if it does not run."""
        if self._heartbeat is None or not self._heartbeat.is_alive():  # after a fork it is not
            closed, send = threading.Event(), weakref.WeakMethod(self._send_heartbeat)
            self._stop_heartbeat = weakref.finalize(self, closed.set)
            arguments = (send, closed, self._beat_seconds())
            self._heartbeat = threading.Thread(target=run_in_thread, args=arguments, daemon=True)
            self._heartbeat.start()

    def _send_heartbeat(self) -> None:
        if self._protocol.sessions.are_needed:
            self._run(self._protocol.sessions.send_heartbeat())
