"""The items of one script call, and those whose answers never reached their caller."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tbloom.engine.tokens import Lane

#: The answer for an item that has to be asked for again, at another place.
MOVED = "2"
#: So many items, or claims, that nobody was told of are kept in mind at most; the oldest go first.
MAX_PENDING = 100_000


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests; ``answers`` has a character for each, once known."""

    digests: list[int]
    shard: int = 0
    lane: Lane | None = None
    number: int = 0
    answers: str | None = None
    #: The slice that its items go into, if that is not the current one.
    label: str | None = None
    #: For how long its items are remembered (ms), where the call says so.
    ttl: int = 0
    #: What was known of where its items belong when it was sent last, for stores that learn that from replies.
    known: Any = None
    #: Whether it was sent and no reply came.
    in_doubt: bool = False
    #: Whether the filter's parameters were compared after the server asked for it.
    agreed: bool = False
    #: Whether an earlier call with these items ended untold; and those of them that are asked for now.
    again: bool = False
    wanted: set[int] = field(default_factory=set)


class PendingAnswers:
    """Items that may have been added by calls that ended in an error or were cancelled.

    Their caller was never told what they are. Whoever of this client adds them next must get the
    first answer, so their call is made again with its own token, which the server knows for as
    long as it keeps the lane.
    """

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}

    def __contains__(self, digest: int) -> bool:
        return digest in self._batches

    def keep(self, batches: Iterable[Batch]) -> None:
        """Notes the items of a call that ended untold: the new ones, and those in doubt."""
        for batch in batches:
            answers = batch.answers or ("1" * len(batch.digests) if batch.in_doubt else "")
            # Fewer answers than items: the rest was not added.
            for digest, answer in zip(batch.digests, answers, strict=False):
                # Of a batch that was asked again, the others were told before, or are still noted.
                if answer == "1" and (not batch.again or digest in batch.wanted):
                    self._batches[digest] = batch
        cut(self._batches)

    def take(self, digests: Iterable[int]) -> dict[int, Batch]:
        """Those of the digests that are untold, with their batches; they are the caller's now.

        A batch of which others take some too is copied for each.
        """
        taken: dict[int, Batch] = {}
        copies: dict[int, Batch] = {}
        if self._batches:
            for digest in digests:
                batch = self._batches.pop(digest, None)
                # A forked process leaves its parent's to the parent.
                if batch is None or batch.lane is None or not batch.lane.is_ours():
                    continue
                if digest in batch.digests:  # else a part became full before its turn came
                    own = copies.get(id(batch))
                    if own is None:
                        own = replace(batch, digests=[*batch.digests], again=True, wanted=set())
                        own.agreed, copies[id(batch)] = False, own
                    taken[digest] = own
                    own.wanted.add(digest)
        return taken


def cut(untold: dict[int, Any]) -> None:
    """Drops the oldest items, if there are too many."""
    with suppress(RuntimeError):  # another thread changes it, and will cut it too
        # All at once: to look for the first one again and again takes quadratic time.
        for digest in list(islice(untold, max(0, len(untold) - MAX_PENDING))):
            untold.pop(digest, None)


def answers_of(batches: Iterable[Batch]) -> dict[int, bool]:
    """Which of the items are new, as far as that was answered."""
    return {
        digest: answer == "1"
        for batch in batches
        for digest, answer in zip(batch.digests, batch.answers or "", strict=True)
        if answer != MOVED
    }
