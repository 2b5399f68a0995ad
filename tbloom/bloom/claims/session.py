"""The session of one process: its lease on each item, until the server has confirmed that the lease has ended."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from threading import RLock
from typing import NamedTuple


class State(Enum):
    """The state of a lease: what must still be sent for the item."""

    #: Nothing must be sent. The session has no lease on the item.
    FREE = auto()
    #: Nothing must be sent. The caller works on the item.
    CLAIMED = auto()
    #: A release must be sent: the last one failed, or a call whose answer was lost may have claimed the item.
    TO_RELEASE = auto()
    #: A commit must be sent: the last one failed.
    TO_COMMIT = auto()


class CallRange(NamedTuple):
    """The numbers of some calls of ``claim``, both ends included."""

    first: int
    last: int


class Reserved(NamedTuple):
    """The items that are reserved for a call of ``claim``."""

    #: The call's number.
    number: int
    #: The number of the first call of each item's lease.
    first_calls: dict[bytes, int]


class Lease(NamedTuple):
    """A session's lease on an item. It is immutable: each transition returns another lease."""

    state: State = State.FREE
    #: The number of the call by which a caller in this process owns the claim; 0: no caller here owns it. The caller owns it until
    #: a release or a commit is confirmed. Until then it may repeat the call, and no other caller here may claim the item.
    number: int = 0
    #: The number of the last call that may claim the item without its caller's knowledge, because its reply was lost, or because
    #: a copy of it may arrive late; 0: no such call. It is not above the ``number`` of an owned claim.
    late: int = 0
    #: The number of the first call of the lease; 0: none. A claim by an earlier call is not this lease's: it was handed over, and no
    #: release may end it.
    first: int = 0
    #: Whether the claim was handed over, although later calls, up to ``late``, may have claimed the item and must still be released.
    is_queued: bool = False
    #: The age of the slice of the commit; 0: the current slice.
    age: int = 0

    @property
    def last(self) -> int:
        """The number of the last call that may have claimed the item."""
        return self.number or self.late

    @property
    def calls(self) -> CallRange:
        """The calls whose claims a release must end."""
        return CallRange(self.first, self.last)

    def owned(self, number: int, first: int) -> Lease:
        """Return the lease after a caller gets the claim by this call. A release need no longer be sent; a commit must be."""
        state = self.state if self.state is State.TO_COMMIT else State.CLAIMED
        return Lease(state, number, self.late, first, age=self.age)

    def disowned(self, late: int) -> Lease:
        """Return the lease after its caller has lost the claim. The call ``late`` may have claimed the item, or may still do so."""
        if self.state is State.TO_COMMIT:
            return self._replace(number=0, late=late)
        return self._replace(state=State.TO_RELEASE, number=0, late=late) if late else FREE

    def without_commit(self) -> Lease:
        """Return the lease after its commit was dropped. The claim stays."""
        if self.state is not State.TO_COMMIT:
            return self
        lease = self._replace(state=State.CLAIMED)
        return lease if lease.number else lease.disowned(lease.late)


#: The lease on an item without a lease.
FREE = Lease()


class Session:
    """The session of one process, and its leases.

    Many threads may change leases, so each change takes the lock. The lock is reentrant, because the garbage collector may end a
    flow during a change, and the ended flow changes the leases of its own call. A lease is replaced in one step, so that an
    interrupt leaves either the old lease or the new one.
    """

    def __init__(self) -> None:
        self.name: str = secrets.token_hex(8)
        #: The shards that know the session.
        self.shards: set[int] = set()
        #: True if claims were handed over to other sessions, which end them.
        self.handed_over: bool = False
        #: The server refuses the session's calls with lower numbers. Late copies of these change nothing.
        self.refused_below: int = 1
        self._leases: dict[bytes, Lease] = {}
        #: The number of the next call of ``claim``, and the numbers of the running calls.
        self._next, self._running = 1, set[int]()
        self._lock: AbstractContextManager[bool] = RLock()

    @property
    def is_busy(self) -> bool:
        """True if the session has claims, or calls to repeat."""
        return bool(self._leases)

    def owns(self, digest: bytes) -> bool:
        """Return True if a caller here owns the claim of the item."""
        return self._leases.get(digest, FREE).number > 0

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.handed_over = False
        self._leases.clear()

    @contextmanager
    def calling(self, digests: Collection[bytes], previous_owner: str = "") -> Iterator[Reserved]:
        """Reserve items for a call of ``claim``, and yield them.

        Disown the call's claims if it ends in an exception, even if the server has answered. After the call has ended, the server
        may refuse late copies of it.
        """
        number = -1  # of no call
        try:
            # No claim with a higher number may be handed over before the items are reserved.
            with self._lock:
                number = self._next
                self._next += 1
                self._running.add(number)
                reserved = self._reserve(digests, number, previous_owner)
            yield reserved
        except BaseException:  # also GeneratorExit: the driver was cancelled
            self.disown(digests, number)
            raise
        finally:
            with self._lock:
                self._running.discard(number)

    @property
    def least(self) -> int:
        """The lowest number of a running or later call."""
        with self._lock:
            return min(self._running, default=self._next)

    def _reserve(self, digests: Iterable[bytes], number: int, previous_owner: str) -> Reserved:
        """Reserve items for the call with this number.

        Until the server answers, no other caller here claims them. If this session is the ``previous_owner``, items that a caller
        here owns, or has handed over, are claimed again.
        """
        leases, first_calls = self._leases, dict[bytes, int]()
        again = previous_owner == self.name
        # Whoever claims an item again has all earlier claims of this session.
        first = 1 if again else number
        claimed = FREE.owned(number, first)
        for digest in dict.fromkeys(digests):
            lease = leases.setdefault(digest, claimed)
            if lease is not claimed:
                is_busy = lease.number or (lease.is_queued and not previous_owner)
                # A release of a later, lost call may be in flight. It would end this call's claim.
                if lease.late > number or (is_busy and not again):
                    continue
                if again or not lease.is_queued:
                    lease = lease.owned(number, min(first, lease.first or first))
                else:
                    # Another session's claim. If a late copy of a call claims the item again, that lasts until the session ends.
                    lease = claimed
                leases[digest] = lease
            first_calls[digest] = lease.first
        return Reserved(number, first_calls)

    def end_reservations(self, digests: Iterable[bytes], number: int) -> None:
        """End the reservations, for the call with this number, of items that are seen, or that other sessions have claimed."""

        def change(_: bytes, lease: Lease) -> Lease:
            return lease.disowned(lease.late) if lease.number == number else lease

        self._change(digests, change)

    def record_late_copies(self, reserved: Reserved) -> None:
        """Record that a late copy of this call may claim the items, where a caller here owns them."""

        def change(_: bytes, lease: Lease) -> Lease:
            late = max(lease.late, reserved.number)
            return lease._replace(late=late) if lease.number else lease

        self._change(reserved.first_calls, change)

    def disown(self, digests: Iterable[bytes], number: int = 0) -> None:
        """Mark claims to be released, because their callers don't learn of them; with ``number``, only this call's claims."""

        def change(_: bytes, lease: Lease) -> Lease:
            is_meant = lease.number and number in {0, lease.number}
            return lease.disowned(lease.number) if is_meant else lease

        self._change(digests, change)

    def own(self, digests: Iterable[bytes]) -> None:
        """Own claims that were to be released, because the caller works on the items."""

        def change(_: bytes, lease: Lease) -> Lease:
            return lease.owned(lease.last, lease.first) if lease.last else lease

        self._change(digests, change)

    def hand_over(self, digests: Iterable[bytes]) -> None:
        """Forget claims, because other sessions will claim the items and end these claims."""

        def change(_: bytes, lease: Lease) -> Lease:
            if lease.state is not State.CLAIMED:
                return lease
            # A release for the claim's own call would end it.
            late = min(lease.late, lease.number - 1)
            return lease._replace(is_queued=True).disowned(late if late >= lease.first else 0)

        self.handed_over = True
        self._change(digests, change)

    def to_release(self) -> dict[bytes, CallRange]:
        """Return the items to release, each with its calls."""
        return {digest: lease.calls for digest, lease in self._in_state(State.TO_RELEASE)}

    def releasing(self, digests: Iterable[bytes]) -> dict[bytes, CallRange]:
        """Drop the commits of items to release. Return the items that may be claimed, each with its calls."""
        may_be_claimed: dict[bytes, CallRange] = {}
        for digest in digests:
            lease = self._leases.get(digest, FREE)
            if lease.state is State.TO_COMMIT:
                self.drop_commits([digest])
            if lease.last:
                may_be_claimed[digest] = lease.calls
        return may_be_claimed

    def released(self, claimed_by: Mapping[bytes, CallRange], refused_below: int) -> None:
        """End claims whose releases for these calls were confirmed.

        ``refused_below`` is the session's value at the time when the release was sent. If a late copy was not refused at that
        time, it may have claimed the item since, so the item must be released again.
        """

        def change(digest: bytes, lease: Lease) -> Lease:
            if lease.last > claimed_by[digest].last:  # claimed since
                return lease
            return lease.disowned(lease.late if lease.late >= refused_below else 0)

        self._change(claimed_by, change)

    def release_failed(self, claimed_by: Mapping[bytes, CallRange]) -> None:
        """Mark claims whose releases for these calls failed, so that they are released again."""

        def change(digest: bytes, lease: Lease) -> Lease:
            is_meant = lease.state is State.CLAIMED and lease.number <= claimed_by[digest].last
            return lease._replace(state=State.TO_RELEASE) if is_meant else lease

        self._change(claimed_by, change)

    def to_commit(self) -> dict[int, list[bytes]]:
        """Return the items to commit again, by the age of their slice."""
        by_age: dict[int, list[bytes]] = {}
        for digest, lease in self._in_state(State.TO_COMMIT):
            by_age.setdefault(lease.age, []).append(digest)
        return by_age

    def commit_failed(self, digests: Iterable[bytes], age: int) -> None:
        """Mark items to be committed again."""
        self._change(digests, lambda _, lease: lease._replace(state=State.TO_COMMIT, age=age))

    def drop_commits(self, digests: Iterable[bytes]) -> None:
        """Drop commits that must not be sent again. The claims stay."""
        self._change(digests, lambda _, lease: lease.without_commit())

    def committed(self, answers: Mapping[bytes, str]) -> list[bytes]:
        """End claims whose commits were confirmed with these answers. Return the items that other sessions have taken over."""
        leases, taken_over = self._leases, list[bytes]()
        with self._lock:
            for digest, answer in answers.items():
                lease = leases.pop(digest, FREE)
                # An earlier commit that got no reply may have added the item itself.
                is_lost = answer == "2" or (answer == "3" and lease.state is State.CLAIMED)
                if is_lost and lease.number:
                    taken_over.append(digest)
                if lease.late >= self.refused_below:
                    leases[digest] = Lease(State.TO_RELEASE, late=lease.late, first=lease.first)
        return taken_over

    def _change(self, digests: Iterable[bytes], change: Callable[[bytes, Lease], Lease]) -> None:
        """Replace the lease on each item."""
        with self._lock:
            for digest in digests:
                lease = change(digest, self._leases.get(digest, FREE))
                if lease.state is State.FREE:
                    self._leases.pop(digest, None)
                else:
                    self._leases[digest] = lease

    def _in_state(self, state: State) -> list[tuple[bytes, Lease]]:
        leases = self._leases.copy()  # in one step, because other threads change it
        return [(digest, lease) for digest, lease in leases.items() if lease.state is state]
