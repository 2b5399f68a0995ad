"""Conversations about stores that keep their items in buckets (see ``tbloom.engine.tree``)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from tbloom.engine.batches import MOVED, Batch
from tbloom.engine.exchange import Exchange
from tbloom.engine.flow import CALLS_AT_ONCE, Flow, ScriptCall, chunks
from tbloom.errors import TBloomError

#: Buckets are split while a call is under way, and a clear() may come between. More often, without any
#: answer, means that something else changes the layout.
_MAX_CORRECTIONS = 16


class Bucketed(Exchange):
    """Asks until each item has its answer, learning meanwhile where the items belong."""

    #: What changes while it asks.
    _changing = "its layout changed"

    def change(self, batches: list[Batch], call: Callable[[Batch], ScriptCall]) -> Flow[None]:
        """Asks with tokens, and notes whose answers got lost."""
        yield from self.settle(batches, self.ask(batches, call))

    def ask(self, batches: list[Batch], call: Callable[[Batch], ScriptCall]) -> Flow[None]:
        """Sends the batches' calls until each item has its answer."""
        for some in chunks(list(batches), CALLS_AT_ONCE):  # batches gets more meanwhile
            pending, corrections = list(some), 0
            while pending:
                if corrections > _MAX_CORRECTIONS:
                    raise TBloomError(
                        f"{self._name!r}: {self._changing} {_MAX_CORRECTIONS} times in a row"
                    )
                corrections += 1
                yield from self._prepare(pending)
                calls = [call(batch) for batch in pending]
                answered = yield from self._deliver(calls, pending, self._accept)
                rest = self._left_over(answered)
                if _items_of(rest) < _items_of(answered):  # so some have their answers
                    corrections = 0
                batches += rest
                pending = [batch for batch in pending if batch not in answered] + rest
                yield from self._refresh(pending)

    def _prepare(self, batches: list[Batch]) -> Flow[None]:  # noqa: ARG002 - subclasses may have to do something
        """What has to be done before these are asked."""
        yield from ()

    @abstractmethod
    def _accept(self, batch: Batch, reply: Any) -> bool:
        """Takes a script's reply; False: to be asked again."""

    @abstractmethod
    def _moved(self, batch: Batch) -> Any:
        """Some of the batch's items belong elsewhere than was thought; what is known of where (``Batch.known``)."""

    @abstractmethod
    def _refresh(self, batches: list[Batch]) -> Flow[None]:
        """Reads anew what these need that is outdated."""

    def _left_over(self, batches: list[Batch]) -> list[Batch]:
        """New batches of the items that belong elsewhere."""
        rest = []
        for batch in batches:
            answers = batch.answers or ""
            if MOVED in answers:
                known, pairs = self._moved(batch), zip(batch.digests, answers, strict=True)
                for left in self._rest_of(batch, [key for key, answer in pairs if answer == MOVED]):
                    left.known = known
                    rest.append(left)
        return rest


def _items_of(batches: list[Batch]) -> int:
    return sum(len(batch.digests) for batch in batches)
