"""The filter without a server, for asyncio."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop, wait
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tbloom.engine.flow import Flow
from tbloom.engine.verbs import AsyncVerbs
from tbloom.local.verbs import LocalVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class AsyncLocalBloom(LocalVerbs, AsyncVerbs):
    """``LocalBloom`` for asyncio: the same verbs, each done in a thread of the event loop's pool and awaited.

    The items of a call are read in that thread too. A thread takes some 50 us, so ``add_many`` pays earlier than with
    ``LocalBloom``. A task that is cancelled ends once the call in its thread has ended. Hashing goes through all items of a call without a pause (a million: 0.2 s), so give
    it tens of thousands at a time.
    """

    async def run(self, flow: Flow[T]) -> T:
        """The answer of a flow, whose first step has all of its work."""
        try:
            [answer] = (await _in_thread(partial(_step, flow))) or _step(flow)
            return answer
        finally:
            flow.close()  # so that it notes a cancellation

    async def aclose(self) -> None:
        """Releases the memory, or the file. The filter can't be used after this."""
        await _in_thread(self._protocol.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _step(flow: Flow[T]) -> list[T]:
    """Does the next step of a flow; returns its answer, once it has one."""
    try:
        next(flow)
    except StopIteration as stop:
        return [stop.value]
    return []


async def _in_thread(work: Callable[[], T]) -> T:
    """The answer of the work, which goes on to its end where the task is cancelled."""
    running, cancelled = get_running_loop().run_in_executor(None, work), None
    while not running.done():
        try:
            await wait([running])
        except CancelledError as error:  # noqa: PERF203
            cancelled = error
    if cancelled is None:
        return running.result()
    running.exception()  # else asyncio says that nobody asked for it
    raise cancelled
