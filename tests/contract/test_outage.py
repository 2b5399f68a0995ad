"""A caller may decide itself while the server does not answer, and tells the store so."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import AsyncTimeBloom, ConfigError, TimeBloom
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Awaited
from tests.helpers.proxy import LossyProxy, Proxy
from tests.helpers.stores import BLOOM, EXACT, Store


@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str, indirect=True)
async def test_an_item_that_the_caller_assumed_new_is_not_new_again(opened: Any, url: str) -> None:
    with LossyProxy(url, lambda number: number == 3) as proxy:
        seen = opened(url=proxy.url, resend=False)
        await seen.contains("parameters")
        with pytest.raises(redis.ConnectionError):
            await seen.add_many(["a", "b"])
        assume_new = getattr(seen, "_seen", seen).assume_new
        assume_new(["a"])
        assert [False, True] == await seen.add_many(["a", "b"])


async def test_an_address_that_leads_to_a_new_master_is_asked_anew(
    store: Store, driver: str, binary: str, name: str
) -> None:
    """The old one lives on as a replica, which refuses to write over the connections that are left."""
    with (
        LocalRedis(binary) as old,
        LocalRedis(binary) as new,
        redis.Redis.from_url(old.url) as demoted,
        Proxy(old.url, lambda _: None) as proxy,
    ):
        seen = store.awaited(proxy.url, name, driver=driver)
        assert await seen.add("before")
        assert await seen.add_many(["one", "more"]) == [True, True]
        demoted.replicaof("127.0.0.1", new.port)
        proxy.lead_to(new.url)
        assert await seen.add("after")
        assert not await seen.add("after")
        assert store.held(store.open(new.url, name)) == 1


@pytest.mark.parametrize("retry_for", [None, 5])
async def test_a_caller_s_client_leaves_a_server_that_is_no_master_any_more(
    driver: str, name: str, retry_for: float | None
) -> None:
    """With its connections, so that its next call asks the address anew, where it does not retry this one."""
    binary = servers.BINARIES[servers.OLDEST]
    with ExitStack() as stack:
        old, new = (stack.enter_context(LocalRedis(binary)) for _ in range(2))
        proxy = stack.enter_context(Proxy(old.url, lambda _: None))
        if driver == "async":
            client = redis.asyncio.Redis.from_url(proxy.url)
            seen: Any = AsyncTimeBloom(client, name, retry_for=retry_for)
        else:
            seen = Awaited(TimeBloom(redis.Redis.from_url(proxy.url), name, retry_for=retry_for))
        assert await seen.add("before")
        stack.enter_context(redis.Redis.from_url(old.url)).replicaof("127.0.0.1", new.port)
        proxy.lead_to(new.url)
        if retry_for is None:
            with pytest.raises(redis.exceptions.ReadOnlyError):
                await seen.add("after")
        assert await seen.add("after")
        assert not await seen.contains("before")


@pytest.mark.parametrize("value", [-1, "5"])
def test_a_bad_argument_is_named(url: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^retry_for: expected"):
        TimeBloom.from_url(url, name, retry_for=value)
