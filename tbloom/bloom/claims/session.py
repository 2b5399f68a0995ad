"""The session of one process: its lease on each item, until the server has confirmed that the lease has ended."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from threading import RLock
from typing import NamedTuple

from tbloom.bloom.batch import FilterBatch


class State(Enum):
    """The state of a lease: what must still be sent for the item."""

    #: Nothing must be sent. A caller here works on the item, or claims it.
    CLAIMED = auto()
    #: A release must be sent: the last one failed, or the caller does not know of the claim.
    TO_RELEASE = auto()
    #: A commit must be sent: the last one failed.
    TO_COMMIT = auto()


class Lease(NamedTuple):
    """A session's lease on an item. It is immutable: each transition returns another lease."""

    state: State = State.CLAIMED
    #: The number of the call that claims the item, or has claimed it; 0: none.
    number: int = 0
    #: Whether a caller in this process owns the claim, until a release or a commit is confirmed. Until then it may repeat the
    #: call, and no other caller here may claim the item.
    is_owned: bool = False
    #: The age of the slice of the commit; 0: the current slice.
    age: int = 0


#: In place of the lease on an item without a lease.
FREE = Lease()


class Reserved(NamedTuple):
    """The items that are reserved for a call of ``claim``."""

    #: The call's number in the session. The claim has it, and a release ends no claim by a later call.
    number: int
    #: For each item: the number of the last call by which the server may hold the session's claim already; 0: none.
    held: dict[bytes, int]


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
        #: Those whose replies have shown it. A heartbeat begins the session elsewhere only, so that a late one does not bring it back.
        self.known: set[int] = set()
        #: True if claims were handed over to other sessions, which end them.
        self.handed_over: bool = False
        #: Calls of ``claim`` without a reply, by their numbers. Before the next claim, they are looked up by their tokens.
        self.lost: list[tuple[int, FilterBatch]] = []
        #: Items whose claims have failed, perhaps before they were sent. The caller may assume them new, and own them.
        self.failed: set[bytes] = set()
        self._leases: dict[bytes, Lease] = {}
        self._number = 0
        self._lock: AbstractContextManager[bool] = RLock()

    @property
    def is_busy(self) -> bool:
        """True if the session has claims, or calls to repeat."""
        return bool(self._leases or self.lost)

    def owns(self, digest: bytes) -> bool:
        """Return True if a caller here owns the claim of the item."""
        return self._leases.get(digest, FREE).is_owned

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.handed_over = False
        self.lost.clear()
        self._leases.clear()

    def lost_in(self, shards: Container[int] | None) -> list[tuple[int, FilterBatch]]:
        """Return the lost calls to these shards; None: to all."""
        return [each for each in [*self.lost] if shards is None or each[1].shard in shards]

    def reserve(
        self,
        digests: Iterable[bytes],
        previous_owner: str = "",
        shards: Container[int] | None = None,
    ) -> Reserved | None:
        """Reserve items for a call of ``claim``. Return None if lost calls to their shards must be looked up first.

        Until the server answers, no other caller here claims them. If this session is the ``previous_owner``, items that a caller
        here owns, or has handed over, are claimed again.
        """
        again = previous_owner == self.name
        with self._lock:
            if self.lost_in(shards):
                return None
            self._number = number = self._number + 1
            self.failed.difference_update(digests)
            held = dict[bytes, int]()
            for digest in dict.fromkeys(digests):
                lease = self._leases.get(digest, FREE)
                if not lease.is_owned or again:
                    held[digest] = number if again else lease.number
                    state = State.TO_COMMIT if lease.state is State.TO_COMMIT else State.CLAIMED
                    self._leases[digest] = Lease(state, number, is_owned=True, age=lease.age)
            return Reserved(number, held)

    @contextmanager
    def calling(self, reserved: Reserved) -> Iterator[None]:
        """Disown the items that are reserved for a call if it ends in an exception, even if the server has answered."""
        try:
            yield
        except BaseException:  # also GeneratorExit: the driver was cancelled
            self.failed.update(reserved.held)
            self._change(
                reserved.held,
                lambda digest, lease: _disowned(lease, reserved.held[digest])
                if lease.number == reserved.number
                else lease,
            )
            raise

    def answered(self, reserved: Reserved, answers: Mapping[bytes, str]) -> None:
        """Note the answers to a call of ``claim``: the server holds the new items."""
        number, held = reserved
        held.update({digest: number for digest, answer in answers.items() if answer == "1"})

        def change(digest: bytes, lease: Lease) -> Lease:
            # Claims of a seen item are not looked at, so an earlier claim may be left.
            is_left = held[digest] if answers[digest] == "0" else 0
            return _disowned(lease, is_left) if lease.number == number else lease

        self._change([digest for digest, answer in answers.items() if answer != "1"], change)

    def found(self, number: int, batch: FilterBatch) -> None:
        """Note the answers to a lost call: its new items must be released, unless a caller here owns them."""

        def change(_: bytes, lease: Lease) -> Lease:
            return lease if lease.is_owned else _disowned(lease, max(number, lease.number))

        self._change(batch.items_with("1"), change)

    def disown(self, digests: Iterable[bytes]) -> None:
        """Mark claims to be released, because their callers don't learn of them."""
        self._change(
            digests,
            lambda _, lease: _disowned(lease, lease.number) if lease.is_owned else lease,
        )

    def own(self, digests: Iterable[bytes]) -> None:
        """Own claims that were to be released, or whose calls are lost, because the caller works on the items."""
        numbers = {digest: number for number, batch in self.lost for digest in batch.digests}

        def change(digest: bytes, lease: Lease) -> Lease:
            number = max(numbers.get(digest, 0), lease.number)
            if digest in self.failed:
                self._number = number = self._number + 1
            state = State.TO_COMMIT if lease.state is State.TO_COMMIT else State.CLAIMED
            return lease._replace(state=state, number=number, is_owned=number > 0)

        self._change(digests, change)

    def hand_over(self, digests: Iterable[bytes]) -> None:
        """Forget claims, because other sessions will claim the items and end these claims."""
        self.handed_over = True
        self._change(
            digests, lambda _, lease: FREE if lease.state is State.CLAIMED else lease
        )

    def releasing(self, digests: Iterable[bytes] | None = None) -> dict[bytes, int]:
        """Return the claims to release, and their numbers: of these items, whose commits are dropped, or of all to release."""
        if digests is None:
            return {d: lease.number for d, lease in self._in_state(State.TO_RELEASE)}
        digests = [*digests]
        self.drop_commits(digests)
        return {d: n for d in digests if (n := self._leases.get(d, FREE).number)}

    def released(self, numbers: Mapping[bytes, int]) -> None:
        """End claims whose releases were confirmed."""
        self._change(
            numbers, lambda digest, lease: lease if lease.number > numbers[digest] else FREE
        )

    def release_failed(self, numbers: Mapping[bytes, int]) -> None:
        """Mark claims whose releases failed, so that they are released again."""

        def change(digest: bytes, lease: Lease) -> Lease:
            is_meant = lease.state is State.CLAIMED and 0 < lease.number <= numbers[digest]
            return lease._replace(state=State.TO_RELEASE) if is_meant else lease

        self._change(numbers, change)

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

        def change(_: bytes, lease: Lease) -> Lease:
            if lease.state is not State.TO_COMMIT:
                return lease
            lease = lease._replace(state=State.CLAIMED)
            return lease if lease.is_owned else _disowned(lease, lease.number)

        self._change(digests, change)

    def committed(self, answers: Mapping[bytes, str]) -> list[bytes]:
        """End claims whose commits were confirmed with these answers. Return the items that other sessions have taken over."""
        taken_over = list[bytes]()
        with self._lock:
            for digest, answer in answers.items():
                lease = self._leases.pop(digest, FREE)
                # An earlier commit that got no reply may have added the item itself.
                is_lost = answer == "2" or (answer == "3" and lease.state is State.CLAIMED)
                if is_lost and lease.is_owned:
                    taken_over.append(digest)
        return taken_over

    def _change(self, digests: Iterable[bytes], change: Callable[[bytes, Lease], Lease]) -> None:
        """Replace the lease on each item."""
        with self._lock:
            for digest in digests:
                lease = change(digest, self._leases.get(digest, FREE))
                if lease == FREE:
                    self._leases.pop(digest, None)
                else:
                    self._leases[digest] = lease

    def _in_state(self, state: State) -> list[tuple[bytes, Lease]]:
        leases = self._leases.copy()  # in one step, because other threads change it
        return [(digest, lease) for digest, lease in leases.items() if lease.state is state]


def _disowned(lease: Lease, number: int) -> Lease:
    """Return the lease after its caller has lost the claim, which the server may hold by the call with this number (0: none)."""
    if lease.state is State.TO_COMMIT:
        return lease._replace(number=number, is_owned=False)
    return Lease(State.TO_RELEASE, number) if number else FREE
