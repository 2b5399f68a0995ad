"""The filter without a server, for asyncio."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self, TypeVar

from tbloom.engine.flow import Flow
from tbloom.engine.methods import AsyncVerbs
from tbloom.local.verbs import LocalVerbs, answer_of

T = TypeVar("T")


class AsyncLocalBloom(LocalVerbs, AsyncVerbs):
    """``LocalBloom`` for asyncio: the same verbs, each done in a thread of the event loop's pool and awaited.

    The items of a call are read in that thread too. A thread takes some 50 us, so ``add_many`` pays. A task that is
    cancelled ends once the call in its thread has ended.
    """

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow and return its result."""
        work = asyncio.ensure_future(asyncio.to_thread(next, flow))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            work.exception()  # otherwise asyncio logs an exception that was never retrieved
            flow.close()  # so that it notes the cancellation
            raise
        return answer_of(flow)

    async def aclose(self) -> None:
        """Release the memory, or the file. The filter can't be used after this.

        Raise TBloomError if the file was deleted, replaced or cut meanwhile.
        """
        await asyncio.to_thread(self._protocol.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
