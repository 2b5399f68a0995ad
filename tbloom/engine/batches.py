"""The items of one script call, and the pending answers of a client."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tbloom.engine.tokens import Lane

#: The answer for an item that is in another bucket than the client thought; it is sent again.
MOVED = "2"
#: The limit of pending answers, and of claims whose answers got lost; the oldest are dropped first.
MAX_PENDING = 100_000


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests; ``answers`` has a character for each, once known."""

    digests: list[int]
    shard: int = 0
    lane: Lane | None = None
    number: int = 0
    answers: str | None = None
    #: The slice that its items go into; None: the current one.
    label: str | None = None
    #: How long its items are remembered (ms); 0 where the call sets no TTL.
    ttl: int = 0
    #: What its last call was made from: a slice's calls, or a tree of buckets.
    known: Any = None
    #: It was sent, and no reply has come.
    in_doubt: bool = False
    #: The parameters were compared after the server asked for it.
    agreed: bool = False
    #: A copy that is sent again for pending answers.
    again: bool = False
    #: The digests whose pending answers the copy is sent for.
    wanted: set[int] = field(default_factory=set)


class PendingAnswers:
    """Items that were new, or may have been, in calls that ended in an error or were cancelled.

    The next call of this client with one of them must get that first answer. So the call is sent again with its own
    token, which the server knows for ``LANE_TTL_MS``.
    """

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}

    def __contains__(self, digest: int) -> bool:
        return digest in self._batches

    def keep(self, batches: Iterable[Batch]) -> None:
        """Keeps the new items of failed calls, and all items of those without a reply."""
        for batch in batches:
            answers = batch.answers or ("1" * len(batch.digests) if batch.in_doubt else "")
            # Fewer answers than items: the rest was not added.
            for digest, answer in zip(batch.digests, answers, strict=False):
                # Of a repeated batch only the wanted items: the others have their answers, or are still kept.
                if answer == "1" and (not batch.again or digest in batch.wanted):
                    self._batches[digest] = batch
        cut(self._batches)

    def take(self, digests: Iterable[int]) -> dict[int, Batch]:
        """Removes the pending ones among the digests, and returns a copy of the batch of each.

        Several threads may take items of one batch, so each sends a copy of it.
        """
        taken: dict[int, Batch] = {}
        copies: dict[int, Batch] = {}
        if self._batches:
            for digest in digests:
                batch = self._batches.pop(digest, None)
                # A forked process leaves its parent's items to the parent.
                if batch is None or batch.lane is None or not batch.lane.is_ours():
                    continue
                if digest in batch.digests:  # else the part became full before this item
                    own = copies.get(id(batch))
                    if own is None:
                        own = replace(batch, digests=[*batch.digests], again=True, wanted=set())
                        own.agreed, copies[id(batch)] = False, own
                    taken[digest] = own
                    own.wanted.add(digest)
        return taken


def cut(pending: dict[int, Any]) -> None:
    """Drops the oldest items beyond ``MAX_PENDING``."""
    with suppress(RuntimeError):  # another thread changes it, and cuts it too
        # One pass: looking for the first item each time takes quadratic time.
        for digest in list(islice(pending, max(0, len(pending) - MAX_PENDING))):
            pending.pop(digest, None)


def answers_of(batches: Iterable[Batch]) -> dict[int, bool]:
    """The answers to the items that have one; True: new."""
    return {
        digest: answer == "1"
        for batch in batches
        for digest, answer in zip(batch.digests, batch.answers or "", strict=True)
        if answer != MOVED
    }
