"""The exact filter for asyncio."""

from __future__ import annotations

from typing import Self, Unpack

from redis import asyncio

from tbloom.engine.aio import AsyncDriver
from tbloom.engine.urls import ClientOptions
from tbloom.exact.verbs import ExactArguments, ExactVerbs


class AsyncExactFilter(ExactVerbs["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``ExactFilter`` for asyncio: the same methods, awaited. Any number of tasks may share an object."""

    _OTHER = "ExactFilter"

    @classmethod
    async def open(
        cls,
        client: asyncio.Redis | asyncio.RedisCluster | str,
        name: str,
        *,
        client_options: ClientOptions = None,
        **own: Unpack[ExactArguments],
    ) -> Self:
        """Open a stored filter with its stored parameters; see ``ExactFilter.open``."""
        return await cls._open(client, name, client_options, own)
