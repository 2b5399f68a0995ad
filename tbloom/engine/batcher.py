"""Calls that asyncio tasks share.

If fewer than two calls are in flight, an item is sent at once. Otherwise items wait until a call has ended, and then share the
next one. So the server has a call to execute while the client delivers the answers to the other.

Each task gets its own answer, error and cancellation. If a task is cancelled, its verb keeps what the item still needs: the
answer of an added one stays pending (``engine/pending``), a claimed one is released, a commit that was not sent is repeated.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from tbloom.engine.flow import Flow, copied
from tbloom.engine.pending import Answers
from tbloom.errors import TBloomError

#: The most items of a shared call.
MOST_ITEMS = 500
#: The most calls in flight of one kind. (While a call is retried, others are sent beside it.)
SHARED_CALLS = 2


def _same(answer: Any) -> Any:
    return answer


class SharedCall(NamedTuple):
    """The call that an item joins."""

    #: Items with an equal kind can share a call.
    kind: Hashable
    #: Run a flow, and return an awaitable of its result (``AsyncDriver.run``). It refers to the store, so it is dropped with the
    #: item.
    run: Callable[..., Any]
    #: Return the flow of a call with these items, each with its ``value``. Its result is a dict with each one's answer or error.
    flow_for: Callable[[dict[Any, Any]], Flow[Any]]
    #: Keep an item whose task was cancelled, with its answer, or None if it has none. Without a function, the verb changes nothing.
    keep: Callable[[Any, Any], None] | None = None
    #: Return the answer of the next task with the same item, from that of the first one.
    next_answer: Callable[[Any], Any] = _same
    #: Return what a task gets for an answer.
    result: Callable[[Any], Any] = bool
    #: What is sent with the item, such as the note of a claim.
    value: Any = None

    async def send_alone(self, item: Any) -> Any:
        """Send an item in a call of its own, and return the answer."""
        answer = (await self.run(self.flow_for({item: self.value}))).get(item)
        if isinstance(answer, Exception):
            raise answer
        return self.result(answer)


#: In place of an answer: the task sends its item again, alone.
ALONE = object()


@dataclass(slots=True, eq=False)
class WaitingItem:
    """An item whose task waits for ``done``: for the answer (see ``engine/pending``), ``ALONE``, or the call's error."""

    item: Any
    call: SharedCall
    #: It is cancelled if the task is cancelled.
    done: asyncio.Future[Any]
    #: When the task began to wait (monotonic).
    since: float = 0.0
    #: The task that sends the shared call; None until then.
    sender: asyncio.Task[Answers | None] | None = None

    def keep_delivered(self) -> None:
        """Keep an item whose task was cancelled just after its call had ended."""
        if self.call.keep and self.done.done() and not self.done.cancelled():
            answer = None if self.done.exception() else self.done.result()
            self.call.keep(self.item, None if answer is ALONE else answer)


def deliver(waiting: Iterable[WaitingItem], answers: Answers | BaseException | None) -> None:
    """Deliver its answer, or the call's error, to each task. If a task was cancelled, keep its item.

    With None, the call has no answers. With a TBloomError, it was refused, perhaps because of another item. In both cases
    each task sends its item again, alone. If several tasks add one item, only one of them gets the answer "new".
    """
    # Tasks that still wait come first, so that a cancelled task does not get that answer.
    for each in sorted(waiting, key=lambda each: each.done.cancelled()):
        answer: Any = answers
        if isinstance(answers, dict):
            answer = answers.get(each.item)
        elif isinstance(answers, TBloomError | None):
            answer = ALONE
        has_answer = answer is not ALONE and not isinstance(answer, BaseException)
        if each.done.cancelled():
            if each.call.keep:
                each.call.keep(each.item, answer if has_answer else None)
        elif isinstance(answer, BaseException):
            # Each task raises the error, so each gets its own copy.
            each.done.set_exception(copied(answer))
        else:
            each.done.set_result(answer)
        if isinstance(answers, dict) and has_answer:
            answers[each.item] = each.call.next_answer(answer)


class Batcher:
    """The items that the tasks of one event loop send through one store."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        #: By kind: the number of calls in flight, and the items that wait until one has ended.
        self._in_flight = Counter[Hashable]()
        self._waiting = defaultdict[Hashable, list[WaitingItem]](list)
        #: The shared calls in flight in which cancelled tasks add items, and these items.
        self._cancelled: dict[asyncio.Task[Answers | None], set[Any]] = {}

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
                    "this loop (in a web application, in its lifespan), or this forked process"
                )
            self._loop = loop

    @property
    def has_cancelled(self) -> bool:
        """True if cancelled tasks add items in shared calls in flight."""
        return bool(self._cancelled)

    async def wait_for_cancelled(self, items: Iterable[Any] | None = None) -> None:
        """Wait for the shared calls in flight in which cancelled tasks add one of these items, or any item (None).

        Otherwise a second call could get "seen" before the answer "new" is delivered, or is known to be lost; and an item could
        be added after its removal.
        """
        wanted = None if items is None else {*items}
        while senders := [
            sender for sender, left in self._cancelled.items() if wanted is None or wanted & left
        ]:
            await asyncio.wait(senders)

    async def send(self, call: SharedCall, item: Any) -> Any:
        """Send an item, perhaps in a call with other tasks' items, and return the answer.

        If the task is cancelled, what its call had reached says how the item is kept:

            not sent                at once, without an answer
            in flight               by ``deliver``; until then, other adds of the item wait
            ended                   by ``deliver``, which comes next
            ended, and delivered    at once, with the answer
        """
        self.check_loop()
        if self._cancelled and call.keep:
            try:
                await self.wait_for_cancelled([item])
            except BaseException:
                call.keep(item, None)
                raise
        if self._in_flight[call.kind] < SHARED_CALLS:
            self._in_flight[call.kind] += 1
            try:
                return await call.send_alone(item)
            finally:
                self._call_ended(call.kind)
        mine = WaitingItem(item, call, asyncio.get_running_loop().create_future(), monotonic())
        self._waiting[call.kind].append(mine)
        try:
            answer = await mine.done
        except BaseException:
            if call.keep:
                if mine.sender is None:
                    call.keep(item, None)
                elif not mine.sender.done():
                    self._cancelled.setdefault(mine.sender, set()).add(item)
                else:
                    mine.keep_delivered()  # if it was delivered
            raise
        return await call.send_alone(item) if answer is ALONE else call.result(answer)

    def send_waiting(self) -> None:
        """Send the items that wait for a call, because the call has failed and is retried."""
        for kind in [*self._waiting]:
            self._send_next(kind)

    def _call_ended(self, kind: Hashable) -> None:
        self._in_flight[kind] -= 1
        self._send_next(kind)
        if not self._in_flight[kind]:
            del self._in_flight[kind], self._waiting[kind]  # they may refer to the store

    def _send_next(self, kind: Hashable) -> None:
        """Send the items that wait for a call."""
        waiting = [each for each in self._waiting[kind] if not each.done.cancelled()]
        some, self._waiting[kind] = waiting[:MOST_ITEMS], waiting[MOST_ITEMS:]
        if some:
            self._in_flight[kind] += 1
            own = Context()  # not that of the task that has made room for it
            sender = asyncio.create_task(_answers_to(some), context=own)
            for each in some:
                each.sender = sender
            # Also if it is cancelled before its start.
            sender.add_done_callback(partial(self._end, some), context=own)

    def _end(self, waiting: list[WaitingItem], sender: asyncio.Task[Answers | None]) -> None:
        """Deliver the answers of a shared call. Items of tasks that continue at once share the next one."""
        self._cancelled.pop(sender, None)
        answers: Answers | BaseException | None = None
        if not sender.cancelled():
            answers = sender.exception() or sender.result()
        if isinstance(answers, KeyboardInterrupt | SystemExit):  # it concerns only the sender
            answers = None
        deliver(waiting, answers)
        sender.get_loop().call_soon(self._call_ended, waiting[0].call.kind)


async def _answers_to(waiting: list[WaitingItem]) -> Answers | None:
    """Send a shared call, and return its answers."""
    call, items = waiting[0].call, dict[Any, Any]()
    for each in waiting:
        if not each.done.cancelled():
            items.setdefault(each.item, each.call.value)
    if not items:
        return None
    answers: Answers = await call.run(call.flow_for(items), waiting[0].since)
    return answers
