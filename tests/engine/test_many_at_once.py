"""Thousands of tasks, or hundreds of threads, call at once: each gets its answer, in few calls, and nothing is lost if some end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom.arguments import fingerprint
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, EXACT

MANY = [f"item {i}" for i in range(1000)]


@contextmanager
def _each(driver: str, tasks: int) -> Iterator[Callable[..., Any]]:
    """What calls a verb for each of the items at once, in tasks or in as many threads at most."""
    with ThreadPoolExecutor(tasks) as threads:

        async def each(verb: Any, items: Any) -> list[Any]:
            if driver == "async":
                return await asyncio.gather(*map(verb, items), return_exceptions=True)
            calls = [asyncio.wrap_future(threads.submit(verb, item)) for item in items]
            return await asyncio.gather(*calls, return_exceptions=True)

        yield each


async def _closed(seen: Any) -> None:
    closed = seen.aclose() if hasattr(seen, "aclose") else asyncio.to_thread(seen.close)
    await closed


@pytest.mark.parametrize("driver", ["sync", "async"])
async def test_the_wait_for_others_is_no_part_of_a_calls_time(
    url: str, name: str, driver: str
) -> None:
    """One connection serves all. A call begins after more than ``retry_for``, and its reply is lost (aiohttp#1463, httpx#557)."""
    faults: dict[int, Fault] = {}
    with Proxy(url, lambda n: faults.get(n, Fault.LATE_REPLY), late=0.1) as proxy:
        own: dict[str, Any] = {"retry_for": 2, "shards": 1}
        seen = BLOOM.open(f"{proxy.url}?max_connections=1", name, driver=driver, **own)
        with _each(driver, 30) as each:
            await each(seen.contains, ["begins"])
            faults[proxy.calls + 25] = Fault.LOSE
            assert [None] * 30 == await each(seen.last_seen, MANY[:30])
        assert proxy.struck[Fault.LOSE]
        await _closed(seen)


class _Away:
    """What a client raises as long as calls about this item fail."""

    item: bytes | None = None
    failed = 0

    def check(self, words: Any) -> None:
        if self.item and words[0] == "EVALSHA" and self.item in words[-1]:
            self.failed += 1
            raise redis.ConnectionError("away")


class _Client(_Away, redis.Redis):
    def execute_command(self, *words: Any, **options: Any) -> Any:
        self.check(words)
        return super().execute_command(*words, **options)


class _AsyncClient(_Away, redis.asyncio.Redis):
    async def execute_command(self, *words: Any, **options: Any) -> Any:
        self.check(words)
        return await super().execute_command(*words, **options)


@pytest.mark.parametrize("driver", ["sync", "async"])
async def test_a_call_that_is_tried_again_holds_up_no_other(
    url: str, name: str, driver: str
) -> None:
    """There is one connection."""
    kind: Any = _AsyncClient if driver == "async" else _Client
    client = kind.from_url(f"{url}?max_connections=1")
    seen = EXACT.of_client(client, name, retry_for=600)
    with _each(driver, 30) as each:
        await each(seen.contains, ["lost"])
        client.item = fingerprint(b"lost").to_bytes(16, "big")
        lost = asyncio.create_task(each(seen.expires, ["lost"]))
        while not client.failed:  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0.001)
        assert [None] * 100 == await each(seen.expires, MANY[:100])
        assert not lost.done()
        client.item = None
        assert [None] == await lost
    await _closed(seen)
    await client.aclose() if driver == "async" else client.close()


@pytest.mark.parametrize("driver", ["sync", "async"])
async def test_a_call_with_many_items_holds_up_no_other(url: str, name: str, driver: str) -> None:
    """There is one connection."""
    seen = BLOOM.open(f"{url}?max_connections=1", name, driver=driver)
    with _each(driver, 2) as each:
        large = asyncio.create_task(each(seen.add_many, [map(str, range(60_000))]))
        while not (await each(seen.contains, ["0"]))[0]:
            pass
        assert not large.done()
        [new] = await large
        assert 60_000 == sum(new)
    await _closed(seen)
