"""Thousands of tasks, or hundreds of threads, call at once: each gets its answer, in few calls, and nothing is lost if some end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import AsyncTimeBloom, Claim, FilterFull, TimeBloom
from tbloom.arguments import fingerprint
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter, MappingFull
from tbloom.engine.scripts import Script
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
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


@pytest.mark.parametrize(
    ("store", "verb", "expected"),
    [
        (BLOOM, "add", True),
        (BLOOM, "claim", NEW),
        (BLOOM, "commit", True),
        (EXACT, "add", True),
        (DISTINCT, "add", True),
    ],
    ids=str,
)
async def test_a_thousand_tasks_on_a_new_store_make_few_calls(
    store: Store, verb: str, expected: Any, url: str, name: str
) -> None:
    with Proxy(url, lambda _: None) as counted:
        seen = store.open(counted.url, name, driver="async")
        assert [expected] * 1000 == await asyncio.gather(*map(getattr(seen, verb), MANY))
        assert counted.calls <= 100
        await seen.aclose()


async def test_tasks_that_claim_one_item_get_it_once(url: str, name: str) -> None:
    """With notes or without, in shared calls."""
    async with AsyncTimeBloom.from_url(url, name) as seen:
        items = [f"item {i % 10}" for i in range(100)]
        notes = [f"note {i % 3}" if i < 50 else "" for i in range(100)]
        tasks = [seen.claim(item, note=note) for item, note in zip(items, notes, strict=True)]
        assert [BUSY] * 90 + [NEW] * 10 == sorted(
            await asyncio.gather(*tasks), key=lambda claim: claim.value
        )
        assert all(await asyncio.gather(*map(seen.commit, items[:10])))
        assert [SEEN] * 10 == await asyncio.gather(*map(seen.claim, items[:10]))


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
        large = asyncio.create_task(each(seen.add_many, [map(str, range(30_000))]))
        while not (await each(seen.contains, ["0"]))[0]:
            pass
        assert not large.done()
        [new] = await large
        assert 30_000 == sum(new)
    await _closed(seen)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("verb", ["add", "commit"])
async def test_a_full_slice_refuses_many_tasks_in_few_calls(
    url: str, name: str, shards: int, verb: str
) -> None:
    """Each gets its own answer, or its own error."""
    with Proxy(url, lambda _: None) as counted:
        how: dict[str, Any] = {"capacity": 300, "grow": False, "shards": shards}
        with TimeBloom.from_url(url, name, **how) as before, pytest.raises(FilterFull):
            before.add_many(MANY)
        async with AsyncTimeBloom.from_url(counted.url, name, **how) as seen:
            known = await seen.contains_many(MANY[:500])
            begun = counted.calls
            ask = getattr(seen, verb)
            answers = await asyncio.gather(*map(ask, MANY[:500]), return_exceptions=True)
            assert counted.calls - begun <= 10 * shards
            for item, was_known, answer in zip(MANY, known, answers, strict=False):
                if was_known:
                    assert answer is (verb == "commit"), item
                elif shards == 1 or isinstance(answer, Exception):
                    assert isinstance(answer, FilterFull)
            errors = [answer for answer in answers if isinstance(answer, FilterFull)]
            assert len(errors) == len({*map(id, errors)})
            assert (await seen.info()).items <= 300 + shards * 40


async def test_a_full_mapping_refuses_many_tasks_in_few_calls(url: str, name: str) -> None:
    """Each member that has an id is counted."""
    with Proxy(url, lambda _: None) as counted:
        with DistinctCounter.from_url(url, "one", name) as before:
            before.add_many(MANY[:300])
        async with AsyncDistinctCounter.from_url(
            counted.url, "other", name, max_members=300
        ) as seen:
            answers = await asyncio.gather(*map(seen.add, MANY[:500]), return_exceptions=True)
            assert counted.calls <= 20
            assert [True] * 300 == answers[:300]
            assert {MappingFull} == {*map(type, answers[300:])}
            assert 300 == await seen.count()


@pytest.mark.parametrize("turn", range(8))
async def test_what_cancelled_tasks_have_claimed_is_free_again(
    url: str, name: str, turn: int
) -> None:
    """Whether their claims were sent or not. The next call of the same object gets them; and others, once the object is closed."""
    rng = random.Random(turn)
    async with AsyncTimeBloom.from_url(url, name) as other:
        async with AsyncTimeBloom.from_url(url, name) as seen:
            tasks = [asyncio.create_task(seen.claim(item)) for item in MANY[:200]]
            for _ in range(rng.randrange(1, 12)):
                await asyncio.sleep(0)
            cancelled = [
                item
                for item, task in zip(MANY, tasks, strict=False)
                if rng.random() < 0.5 and task.cancel()
            ]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert 200 - len(cancelled) == answers.count(NEW)
            half = cancelled[::2]
            if turn % 2:
                assert [NEW] * len(half) == await seen.claim_many(half)
            else:
                assert [NEW] * len(half) == await asyncio.gather(*map(seen.claim, half))
            late = [asyncio.create_task(seen.claim(item)) for item in MANY[200:400]]
            await asyncio.sleep(0)
            for task in late:
                task.cancel()
        assert [NEW] * 400 == await other.claim_many(MANY[:400])


class _Held(redis.asyncio.Redis):
    """Holds commits once ``go_on`` is set to an event."""

    go_on: asyncio.Event | None = None

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        if self.go_on and words[1] == Script("bloom/claims/commit").sha:
            await self.go_on.wait()
        return await super().execute_command(*words, **options)


@pytest.mark.parametrize("then", ["heartbeat", "aclose"])
async def test_what_cancelled_tasks_have_committed_is_seen(url: str, name: str, then: str) -> None:
    """Whether their commits were sent or not."""
    async with _Held.from_url(url) as client:
        seen = AsyncTimeBloom(client, name)
        items = MANY[:100]
        assert [NEW] * 100 == await seen.claim_many(items)
        client.go_on = asyncio.Event()
        tasks = [asyncio.create_task(seen.commit(item)) for item in items]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks[1:])
        client.go_on.set()
        assert await tasks[0]
        await (seen._send_heartbeat() if then == "heartbeat" else seen.aclose())
        async with AsyncTimeBloom.from_url(url, name) as other:
            assert all(await other.contains_many(items))
            assert [SEEN] * 100 == await other.claim_many(items)
        await seen.aclose()
