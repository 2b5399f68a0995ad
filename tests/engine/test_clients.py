"""Clients that no store can use are refused, and so is what they answer."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import TBloomError
from tests.helpers.hostile import refused
from tests.helpers.making import awaited
from tests.helpers.servers import Cluster
from tests.helpers.stores import STORES, Store

each_store = pytest.mark.parametrize("store", STORES, ids=str)
each_library = pytest.mark.parametrize("library", [redis, redis.asyncio])


@each_store
@each_library
async def test_a_pipeline_is_no_client(store: Store, library: Any, cluster: Cluster) -> None:
    """It would answer each command with itself, which can be unpacked for ever (redisson#2753)."""
    made = store.sync if library is redis else store.aio
    names = ("one", "news") if store.kind == "distinct" else ("news",)
    for client in library.Redis(), library.RedisCluster(port=cluster.port, host="127.0.0.1"):
        for transaction in {True, isinstance(client, library.Redis)}:
            pipeline = client.pipeline(transaction=transaction)
            assert refused(lambda pipeline=pipeline: made(pipeline, *names)) == "client"
        await client.aclose() if library is redis.asyncio else client.close()


class _AnswersItself(redis.Redis):
    def execute_command(self, *_: Any, **__: Any) -> Any:
        return self


class _AnswersItselfAsync(redis.asyncio.Redis):
    async def execute_command(self, *_: Any, **__: Any) -> Any:
        return self


class _InTransaction(redis.Redis):
    """Answers each script as a connection in the midst of MULTI does."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return b"QUEUED" if args[0] == "EVALSHA" else super().execute_command(*args, **options)


@each_store
@pytest.mark.parametrize("client", [_AnswersItself, _AnswersItselfAsync, _InTransaction])
async def test_what_is_no_reply_is_refused(store: Store, client: Any, url: str, name: str) -> None:
    made = store.of_client(client.from_url(url), name)
    seen = made if client is _AnswersItselfAsync else awaited(made)
    with pytest.raises(TBloomError, match="the client answered"):
        await seen.add("a")
    with pytest.raises(TBloomError, match="the client answered"):
        await seen.add_many(["a"])
