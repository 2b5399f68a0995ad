"""The exact filter for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.engine.aio import AsyncDriver
from tbloom.exact.verbs import ExactVerbs

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases


class AsyncExactFilter(ExactVerbs["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``ExactFilter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "ExactFilter"
