"""Items that are asked for while a call is on its way go together in the next one; a lone call goes at once.

Each caller keeps its own answer, error and cancellation. An item that was added, and whose caller has gone, is kept as a
pending answer (``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from tbloom.engine.flow import Flow
from tbloom.engine.forks import BeginsAnew
from tbloom.errors import TBloomError

#: The items of one batch.
MOST = 500
#: A thread waits this long (s) for a call that is on its way, before it sends beside it.
_PATIENCE = 0.1

Signal = TypeVar("Signal")


class Asked(NamedTuple):
    """How an item is asked for."""

    #: Equal for items that can go together.
    kind: Hashable
    #: The flows for one item, and for several.
    one: Callable[[Any], Flow[bool]]
    many: Callable[[list[Any]], Flow[dict[Any, bool]]]
    #: Keeps a new item whose caller has gone; None: they are only looked up.
    keep: Callable[[Any], None] | None


class Waiting(Generic[Signal]):
    """An item of a caller that waits."""

    __slots__ = ("answer", "call", "has_gone", "item", "signal")

    def __init__(self, item: Any, signal: Signal) -> None:
        self.item, self.signal = item, signal
        self.answer: bool | Exception | None = None
        self.has_gone = False
        #: Of a thread: the lock of the call that the item has gone with.
        self.call: Any = None

    def take(self, answer: Any, keep: Callable[[Any], None] | None) -> None:
        """Gives the caller its answer."""
        self.answer = answer
        if self.has_gone and answer is True and keep:
            keep(self.item)

    def given(self) -> bool | None:
        """The answer; None: the call has none for this item, or was refused, perhaps for another one. Raises its error."""
        if self.answer is None or isinstance(self.answer, TBloomError):
            return None
        if isinstance(self.answer, Exception):  # an object of its own for each caller
            raise type(self.answer)(*self.answer.args) from self.answer
        return self.answer

    def leave(self, keep: Callable[[Any], None] | None) -> None:
        """The caller was interrupted or cancelled."""
        self.has_gone = True
        if self.answer is True and keep:
            keep(self.item)


def hand_out(waiting: list[Waiting[Any]], answers: dict[Any, bool], asked: Asked) -> None:
    """Gives each caller its answer; an item is new once."""
    for each in waiting:
        answer = answers.get(each.item, False)
        if asked.keep:
            answers[each.item] = False
        each.take(answer, asked.keep)


class Threads(BeginsAnew):
    """The items of one kind, from any number of threads. The one that has the lock sends for all that wait."""

    __slots__ = ("_asked", "_run", "lock", "waiting")

    def __init__(self, run: Callable[[Flow[Any]], Any], asked: Asked) -> None:
        self._run, self._asked = run, asked
        super().__init__()

    def begin(self) -> None:
        """In a forked child, nobody waits."""
        self.lock, self.waiting = Lock(), deque[Waiting[Any]]()

    def ask(self, item: Any) -> bool:
        """The answer to an item."""
        own = Waiting(item, Lock())
        own.signal.acquire()
        self.waiting.append(own)
        try:
            while own.answer is None:
                lock = own.call or self.lock
                if lock.acquire(blocking=False):
                    try:
                        if own.call:  # it has ended without an answer: it was interrupted
                            break
                        self._send(own, lock)
                    finally:
                        lock.release()
                        self.wake_next()
                elif not own.signal.acquire(timeout=_PATIENCE) and lock is self.lock:
                    self.lock = Lock()
        except BaseException:
            own.leave(self._asked.keep)
            raise
        answer = own.given()
        return bool(self._run(self._asked.one(item))) if answer is None else answer

    def wake_next(self) -> None:
        """Wakes the thread that has waited longest, after the lock was released."""
        with suppress(IndexError, RuntimeError):  # nobody waits, or it was woken
            self.waiting[0].signal.release()

    def _send(self, own: Waiting[Any], lock: Any) -> None:
        """Sends for all that wait."""
        taken = [own]
        with suppress(IndexError):
            while len(taken) < MOST:
                each = self.waiting.popleft()
                if each.call is None and each is not own:
                    taken.append(each)
        for each in taken:
            each.call = lock
        try:
            answers = self._run(self._asked.many([each.item for each in taken]))
            hand_out(taken, answers, self._asked)
        except Exception as error:  # noqa: BLE001 - each caller raises it
            for each in taken:
                each.answer = error
        finally:
            for each in taken:
                with suppress(RuntimeError):
                    each.signal.release()


class Tasks:
    """The items of a store's verbs, from any number of tasks of one event loop."""

    def __init__(self, run: Callable[[Flow[Any]], Any]) -> None:
        self._run = run
        self.loop = asyncio.get_running_loop()
        #: The call that the others wait for.
        self._call: object = None
        self._waiting: deque[tuple[Asked, Waiting[asyncio.Future[None]]]] = deque()
        self._batches = set[asyncio.Task[None]]()

    async def ask(self, asked: Asked, item: Any) -> bool:
        """The answer to an item."""
        if self._call is None:
            own_call = self._call = object()
            try:
                return bool(await self._run(asked.one(item)))
            finally:
                self._end(own_call)
        own = Waiting(item, self.loop.create_future())
        self._waiting.append((asked, own))
        try:
            await own.signal
        except BaseException:
            own.leave(asked.keep)
            raise
        answer = own.given()
        return bool(await self._run(asked.one(item))) if answer is None else answer

    def go_on(self) -> None:
        """Sends for those that wait: the call that they wait for has failed, and is retried."""
        self._end(self._call)

    def _end(self, call: object) -> None:
        if call is not self._call:
            return
        self._call = None
        if self._waiting:
            asked, taken = self._taken()
            self._call = batch = self.loop.create_task(self._send(asked, taken))
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)

    def _taken(self) -> tuple[Asked, list[Waiting[Any]]]:
        """Those that wait with the kind of the first."""
        asked, taken, others = self._waiting[0][0], list[Waiting[Any]](), deque[Any]()
        for other, each in self._waiting:
            if other.kind == asked.kind and len(taken) < MOST:
                taken.append(each)
            else:
                others.append((other, each))
        self._waiting = others
        return asked, taken

    async def _send(self, asked: Asked, taken: list[Waiting[Any]]) -> None:
        """Sends for those that wait."""
        try:
            if items := [each.item for each in taken if not each.has_gone]:
                hand_out(taken, await self._run(asked.many(items)), asked)
        except Exception as error:  # noqa: BLE001 - each caller raises it
            for each in taken:
                each.answer = error
        finally:
            for each in taken:
                if not each.signal.done():
                    each.signal.set_result(None)
            self._end(asyncio.current_task())
