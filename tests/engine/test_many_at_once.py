"""Thousands of tasks, or hundreds of threads, call at once: each gets its answer, in few calls, and nothing is lost if some end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tbloom import AsyncTimeBloom, Claim, FilterFull, TimeBloom
from tbloom.arguments import fingerprint
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, EXACT

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


async def test_a_wait_for_others_counts_not_as_retries(url: str, name: str, driver: str) -> None:
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


class _Losing(Proxy):
    """Cuts the connections of calls about an item."""

    item = b""

    def _pick(self, data: bytes) -> Fault | None:
        is_lost = bool(self.item) and self.item in data
        self.struck[Fault.CUT_REQUEST] += is_lost
        return Fault.CUT_REQUEST if is_lost else None


@pytest.mark.parametrize("driver", ["sync", "async"])
async def test_a_call_that_is_tried_again_holds_up_no_other(
    url: str, name: str, driver: str
) -> None:
    """There is one connection."""
    with _Losing(url, lambda _: None) as proxy, _each(driver, 30) as each:
        own: dict[str, Any] = {"driver": driver, "retry_for": 600}
        seen = EXACT.open(f"{proxy.url}?max_connections=1", name, **own)
        await each(seen.contains, ["lost"])
        proxy.item = fingerprint(b"lost").to_bytes(16, "big")
        lost = asyncio.create_task(each(seen.expires, ["lost"]))
        while not proxy.struck[Fault.CUT_REQUEST]:  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0.001)
        assert [None] * 100 == await each(seen.expires, MANY[:100])
        assert not lost.done()
        proxy.item = b""
        assert [None] == await lost
        await _closed(seen)


@pytest.mark.check
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


@pytest.mark.parametrize(
    ("verb", "shards"),
    [
        ("add", 1),
        *(pytest.param(*each, marks=pytest.mark.check) for each in (("add", 3), ("commit", 1))),
    ],
)
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


@pytest.mark.parametrize(
    "turn", [0, 1, *(pytest.param(turn, marks=pytest.mark.check) for turn in range(2, 8))]
)
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
