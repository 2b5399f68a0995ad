"""Items that are asked for while a call is on its way go together in the next one; a lone call goes at once.

Each caller keeps its own answer, error and cancellation. An item that was added, and whose caller has gone, is kept as a
pending answer (``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
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
    """How items of one kind are asked for; the same object for items that can go together."""

    #: The flows for one item, and for several.
    one: Callable[[Any], Flow[bool]]
    many: Callable[[list[Any]], Flow[dict[Any, bool]]]
    #: Keeps a new item whose caller has gone; None: they are only looked up.
    keep: Callable[[Any], None] | None


class Waiting(Generic[Signal]):
    """An item of a caller that waits."""

    __slots__ = ("answer", "has_gone", "item", "signal")

    def __init__(self, item: Any, signal: Signal) -> None:
        self.item, self.signal = item, signal
        self.answer: bool | Exception | None = None
        self.has_gone = False

    def take(self, answer: Any, keep: Callable[[Any], None] | None) -> None:
        """Gives the caller its answer."""
        self.answer = answer
        if self.has_gone and answer is True and keep:
            keep(self.item)

    def leave(self, keep: Callable[[Any], None] | None) -> None:
        """The caller was interrupted or cancelled."""
        self.has_gone = True
        if self.answer is True and keep:
            keep(self.item)


def hand_out(waiting: list[Waiting[Any]], answers: dict[Any, bool], kind: Asked) -> None:
    """Gives each caller its answer; an item is new once."""
    for each in waiting:
        answer = answers.get(each.item, False)
        if kind.keep:
            answers[each.item] = False
        each.take(answer, kind.keep)


class Threads(BeginsAnew):
    """The items of one kind, from any number of threads. The one that has the lock sends for all that wait."""

    __slots__ = ("_kind", "_run", "_waiting", "lock")

    def __init__(self, run: Callable[[Flow[Any]], Any], kind: Asked) -> None:
        self._run, self._kind = run, kind
        super().__init__()

    def begin(self) -> None:
        """In a forked child, nobody waits."""
        self.lock, self._waiting = Lock(), deque[Waiting[Any]]()

    def ask(self, item: Any) -> bool:
        """The answer to an item."""
        # Its signal: the lock of the call that it has gone with.
        own = Waiting[Any](item, None)
        self._waiting.append(own)
        try:
            while own.answer is None:
                lock = own.signal or self.lock
                if not lock.acquire(timeout=_PATIENCE):
                    if lock is self.lock:
                        self.lock = Lock()
                    continue
                try:
                    if own.signal:  # so the call has ended; without an answer it was interrupted
                        break
                    self._send(own, lock)
                finally:
                    lock.release()
        except BaseException:
            own.leave(self._kind.keep)
            raise
        if isinstance(own.answer, bool):
            return own.answer
        if own.answer is None or isinstance(own.answer, TBloomError):  # perhaps for another item
            return bool(self._run(self._kind.one(item)))
        raise type(own.answer)(*own.answer.args) from own.answer

    def _send(self, own: Waiting[Any], lock: Any) -> None:
        """Sends for all that wait."""
        taken = [own]
        with suppress(IndexError):
            while len(taken) < MOST:
                each = self._waiting.popleft()
                if each is not own and each.signal is None:
                    taken.append(each)
        for each in taken:
            each.signal = lock
        try:
            answers = self._run(self._kind.many([each.item for each in taken]))
            hand_out(taken, answers, self._kind)
        except Exception as error:  # noqa: BLE001 - each caller raises it
            for each in taken:
                each.answer = error


class Tasks:
    """The items of a store's verbs, from any number of tasks of one event loop."""

    def __init__(self, run: Callable[[Flow[Any]], Any]) -> None:
        self._run = run
        self.loop = asyncio.get_running_loop()
        #: The call that the others wait for.
        self._call: object = None
        self._waiting: deque[tuple[Asked, Waiting[asyncio.Future[None]]]] = deque()
        self._batches = set[asyncio.Task[None]]()

    async def ask(self, kind: Asked, item: Any) -> bool:
        """The answer to an item."""
        if self._call is None:
            own_call = self._call = object()
            try:
                return bool(await self._run(kind.one(item)))
            finally:
                self._end(own_call)
        own = Waiting(item, self.loop.create_future())
        self._waiting.append((kind, own))
        try:
            await own.signal
        except BaseException:
            own.leave(kind.keep)
            raise
        if isinstance(own.answer, bool):
            return own.answer
        if own.answer is None or isinstance(own.answer, TBloomError):  # perhaps for another item
            return bool(await self._run(kind.one(item)))
        raise type(own.answer)(*own.answer.args) from own.answer

    def go_on(self) -> None:
        """Sends for those that wait: the call that they wait for has failed, and is retried."""
        self._end(self._call)

    def _end(self, call: object) -> None:
        if call is not self._call:
            return
        self._call = None
        if self._waiting:
            batch = self._call = self.loop.create_task(self._send())
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)

    async def _send(self) -> None:
        """Sends for those that wait with the kind of the first."""
        own_call, taken, others = self._call, list[Waiting[Any]](), deque[Any]()
        kind = self._waiting[0][0]
        for asked, each in self._waiting:
            if each.has_gone:
                continue
            if asked is kind and len(taken) < MOST:
                taken.append(each)
            else:
                others.append((asked, each))
        self._waiting = others
        try:
            if taken:
                answers = await self._run(kind.many([each.item for each in taken]))
                hand_out(taken, answers, kind)
        except Exception as error:  # noqa: BLE001 - each caller raises it
            for each in taken:
                each.answer = error
        finally:
            for each in taken:
                if not each.signal.done():
                    each.signal.set_result(None)
            self._end(own_call)
