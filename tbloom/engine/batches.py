"""The items of one script call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from tbloom.engine.flow import ScriptCall
from tbloom.engine.tokens import Lane

#: The answer for an item that is not new.
SEEN = "0"
#: The answer for an item that is in another bucket than the client thought; it is sent again.
MOVED = "2"


class Answers(dict[Any, bool]):
    """Which items are new, and the batches that say so."""

    __slots__ = ("batches",)

    def __init__(self, answers: dict[Any, bool], batches: list[Batch]) -> None:
        super().__init__(answers)
        self.batches: list[Batch] = batches


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one script call, by their digests; ``answers`` has a character for each, once known."""

    digests: list[Any]
    shard: int = 0
    #: The lane with the number of this call, and no later one: what makes the call safe to resend.
    token: Lane | None = None
    answers: str | None = None
    #: When the items that are seen expire (ms), if the store says so.
    times: Sequence[int] = ()
    #: The number of items that the client has in hand for its shard, from these on.
    in_hand: int = 0
    #: The age of the slice that its items go into; 0: the current one.
    age: int = 0
    #: How long its items are remembered (ms); 0 where the call sets no TTL.
    ttl: int = 0
    #: Makes its call.
    call: Callable[[Batch], ScriptCall] | None = None
    #: What its last call was made from: a slice's calls, or a directory of buckets.
    known: Any = None
    #: The generation of its shard that its last call was made for.
    generation: str = ""
    #: When the oldest copy of its call was sent that may have been executed, without a reply (ms, monotonic); 0: none was.
    sent: int = 0
    #: True: a copy of its call that got no reply may be executed late.
    is_resent: bool = False
    #: Until when the server may know its answers, if they are lost.
    until: int = 0
    #: Of a copy: the batch whose lost answers it gets.
    first: Batch | None = None
    #: Those of its items whose answer "new" was had by a copy, or is wanted no more.
    taken: frozenset[Any] = frozenset()
    #: The parameters were compared after the server asked for it.
    compared: bool = False

    def make(self) -> ScriptCall:
        """Its call, made anew."""
        assert self.call is not None  # noqa: S101 - it was sent once
        return self.call(self)

    @property
    def lane(self) -> Lane:
        """The lane of its call."""
        assert self.token is not None  # noqa: S101 - the dispatcher has given it one
        return self.token


def answers_of(batches: Iterable[Batch]) -> dict[Any, bool]:
    """The answers to the items that have one; True: new, in any of the batches."""
    answers: dict[Any, bool] = {}
    for batch in batches:
        for digest, answer in zip(batch.digests, batch.answers or "", strict=False):
            if answer != MOVED:
                answers[digest] = answer == "1" or answers.get(digest, False)
    return answers


def in_order(answers: dict[Any, bool], digests: Iterable[Any]) -> list[bool]:
    """The answers to these items, taken out; a repeat is seen."""
    return [*map(answers.pop, digests, repeat(object=False))]  # in one step, for a signal
