"""Calls that asyncio tasks share.

If fewer than two calls are in flight, an item is sent at once. Otherwise items wait until a call has ended, and then share the
next one. So the server has a call to execute while the client delivers the answers to the other.

Each task gets its own answer, error and cancellation. If a task is cancelled, but its item was added, the answer stays
pending (``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from tbloom.engine.flow import Flow, copied
from tbloom.engine.pending import Answers, Batch
from tbloom.errors import TBloomError

#: The most items of one batch.
MOST = 500
#: The most calls in flight of one kind. (While a call is retried, others are sent beside it.)
AT_ONCE = 2


class BatchItem(NamedTuple):
    """The call that an item joins."""

    #: Items with an equal kind can share a call.
    kind: Hashable
    #: Run a flow, and return an awaitable of its result. (It refers to the store, so it is dropped with the item.)
    run: Callable[[Flow[Any]], Any]
    #: Return the flow of a call with these items. Its result is a dict with the answer to each.
    flow_for: Callable[[list[Any]], Flow[Any]]
    #: Keep a new item whose task was cancelled, and the batch that found it new. None: the verb adds no items.
    keep: Callable[[Any, Any], None] | None = None

    async def send_alone(self, item: Any) -> bool:
        """Send an item in a call of its own, and return the answer."""
        return bool((await self.run(self.flow_for([item]))).get(item))


class WaitingItem:
    """An item whose task waits for ``done``, which gets the answer. It is cancelled if the task is cancelled."""

    __slots__ = ("_answer", "batch", "batch_item", "done", "item")

    def __init__(self, batch_item: BatchItem, item: Any, done: asyncio.Future[bool | None]) -> None:
        self.batch_item: BatchItem = batch_item
        self.item: Any = item
        self.done: asyncio.Future[bool | None] = done
        #: The task that sends it; None until then.
        self.batch: asyncio.Task[None] | None = None
        self._answer: Batch | None = None

    def deliver(self, answers: Answers | BaseException | None) -> None:
        """Deliver the answer, or the error, to the task. If the task was cancelled, keep a new item.

        With None, the call has no answers. With a TBloomError, it was refused, perhaps because of another item. In both cases
        the task sends its item again, alone.
        """
        if isinstance(answers, dict):
            self._answer = answer = answers.get(self.item)
            if not self.done.cancelled():
                self.done.set_result(bool(answer))
            elif answer and self.batch_item.keep:
                self.batch_item.keep(self.item, answer)
        elif not self.done.done():
            if not isinstance(answers, TBloomError | None):
                # Each task raises the error, so each gets its own copy.
                self.done.set_exception(copied(answers))
            else:
                self.done.set_result(None)

    def keep_delivered(self) -> None:
        """Keep a new item whose answer was delivered just before its task was cancelled."""
        has_answer = self.done.done() and not self.done.cancelled() and not self.done.exception()
        if has_answer and self._answer and self.batch_item.keep:
            self.batch_item.keep(self.item, self._answer)


def deliver_all(waiting: Iterable[WaitingItem], answers: Answers | BaseException | None) -> None:
    """Deliver the answer, or the error, to each task. If several tasks add one item, only one of them gets the answer "new"."""
    # Tasks that still wait come first, so that a cancelled task does not get that answer.
    for each in sorted(waiting, key=lambda each: each.done.cancelled()):
        each.deliver(answers)
        if each.batch_item.keep and isinstance(answers, dict):
            answers[each.item] = None


class Batcher:
    """The items that the tasks of one event loop send through one store."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        #: By kind: the number of calls in flight, and the items that wait until one has ended.
        self._in_flight = Counter[Hashable]()
        self._waiting = defaultdict[Hashable, list[WaitingItem]](list)
        #: The batches in flight, by the tasks that send them.
        self._batches: dict[asyncio.Task[None], list[WaitingItem]] = {}
        #: The batches in flight that have items of cancelled tasks, and these items.
        self._cancelled: dict[asyncio.Task[None], set[Any]] = {}

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

    @property
    def has_cancelled(self) -> bool:
        """True if batches in flight have items of cancelled tasks."""
        return bool(self._cancelled)

    async def wait_for_cancelled(self, items: Iterable[Any]) -> None:
        """Wait for the batches in flight in which cancelled tasks add one of these items.

        Otherwise a second call could get "seen" before the answer "new" is delivered, or is known to be lost.
        """
        wanted = {*items}
        while left := [batch for batch, left in self._cancelled.items() if wanted & left]:
            await asyncio.wait(left)

    async def send(self, batch_item: BatchItem, item: Any) -> bool:
        """Send an item, perhaps in a call with other tasks' items, and return the answer."""
        self.check_loop()
        if self._cancelled and batch_item.keep:
            await self.wait_for_cancelled([item])
        kind = batch_item.kind
        if self._in_flight[kind] < AT_ONCE:
            self._in_flight[kind] += 1
            try:
                return await batch_item.send_alone(item)
            finally:
                self._call_ended(kind)
        mine = WaitingItem(batch_item, item, asyncio.get_running_loop().create_future())
        self._waiting[kind].append(mine)
        try:
            answer = await mine.done
        except BaseException:
            mine.keep_delivered()
            if batch_item.keep and mine.batch and not mine.batch.done():
                self._cancelled.setdefault(mine.batch, set()).add(item)
                mine.batch.add_done_callback(lambda batch: self._cancelled.pop(batch, None))
            raise
        return await batch_item.send_alone(item) if answer is None else answer

    def send_waiting(self) -> None:
        """Send the items that wait for a call, because the call has failed and is retried."""
        for kind in [*self._waiting]:
            self._send_next(kind)

    def _call_ended(self, kind: Hashable) -> None:
        self._in_flight[kind] -= 1
        if self._waiting[kind]:
            self._send_next(kind)
        elif not self._in_flight[kind]:
            del self._in_flight[kind], self._waiting[kind]  # they may refer to the store

    def _send_next(self, kind: Hashable) -> None:
        """Send the items that wait for a call."""
        waiting = self._waiting[kind]
        batch, self._waiting[kind] = waiting[:MOST], waiting[MOST:]
        if batch:
            task = asyncio.create_task(self._send_batch(batch))
            self._in_flight[kind] += 1
            for each in batch:
                each.batch = task
            self._batches[task] = batch
            # It may be cancelled before its start.
            task.add_done_callback(self._end_batch)

    async def _send_batch(self, batch: list[WaitingItem]) -> None:
        batch_item, answers = batch[0].batch_item, None
        try:
            if items := [each.item for each in batch if not each.done.cancelled()]:
                answers = await batch_item.run(batch_item.flow_for(items))
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise  # it concerns only the task that sends
        except BaseException as error:  # noqa: BLE001 - each task raises it
            answers = error
        finally:
            self._end_batch(asyncio.current_task(), answers)

    def _end_batch(self, task: Any, answers: Answers | BaseException | None = None) -> None:
        """Deliver the answers to a batch. Items of tasks that go on at once share the next one."""
        if batch := self._batches.pop(task, None):
            deliver_all(batch, answers)
            task.get_loop().call_soon(self._call_ended, batch[0].batch_item.kind)
