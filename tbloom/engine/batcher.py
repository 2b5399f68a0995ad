"""Items that tasks ask for while a call is on its way go together in the next one; a lone call goes at once.

The next one goes when that call has ended, or as soon as it has as many items: so the server has work while the client hands
out answers, and the two take turns with halves of the tasks.

Each task keeps its own answer, error and cancellation. An item that was added, and whose task has gone, is kept as a
pending answer (``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from tbloom.engine.flow import Flow
from tbloom.engine.pending import Answers, Batch
from tbloom.errors import TBloomError

#: The items of one batch.
MOST = 500
#: The calls that are on their way at once, of those that have as many items as the ones before.
AT_ONCE = 2


class Asked(NamedTuple):
    """How an item is asked for."""

    #: Equal for items that can go together.
    kind: Hashable
    #: Awaits a flow's answer. (It refers to the store, so it is dropped with the item.)
    run: Callable[[Flow[Any]], Any]
    #: The flow for items, an answer for each.
    many: Callable[[list[Any]], Flow[Any]]
    #: Keeps a new item whose task has gone, by its answer; None: they are only asked for.
    keep: Callable[[Any, Batch], None] | None = None

    async def alone(self, item: Any) -> bool:
        """The answer to an item that goes alone."""
        return bool((await self.run(self.many([item]))).get(item))


class Waiting:
    """An item of a task that waits; ``done`` gets its answer, and is cancelled with the task."""

    __slots__ = ("_answer", "asked", "batch", "done", "item")

    def __init__(self, asked: Asked, item: Any, done: asyncio.Future[bool | None]) -> None:
        self.asked: Asked = asked
        self.item: Any = item
        self.done: asyncio.Future[bool | None] = done
        #: What sends for it.
        self.batch: asyncio.Task[None] | None = None
        self._answer: Batch | None = None

    def take(self, answers: Answers | Exception | None) -> None:
        """Gives the task its answer, or the error; None: the call has no answer for it, or was refused, perhaps for another
        item. Keeps the answer where the task has gone."""
        if isinstance(answers, dict):
            self._answer = answer = answers.get(self.item)
            if not self.done.cancelled():
                self.done.set_result(bool(answer))
            elif answer and self.asked.keep:
                self.asked.keep(self.item, answer)
        elif not self.done.cancelled():
            if not isinstance(answers, TBloomError | None):
                error = type(answers)(*answers.args)  # an object of its own for each task
                error.__cause__ = answers
                self.done.set_exception(error)
            else:
                self.done.set_result(None)

    def leave(self) -> None:
        """The task was cancelled: keeps an answer that has come."""
        has_come = self.done.done() and not self.done.cancelled() and not self.done.exception()
        if has_come and self._answer and self.asked.keep:
            self.asked.keep(self.item, self._answer)


def hand_out(waiting: Iterable[Waiting], answers: Answers | Exception | None) -> None:
    """Gives each task its answer, or the error; an item is new once."""
    # Those that still wait come first.
    for each in sorted(waiting, key=lambda each: each.done.cancelled()):
        each.take(answers)
        if each.asked.keep and isinstance(answers, dict):
            answers[each.item] = None


class Batcher:
    """The items of a store's verbs, from any number of tasks of one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Those that wait for a call that is on its way, by its kind.
        self._waiting: dict[Hashable, list[Waiting]] = {}
        self._batches = set[asyncio.Task[None]]()
        #: The number of items of each call that is on its way.
        self._on_way: list[int] = []
        #: The batches that are on their way with items whose tasks have left, and these items.
        self._left: dict[asyncio.Task[None], set[Any]] = {}

    def check_loop(self) -> None:
        """Raises TBloomError if no event loop of asyncio's runs, or another one than the first, where redis-py's connections
        don't work."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise TBloomError(
                "the Async classes need asyncio: its event loop does not run here (Trio's is another)"
            ) from None
        if self._loop is not loop:
            if self._loop is not None:
                raise TBloomError(
                    "an object of the Async classes belongs to the event loop that used it first; make another one for "
                    "this loop, or this forked process"
                )
            self._loop = loop

    async def settle(self, *items: Any) -> None:
        """Waits for the batches that tasks have left; with items, only for theirs.

        Else a further call for such an item would be answered that it is seen, before its first answer has come, or is known
        to be lost.
        """
        wanted = {*items}
        while left := [batch for batch, left in self._left.items() if not wanted or wanted & left]:
            await asyncio.wait(left)

    async def ask(self, asked: Asked, item: Any) -> bool:
        """The answer to an item."""
        self.check_loop()
        if self._left and asked.keep:
            await self.settle(item)
        waiting = self._waiting.get(asked.kind)
        if waiting is None:
            waiting = self._waiting[asked.kind] = []
            self._on_way.append(1)
            try:
                return await asked.alone(item)
            finally:
                self._on_way.remove(1)
                self._end(asked.kind, waiting, 1)
        mine = Waiting(asked, item, asyncio.get_running_loop().create_future())
        waiting.append(mine)
        on_way = sum(self._on_way)
        if len(waiting) >= on_way and len(self._on_way) < AT_ONCE:
            self._end(asked.kind, waiting, on_way)
        try:
            answer = await mine.done
        except BaseException:
            mine.leave()
            if asked.keep and mine.batch and not mine.batch.done():
                self._left.setdefault(mine.batch, set()).add(item)
                mine.batch.add_done_callback(lambda batch: self._left.pop(batch, None))
            raise
        return await asked.alone(item) if answer is None else answer

    def go_on(self) -> None:
        """Sends for those that wait: a call has failed, and is retried."""
        for kind, waiting in [*self._waiting.items()]:
            self._end(kind, waiting, MOST)

    def _end(self, kind: Hashable, waiting: list[Waiting], sent: int) -> None:
        """Sends for those that wait for a call of ``sent`` items, unless that was done: as many items, or half of them."""
        if self._waiting.get(kind) is not waiting:
            return
        del self._waiting[kind]
        if waiting:
            most = min(max(sent, len(waiting) // 2 + 1), MOST)
            others = self._waiting[kind] = waiting[most:]
            # First, because an eager task runs at once.
            self._on_way.append(len(waiting[:most]))
            batch = asyncio.create_task(self._send(waiting[:most], others))
            for each in waiting[:most]:
                each.batch = batch
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)

    async def _send(self, taken: list[Waiting], others: list[Waiting]) -> None:
        """Sends for those that wait; ``others``: those that wait for this call."""
        asked, answers = taken[0].asked, None
        try:
            if items := [each.item for each in taken if not each.done.cancelled()]:
                answers = await asked.run(asked.many(items))
        except Exception as error:  # noqa: BLE001 - each task raises it
            answers = error
        finally:
            self._on_way.remove(len(taken))
            # First, so that the server has work while these tasks go on.
            self._end(asked.kind, others, len(taken))
            hand_out(taken, answers)
