"""The session of one filter object in one process: its lease on each item, until the server has confirmed that the lease has ended."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

from tbloom.bloom.batch import FilterBatch


class Lease(NamedTuple):
    """A session's lease on an item.

    An item is claimed (``is_owned``), is to be committed again (it has a ``commit_age``), or both; or it is to be released. A change
    leads from one of these states to another one:

    ==================  ==================  ============  ==========  ==================  ============  =========
    from                reserve, took       gets nothing  release     commit_again        drop_commits  committed
    ==================  ==================  ============  ==========  ==================  ============  =========
    none                claimed                                       to commit
    claimed                                 to release    to release  claimed, to commit                none
    claimed, to commit                      to commit     to release                      claimed       none
    to commit           claimed, to commit                to release                      to release    none
    to release          claimed                                       to commit                         none
    ==================  ==================  ============  ==========  ==================  ============  =========

    "gets nothing": the caller has an error in ``claiming``, or is ``answered`` that the item is not new. "to release" is none if no call
    may have left a claim. ``released`` leads from there to none. An answer that comes after its caller has gone (``answered``,
    ``to_give_back``) leads from none to "to release".

    A lease is immutable: each change replaces it in one step.
    """

    #: The session's last call that may have claimed the item, or changed the claim: a release ends claims up to this call. 0: none has.
    last_call: int = 0
    #: Whether a caller here claims the item, or works on it. No other caller here may claim it.
    is_owned: bool = False
    #: If a commit has failed, and heartbeats are to repeat it: the age of its slice (0: the current slice).
    commit_age: int | None = None

    @property
    def is_claimed(self) -> bool:
        """True if a caller here claims the item, or works on it, and no commit of it is to be repeated."""
        return self.is_owned and self.commit_age is None

    @property
    def is_to_release(self) -> bool:
        """True if nobody here works on the item, but the server may have a claim."""
        return not self.is_owned and self.commit_age is None


#: No lease: nothing is claimed, to commit or to release.
NONE = Lease()


@dataclass(slots=True)
class Reserved:
    """The items that are reserved for a call of ``claim``, or that a call of ``take`` has got."""

    #: The call's number in the session. The server keeps it with the claims.
    call: int = 0
    #: For each item, the last earlier call whose claim the server may still have, and on which nobody works; 0: none.
    earlier: dict[bytes, int] = field(default_factory=dict)


class Moment(NamedTuple):
    """A time by the machine's clock and by the monotonic one (seconds). The latter stands still while a virtual machine is suspended."""

    wall: float
    monotonic: float

    @classmethod
    def now(cls) -> Moment:
        """Return this moment."""
        return cls(time.time(), time.monotonic())

    def is_over(self, seconds: float) -> bool:
        """Return whether so many seconds have passed since, by one of the clocks."""
        wall, monotonic = self.now()
        return max(wall - self.wall, monotonic - self.monotonic) >= seconds


class Session:
    """The session of one filter object, and its leases.

    Many threads may change leases, so each change takes the lock. The lock is reentrant, because the garbage collector may end a
    flow during a change, and the ended flow changes the leases of its own call.
    """

    def __init__(self) -> None:
        self.name: str = secrets.token_hex(8)
        #: The shards to which it has sent claims. Heartbeats are sent to these.
        self.shards: set[int] = set()
        #: The shards whose servers have known it, each with the filter's generation at that time; and since when it surely lives.
        self.known: dict[int, str] = {}
        self.lives_since: Moment = Moment.now()
        #: The queue whose items it takes, as scripts have it ("": none so far), and its name.
        self.queue: str = ""
        self.queue_name: str = ""
        #: The number of items that it has taken, and committed, its failures by reason, and the items that it holds because they have failed.
        self.taken: int = 0
        self.done: int = 0
        self.failures: Counter[str] = Counter()
        self._failed = set[bytes]()
        #: Calls of ``claim`` and ``take`` without a reply. They are looked up by their tokens before the next claim, take or
        #: release in their shards, and by each heartbeat.
        self.unanswered: list[tuple[Reserved, FilterBatch]] = []
        #: The items on which callers here worked when its predecessor was lost.
        self.inherited: frozenset[bytes] = frozenset()
        #: True once another session goes on with its work, because the server did not know it any more.
        self.is_lost: bool = False
        self._successor: Session | None = None
        self._leases: dict[bytes, Lease] = {}
        #: The items that are reserved for calls of ``claim`` without an answer so far.
        self._reserved = set[bytes]()
        self._calls = 0
        self._lock: AbstractContextManager[bool] = RLock()

    @property
    def is_busy(self) -> bool:
        """True if the session has claims, or calls to repeat."""
        return bool(self._leases or self.unanswered)

    def called_in(self, shard: int) -> str:
        """Return its name for a script that begins sessions; with a mark if the server has known it, and must not have lost it."""
        return f"{self.name}+" if shard in self.known else self.name

    def confirm(self, shard: int, generation: str, since: Moment) -> None:
        """Note the first reply by which the shard's server knows the session, which lives since that moment at least."""
        if shard not in self.known:
            if not self.known:
                self.lives_since = since
            self.known[shard] = generation

    def follow(self, *, is_lost: bool = False) -> tuple[Session, bool]:
        """Return the session that follows this one, and whether this call has made it. It repeats the commits that have failed.

        If this one ``is_lost``, the other one goes on with its work, in its queue.
        """
        with self._lock:
            if self._successor:
                return self._successor, False
            successor = Session()
            for age, digests in self.to_commit().items():
                successor.commit_again(digests, age)
            if is_lost:
                successor.queue, successor.shards = self.queue, {*self.shards}
                successor.queue_name = self.queue_name
                successor.inherited = frozenset(self.claimed)
            self._successor, self.is_lost = successor, is_lost
        return successor, True

    def owns(self, digest: bytes) -> bool:
        """Return True if a caller here has claimed the item, and has not released or committed it."""
        return self._leases.get(digest, NONE).is_owned

    def is_asking(self, digest: bytes) -> bool:
        """Return True if a caller here is about to claim the item: it may have been seen, or be another session's."""
        return digest in self._reserved

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.unanswered.clear()
        self.known.clear()
        self._leases.clear()

    @contextmanager
    def claiming(self) -> Iterator[Reserved]:
        """Yield what ``reserve`` fills. If the block raises an exception, the claims are to be released.

        The caller does not get the answers then, even if the server has sent them.
        """
        reserved = Reserved()
        try:
            yield reserved
        except BaseException:  # also GeneratorExit, after an error in the driver

            def change(_: bytes, lease: Lease) -> Lease:
                is_of_call = lease.last_call == reserved.call
                return lease._replace(is_owned=False) if is_of_call else lease

            self._change(reserved.earlier, change)
            raise
        finally:
            with self._lock:
                self._reserved -= reserved.earlier.keys()

    def reserve(self, reserved: Reserved, digests: Iterable[bytes], shards: Container[int]) -> bool:
        """Reserve items of these shards for a call of ``claim``, except those that a caller here owns.

        Until the call has its answers, no other caller here claims the items. Return False, and reserve nothing, if calls
        to the shards without a reply must be looked up first.
        """
        with self._lock:
            if any(batch.shard in shards for _, batch in self.unanswered):
                return False
            reserved.call = self._next_call()
            for digest in dict.fromkeys(digests):
                if not self.owns(digest):
                    lease = self._leases.get(digest, NONE)
                    reserved.earlier[digest] = lease.last_call
                    self._leases[digest] = lease._replace(last_call=reserved.call, is_owned=True)
            self._reserved |= reserved.earlier.keys()
        return True

    def answered(self, reserved: Reserved, answers: Mapping[bytes, str]) -> None:
        """Note the answers to a call of ``claim``. An empty one means that the server has not executed the call for the item.

        If an item is not new, its lease falls back to what was left before the call: an earlier claim to release, a commit to repeat, or
        nothing. New items of which nobody here knows are to be released.
        """

        def change(digest: bytes, lease: Lease) -> Lease:
            if answers[digest] == "1":
                return Lease(reserved.call) if lease == NONE else lease
            if lease.last_call != reserved.call:
                return lease
            # Unless another session has the claim, an earlier claim of this session may be left.
            earlier = 0 if answers[digest] == "2" else reserved.earlier[digest]
            return Lease(earlier, commit_age=lease.commit_age)

        leases = self._leases
        self._change(
            [d for d, answer in answers.items() if answer != "1" or d not in leases], change
        )

    def noting(self, digests: Iterable[bytes]) -> tuple[int, list[bytes]]:
        """Return the number of a call that changes claims, and those of the items that callers here own. Their claims get that number."""
        with self._lock:
            call, owned = self._next_call(), [*filter(self.owns, digests)]
            self._change(owned, lambda _, lease: lease._replace(last_call=call))
        return call, owned

    def took(self, reserved: Reserved, digests: Iterable[bytes]) -> None:
        """Own items that a call has taken. If the caller does not get them, ``claiming`` marks them to be released."""
        digests = [*digests]
        reserved.earlier |= dict.fromkeys(digests, 0)
        self._change(
            digests, lambda _, lease: lease._replace(last_call=reserved.call, is_owned=True)
        )

    def to_give_back(self, call: int, digests: Iterable[bytes]) -> None:
        """Mark items to be released that a call has taken without a reply, unless they were claimed again since."""
        self._change(digests, lambda _, lease: lease._replace(last_call=max(lease.last_call, call)))

    @property
    def claimed(self) -> list[bytes]:
        """The items on which callers here work."""
        return [digest for digest, lease in self._leases.copy().items() if lease.is_claimed]

    @property
    def working(self) -> int:
        """The number of items on which callers here work: not those that have failed."""
        return len({*self.claimed} - self._failed)

    def fail(self, digest: bytes, reason: str) -> None:
        """Note that the work on a claimed item has failed."""
        with self._lock:
            self.failures[reason] += 1
            self._failed.add(digest)

    def to_release(self) -> dict[bytes, int]:
        """Return the items to release, each with the last call whose claim ends."""
        leases = self._leases.copy()  # in one step, because other threads change it
        return {digest: lease.last_call for digest, lease in leases.items() if lease.is_to_release}

    def release(self, digests: Iterable[bytes]) -> dict[bytes, int]:
        """Mark claims of these items to be released, and drop commits that have failed. Return the claims as ``to_release`` does."""
        with self._lock:
            numbers = {digest: self._leases.get(digest, NONE).last_call for digest in digests}
            self._change(numbers, lambda _, lease: Lease(lease.last_call))
        return {digest: number for digest, number in numbers.items() if number}

    def released(self, numbers: Mapping[bytes, int]) -> None:
        """End leases whose releases were confirmed, unless the items were claimed again since."""
        self._change(
            numbers, lambda digest, lease: NONE if lease == Lease(numbers[digest]) else lease
        )

    def to_commit(self) -> dict[int, list[bytes]]:
        """Return the items to commit again, by the age of their slice."""
        by_age: dict[int, list[bytes]] = {}
        for digest, lease in self._leases.copy().items():
            if lease.commit_age is not None:
                by_age.setdefault(lease.commit_age, []).append(digest)
        return by_age

    def commit_again(self, digests: Iterable[bytes], age: int) -> None:
        """Mark items to be committed again."""
        self._change(digests, lambda _, lease: lease._replace(commit_age=age))

    def drop_commits(self, digests: Iterable[bytes]) -> None:
        """Drop commits that were refused. The claims stay."""
        self._change(digests, lambda _, lease: lease._replace(commit_age=None))

    def committed(self, answers: Mapping[bytes, str]) -> list[bytes]:
        """End leases whose commits were confirmed with these answers. Return the items that other sessions have taken over."""
        taken_over = list[bytes]()
        with self._lock:
            for digest, answer in answers.items():
                lease = self._leases.pop(digest, NONE)
                self.done += lease != NONE and answer not in "23"
                # Where a commit has failed, it may have added the item itself.
                is_ours = digest in self.inherited or lease.is_claimed
                if answer == "2" or (answer == "3" and is_ours):
                    taken_over.append(digest)
        return taken_over

    def _next_call(self) -> int:
        with self._lock:
            self._calls += 1
            return self._calls

    def _change(self, digests: Iterable[bytes], change: Callable[[bytes, Lease], Lease]) -> None:
        """Replace the lease on each item."""
        with self._lock:
            for digest in digests:
                lease = change(digest, self._leases.get(digest, NONE))
                self._failed.discard(digest)
                if lease == NONE:
                    self._leases.pop(digest, None)
                else:
                    self._leases[digest] = lease
