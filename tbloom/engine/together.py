"""Items that are asked for while a call is on its way go together in the next one; a lone call goes at once.

Each caller keeps its own answer, error and cancellation. An item that was added, and whose caller has gone, is kept as a
pending answer (``engine/pending``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from threading import Lock, current_thread, main_thread
from typing import Any, NamedTuple

from tbloom.engine.flow import Flow
from tbloom.engine.forks import BeginsAnew
from tbloom.errors import NotReplicated, TBloomError

#: The items of one batch.
MOST = 500
#: The threads that ask alone.
_ALONE = 8
#: A thread waits this long (s) for a call that is on its way, before it sends beside it.
_WAIT_SECONDS = 0.1


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop; raises TBloomError if none of asyncio's runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        message = (
            "the Async classes need asyncio: its event loop does not run here (Trio's is another)"
        )
        raise TBloomError(message) from None


class Asked(NamedTuple):
    """How an item is asked for."""

    #: Equal for items that can go together.
    kind: Hashable
    #: Gives, or awaits, a flow's answer. (It refers to the store, so it is dropped with the item.)
    run: Callable[[Flow[Any]], Any]
    #: The flows for one item, and for several.
    one: Callable[[Any], Flow[bool]]
    many: Callable[[list[Any]], Flow[dict[Any, bool]]]
    #: Keeps a new item whose caller has gone, by the answers that it was among; None: they are only looked up.
    keep: Callable[[Any, Any], None] | None = None
    #: In place of the flow for one item, where a task asks alone.
    alone: Callable[[Any], Awaitable[bool]] | None = None


class Waiting:
    """An item of a caller that waits; ``signal``: a lock or a future, by which the caller is woken."""

    __slots__ = ("_answers", "_first", "answer", "asked", "batch", "item", "signal")

    def __init__(self, asked: Asked, item: Any, signal: Any) -> None:
        self.asked, self.item, self.signal = asked, item, signal
        self.answer: bool | Exception | None = None
        #: What sends for a task.
        self.batch: asyncio.Task[None] | None = None
        #: The answer, or that the caller has left, whichever came first: ``setdefault`` decides in one step.
        self._first: dict[str, Any] = {}
        #: The answers that its own is among.
        self._answers: dict[Any, bool] = {}

    @property
    def has_left(self) -> bool:
        """True: the caller was interrupted or cancelled before it had an answer."""
        return self._first.get("came") is Waiting

    def take(self, answers: dict[Any, bool] | Exception) -> None:
        """Gives the caller its answer, or the error; or keeps it."""
        answer: bool | Exception
        if isinstance(answers, Exception):
            answer = answers
        else:
            answer, self._answers = answers.get(self.item, False), answers
        if self._first.setdefault("came", answer) is not Waiting:
            self.answer = answer
        elif answer is True and self.asked.keep:
            self.asked.keep(self.item, answers)

    def leave(self) -> None:
        """The caller was interrupted or cancelled: keeps an answer that has come."""
        if self._first.setdefault("came", Waiting) is True and self.asked.keep:
            self.asked.keep(self.item, self._answers)

    def given(self) -> bool | None:
        """The answer; None: the call has none for this item, or was refused, perhaps for another one. Raises its error."""
        if self.answer is None:
            return None
        if isinstance(self.answer, TBloomError) and not isinstance(self.answer, NotReplicated):
            return None
        if isinstance(self.answer, Exception):  # an object of its own for each caller
            raise type(self.answer)(*self.answer.args) from self.answer
        return self.answer


def hand_out(waiting: Iterable[Waiting], answers: dict[Any, bool] | Exception) -> None:
    """Gives each caller its answer, or the error; an item is new once."""
    for each in sorted(waiting, key=lambda each: each.has_left):  # those that wait come first
        each.take(answers)
        if each.asked.keep and not isinstance(answers, Exception):
            answers[each.item] = False


class Threads(BeginsAnew):
    """The items of one kind, from any number of threads.

    A few threads have a lock each, and ask alone: to hand answers out takes longer. Further threads wait, and the one that
    gets the first lock sends for all of them: whoever takes an item out of ``waiting``, which is one step, answers it.
    """

    __slots__ = ("alone", "locks", "waiting")

    def begin(self) -> None:
        """In a forked child, nobody waits."""
        self.locks, self.waiting = [Lock() for _ in range(_ALONE)], deque[Waiting]()
        #: The locks of those that ask alone; none while a call for several threads is on its way.
        self.alone: Sequence[Lock] = self.locks

    def ask(self, asked: Asked, item: Any) -> bool:
        """The answer to an item."""
        mine = Waiting(asked, item, Lock())
        mine.signal.acquire()
        try:
            self.waiting.append(mine)
            while mine.answer is None:
                lock = self.locks[0]
                if mine in self.waiting and lock.acquire(blocking=False):
                    try:
                        self._send(mine)
                    finally:
                        lock.release()
                        self.wake_next()
                elif not mine.signal.acquire(timeout=_WAIT_SECONDS) and mine in self.waiting:
                    self.locks[0] = Lock()
        except BaseException:
            with suppress(ValueError):
                self.waiting.remove(mine)
            mine.leave()
            raise
        answer = mine.given()
        return bool(asked.run(asked.one(item))) if answer is None else answer

    def wake_next(self) -> None:
        """Wakes the thread that has waited longest, after the lock was released."""
        with suppress(IndexError, RuntimeError):  # nobody waits, or it was woken
            self.waiting[0].signal.release()

    def _send(self, mine: Waiting) -> None:
        """Sends for all that wait, unless another thread has taken this one's item."""
        taken = list[Waiting]()
        try:
            with suppress(ValueError, IndexError):
                self.waiting.remove(mine)
                taken.append(mine)
                # Signals interrupt the main thread only, so it answers for nobody else.
                while len(taken) < MOST and current_thread() is not main_thread():
                    taken.append(self.waiting.popleft())
            if taken:
                self.alone = self.locks if len(taken) == 1 else ()
                hand_out(taken, mine.asked.run(mine.asked.many([each.item for each in taken])))
        except Exception as error:  # noqa: BLE001 - each caller raises it
            hand_out(taken, error)
        except BaseException:  # this thread is ended: the others ask alone
            hand_out(taken[1:], TBloomError("the call was interrupted"))
            raise
        finally:
            self.alone = self.locks
            for each in taken:
                with suppress(RuntimeError):
                    each.signal.release()


class Tasks:
    """The items of a store's verbs, from any number of tasks of one event loop."""

    def __init__(self) -> None:
        self.loop = running_loop()
        #: Those that wait for a call that is on its way, by its kind.
        self._waiting: dict[Hashable, list[Waiting]] = {}
        self._batches = set[asyncio.Task[None]]()
        #: The batches that are on their way with items whose callers have left, and these items.
        self._left: dict[asyncio.Task[None], set[Any]] = {}

    async def settle(self, *items: Any) -> None:
        """Waits for the batches that callers have left; with items, only for theirs.

        Else a further call for such an item would be told that it is seen, before its first answer has come, or is known
        to be lost.
        """
        wanted = {*items}
        while left := [batch for batch, left in self._left.items() if not wanted or wanted & left]:
            await asyncio.wait(left)

    async def ask(self, asked: Asked, item: Any) -> bool:
        """The answer to an item."""
        if self._left and asked.keep:
            await self.settle(item)
        waiting = self._waiting.get(asked.kind)
        if waiting is None:
            waiting = self._waiting[asked.kind] = []
            try:
                if asked.alone is not None:
                    return await asked.alone(item)
                return bool(await asked.run(asked.one(item)))
            finally:
                self._end(asked.kind, waiting, 1)
        mine = Waiting(asked, item, self.loop.create_future())
        waiting.append(mine)
        try:
            await mine.signal
        except BaseException:
            mine.leave()
            if asked.keep and mine.batch and not mine.batch.done():
                self._leave(item, mine.batch)
            raise
        answer = mine.given()
        return bool(await asked.run(asked.one(item))) if answer is None else answer

    def _leave(self, item: Any, batch: asyncio.Task[None]) -> None:
        self._left.setdefault(batch, set()).add(item)
        batch.add_done_callback(lambda batch: self._left.pop(batch, None))

    def go_on(self) -> None:
        """Sends for those that wait: a call has failed, and is retried."""
        for kind, waiting in [*self._waiting.items()]:
            self._end(kind, waiting, MOST)

    def _end(self, kind: Hashable, waiting: list[Waiting], sent: int) -> None:
        """Sends for those that wait for a call of ``sent`` items, unless that was done.

        As many items as that call had, or half of them: while the server answers these, the others' callers go on. If all
        went at once, client and server would wait for each other.
        """
        if self._waiting.get(kind) is not waiting:
            return
        del self._waiting[kind]
        if waiting:
            most = min(max(sent, len(waiting) // 2 + 1), MOST)
            others = self._waiting[kind] = waiting[most:]
            batch = self.loop.create_task(self._send(waiting[:most], others))
            for each in waiting[:most]:
                each.batch = batch
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)

    async def _send(self, taken: list[Waiting], others: list[Waiting]) -> None:
        """Sends for those that wait; ``others``: those that wait for this call."""
        asked = taken[0].asked
        try:
            if items := [each.item for each in taken if not each.has_left]:
                hand_out(taken, await asked.run(asked.many(items)))
        except Exception as error:  # noqa: BLE001 - each caller raises it
            hand_out(taken, error)
        finally:
            # First, so that the server has work while these callers go on.
            self._end(asked.kind, others, len(taken))
            for each in taken:
                if not each.signal.done():
                    each.signal.set_result(None)
