"""Calls that asyncio tasks share.

A lone item is sent at once. Items that tasks ask for while a call is in flight go together in the next call. It is sent when
the call in flight has ended, or as soon as as many items wait as are in flight. So the server has work while the client hands
out answers, and the two take turns with halves of the tasks.

Each task has its own answer, error and cancellation. If a task is cancelled and its item was added, the answer stays pending
(``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tbloom.engine.flow import Flow, copied
from tbloom.engine.pending import Answers, Batch
from tbloom.errors import TBloomError

#: The most items of one batch.
MOST = 500
#: A batch is sent early (once as many items wait as are in flight) only while fewer calls than this are in flight.
AT_ONCE = 2


class BatchItem(NamedTuple):
    """How an item joins a shared call."""

    #: Equal for items that can share a call.
    kind: Hashable
    #: Run a flow; its result is awaited. (It refers to the store, so it is dropped with the item.)
    run: Callable[[Flow[Any]], Any]
    #: Return the flow for a list of items; it returns the answer of each.
    many: Callable[[list[Any]], Flow[Any]]
    #: Keep a new item whose task was cancelled, with the batch that found it new; None: the verb adds nothing.
    keep: Callable[[Any, Any], None] | None = None

    async def alone(self, item: Any) -> bool:
        """Return the answer to an item, sent in a call of its own."""
        return bool((await self.run(self.many([item]))).get(item))


class Waiting:
    """An item whose task waits; ``done`` gets the answer, and is cancelled with the task."""

    __slots__ = ("_answer", "asked", "batch", "done", "item")

    def __init__(self, asked: BatchItem, item: Any, done: asyncio.Future[bool | None]) -> None:
        self.asked: BatchItem = asked
        self.item: Any = item
        self.done: asyncio.Future[bool | None] = done
        #: The task that sends it; None until then.
        self.batch: asyncio.Task[None] | None = None
        self._answer: Batch | None = None

    def take(self, answers: Answers | BaseException | None) -> None:
        """Give the task its answer, or the error. If the task was cancelled, keep a new item.

        With None or a TBloomError, the task asks again alone: the call has no answers, or was refused, perhaps because of
        another item.
        """
        if isinstance(answers, dict):
            self._answer = answer = answers.get(self.item)
            if not self.done.cancelled():
                self.done.set_result(bool(answer))
            elif answer and self.asked.keep:
                self.asked.keep(self.item, answer)
        elif not self.done.done():
            if not isinstance(answers, TBloomError | None):
                # An object of its own for each task, because each raises it.
                self.done.set_exception(copied(answers))
            else:
                self.done.set_result(None)

    def leave(self) -> None:
        """Keep an answer that has come, because the task was cancelled."""
        has_come = self.done.done() and not self.done.cancelled() and not self.done.exception()
        if has_come and self._answer and self.asked.keep:
            self.asked.keep(self.item, self._answer)


def hand_out(waiting: Iterable[Waiting], answers: Answers | BaseException | None) -> None:
    """Give each task its answer, or the error. Only one task is told that an added item is new."""
    # Tasks that still wait come first, so that a cancelled one is not told instead of them.
    for each in sorted(waiting, key=lambda each: each.done.cancelled()):
        each.take(answers)
        if each.asked.keep and isinstance(answers, dict):
            answers[each.item] = None


class Batcher:
    """The items of a store's verbs, from any number of tasks of one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        #: By kind: the items that wait for a call in flight.
        self._waiting: dict[Hashable, list[Waiting]] = {}
        self._batches = set[asyncio.Task[None]]()
        #: The number of items of each call in flight, by the id of the list of items that wait for it.
        self._on_way: dict[int, int] = {}
        #: The batches in flight with items whose tasks were cancelled, and these items.
        self._left: dict[asyncio.Task[None], set[Any]] = {}

    def check_loop(self) -> None:
        """Raise TBloomError if no asyncio event loop runs, or another one than the first.

        redis-py's connections work only in the loop that opened them.
        """
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
        """Wait for the batches in flight that have items of cancelled tasks; with ``items``, only for the batches of these.

        Otherwise a second call could be told "seen" before the first answer is delivered, or known to be lost.
        """
        wanted = {*items}
        while left := [batch for batch, left in self._left.items() if not wanted or wanted & left]:
            await asyncio.wait(left)

    async def ask(self, asked: BatchItem, item: Any) -> bool:
        """Return the answer to an item. It may share a call with other tasks' items."""
        self.check_loop()
        if self._left and asked.keep:
            await self.settle(item)
        waiting = self._waiting.get(asked.kind)
        if waiting is None:
            waiting = self._waiting[asked.kind] = []
            self._on_way[id(waiting)] = 1
            try:
                return await asked.alone(item)
            finally:
                self._on_way.pop(id(waiting), None)
                self._end(asked.kind, waiting, 1)
        mine = Waiting(asked, item, asyncio.get_running_loop().create_future())
        waiting.append(mine)
        on_way = sum(self._on_way.values())
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
        """Send the items that wait, because a call has failed and is retried."""
        for kind, waiting in [*self._waiting.items()]:
            self._end(kind, waiting, MOST)

    def _end(self, kind: Hashable, waiting: list[Waiting], sent: int) -> None:
        """Send items that wait for a call of ``sent`` items, unless they were sent early.

        The next batch has as many items as that call, or half of the items that wait, if these are more.
        """
        if self._waiting.get(kind) is not waiting:
            return
        del self._waiting[kind]
        if waiting:
            most = min(max(sent, len(waiting) // 2 + 1), MOST)
            others = self._waiting[kind] = waiting[most:]
            # Before the task is made, because an eager task runs at once.
            self._on_way[id(others)] = len(waiting[:most])
            batch = asyncio.create_task(self._send(waiting[:most], others))
            for each in waiting[:most]:
                each.batch = batch
            self._batches.add(batch)
            batch.add_done_callback(partial(self._finish, waiting[:most], others))

    async def _send(self, taken: list[Waiting], others: list[Waiting]) -> None:
        """Send the items that are taken; the ``others`` wait for this call."""
        asked, answers = taken[0].asked, None
        try:
            if items := [each.item for each in taken if not each.done.cancelled()]:
                answers = await asked.run(asked.many(items))
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise  # meant for this task alone
        except BaseException as error:  # noqa: BLE001 - each task raises it
            answers = error
        finally:
            self._hand_on(taken, others, answers)

    def _hand_on(
        self, taken: list[Waiting], others: list[Waiting], answers: Answers | BaseException | None
    ) -> None:
        """Send the items that wait for a call, and give its own items their answers."""
        self._on_way.pop(id(others), None)
        # Before the answers are handed out, so that the server has work while these tasks run.
        self._end(taken[0].asked.kind, others, len(taken))
        hand_out(taken, answers)

    def _finish(
        self, taken: list[Waiting], others: list[Waiting], batch: asyncio.Task[None]
    ) -> None:
        """Do what the task has left undone, if it was cancelled before it began or interrupted at its end."""
        self._batches.discard(batch)
        if id(others) in self._on_way or not all(each.done.done() for each in taken):
            self._hand_on(taken, others, None)
