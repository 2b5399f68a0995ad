"""The items of one script call, and the pending answers of a client."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
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

    digests: list[Any]
    shard: int = 0
    #: The lane with the number of this call, and no later one: what makes the call safe to resend.
    token: Lane | None = None
    answers: str | None = None
    #: The slice that its items go into; None: the current one.
    label: str | None = None
    #: How long its items are remembered (ms); 0 where the call sets no TTL.
    ttl: int = 0
    #: What its last call was made from: a slice's calls, or a tree of buckets.
    known: Any = None
    #: The copies of its call that were sent, and to which no reply has come.
    copies: int = 0
    #: The parameters were compared after the server asked for it.
    agreed: bool = False

    @property
    def number(self) -> int:
        """The number of its call."""
        assert self.token is not None  # noqa: S101 - the exchange has given it one
        return self.token.number


class PendingAnswers(dict[Any, list["Batch | None"]]):
    """Answers that did not reach the caller: of calls that ended in an error, or were cancelled.

    The next call of this client with such an item must get that first answer. Where it is not known, the batch is sent
    again as it was, with its token, by which the server knows its answers for ``LANE_TTL_MS``. For each item: the batches
    without a reply that have it, and None if it is known to be new.
    """

    def keep(self, batches: Iterable[Batch]) -> None:
        """Keeps the new items of failed calls, and the batches without a reply."""
        for batch in batches:
            if batch.answers is not None:
                self.keep_new(key for key, new in answers_of([batch]).items() if new)
            elif batch.copies:
                for key in batch.digests:
                    self.setdefault(key, []).append(batch)
        cut(self)

    def keep_new(self, digests: Iterable[Any]) -> None:
        """Keeps items that are new."""
        for key in digests:
            self.setdefault(key, []).append(None)
        cut(self)

    def take_batches(self, digests: Iterable[Any]) -> tuple[list[Batch], set[Any]]:
        """Removes the batches that have one of these items; returns them, and their items that are pending."""
        found = {id(batch): batch for key in digests for batch in self.get(key, ()) if batch}
        pending = {
            key for batch in found.values() for key in batch.digests if self._remove(key, batch)
        }
        return [*found.values()], pending

    def take_new(self, digests: Iterable[Any]) -> dict[Any, bool]:
        """Removes the items that are known to be new, and answers for them."""
        return {key: True for key in digests if self._remove(key, None)}

    def forget(self, digests: Iterable[Any]) -> None:
        """Drops the answers to these items."""
        for key in digests:
            self.pop(key, None)

    def _remove(self, key: Any, batch: Batch | None) -> bool:
        """False: another thread has removed it."""
        kept = self.get(key)
        if kept is None or batch not in kept:
            return False
        kept[:] = [other for other in kept if other is not batch]
        if not kept:
            self.pop(key, None)
        return True


def cut(pending: dict[Any, Any]) -> None:
    """Drops the oldest items beyond ``MAX_PENDING``."""
    with suppress(RuntimeError):  # another thread changes it, and cuts it too
        # One pass: looking for the first item each time takes quadratic time.
        for digest in list(islice(pending, max(0, len(pending) - MAX_PENDING))):
            pending.pop(digest, None)


def answers_of(batches: Iterable[Batch]) -> dict[Any, bool]:
    """The answers to the items that have one; True: new, in any of the batches."""
    answers: dict[Any, bool] = {}
    for batch in batches:
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False):
            if answer != MOVED:
                answers[digest] = answer == "1" or answers.get(digest, False)
    return answers
