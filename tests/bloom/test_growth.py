"""What happens when a slice holds more than it was made for."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from typing import Any

import pytest
import redis

from tbloom import Claim, FilterFull, TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.layout import Layout
from tests.helpers.flows import flow_of, replies_to, run, script_of
from tests.helpers.making import Make
from tests.helpers.proxy import LossyProxy, every

SPAWN = multiprocessing.get_context("spawn")


@pytest.mark.parametrize(
    ("items", "others", "limit"),
    [
        (100_000, 100_000, 1.1e-4 + 2 * 3.2e-5),  # two standard deviations for the fewer queries
        pytest.param(300_000, 500_000, 1.1e-4, marks=pytest.mark.check),
    ],
)
def test_an_estimate_100_times_too_small_keeps_the_error_rate(
    url: str, name: str, items: int, others: int, limit: float
) -> None:
    """Made for a hundredth of the items that a slice gets: rate, no false negative, memory <= 1.65 x."""
    parameters = {"slices": 1, "error_rate": 1e-4}
    with TimeBloom.from_url(url, f"{name}-right", capacity=items, **parameters) as right:
        right.add("its keys are made at their full size")
        bytes_of_right = right.info().bytes
        right.clear()
    with TimeBloom.from_url(url, name, capacity=items // 100, **parameters) as seen:
        for start in range(0, items, 100_000):
            seen.add_many(f"added {i}" for i in range(start, start + 100_000))
        # Every seventh item: some of each part, and of the seams between them.
        assert all(seen.contains_many(f"added {i}" for i in range(0, items, 7)))
        wrong = sum(seen.contains_many(f"other {i}" for i in range(others))) / others
        info = seen.info()
        seen.clear()
    ratio = info.bytes / bytes_of_right
    print(f"measured {wrong:.3g} of 1e-4; memory {ratio:.2f} x")
    assert items * 0.999 < info.items <= items
    assert info.slices[-1].parts == 7
    assert wrong <= limit
    assert ratio <= 1.65


def _claim(url: str, name: str, seed: int) -> list[str]:
    items = [f"item {i}" for i in range(10_000)]
    items = items[seed * 997 :] + items[: seed * 997]
    with TimeBloom.from_url(url, name, capacity=100, error_rate=1e-6) as seen:
        claimed = []
        for start in range(0, len(items), 250):
            some = items[start : start + 250]
            claimed += [item for item, new in zip(some, seen.add_many(some), strict=True) if new]
            claimed += [item for item in some[:5] if seen.add(item)]
    return claimed


@pytest.mark.parametrize("replies_lost", [False, pytest.param(True, marks=pytest.mark.check)])
def test_among_many_processes_each_item_is_new_once_while_the_slice_grows(
    url: str, name: str, *, replies_lost: bool
) -> None:
    """4 processes, 10,000 items, a filter made for 100: it grows 7 times under their hands."""
    with (
        LossyProxy(url, every(10) if replies_lost else lambda _: False) as proxy,
        SPAWN.Pool(4) as pool,
    ):
        claims = pool.starmap(_claim, [(proxy.url, name, seed) for seed in range(4)])
    times = Counter(item for claimed in claims for item in claimed)
    assert {1} == set(times.values())
    assert len(times) >= 9_998
    with TimeBloom.from_url(url, name, capacity=100, error_rate=1e-6) as seen:
        info = seen.info()
        assert (len(times), 7) == (info.items, info.slices[-1].parts)


async def test_a_part_never_holds_more_than_its_capacity(
    make: Make, client: redis.Redis, name: str
) -> None:
    seen = make(capacity=100, shards=1)
    await seen.add_many(f"item {i}" for i in range(1000))
    label = (await seen.info()).slices[-1].label
    parts = Layout(configure(name, capacity=100), client.get(f"{{{name}}}:layout")).parts(label)
    counts = [
        client.bitfield(f"{{{name}}}:{label}" + (f":{i}" if i else "")).get("u48", 0).execute()[0]
        for i in range(len(parts))
    ]
    assert [100, 200, 400] == counts[:3]
    assert [100, 200, 400, 800] == [part.capacity for part in parts]
    assert 998 <= sum(counts) <= 1000


async def test_a_server_that_comes_back_without_its_last_changes_has_other_versions(
    make: Make, client: redis.Redis, name: str
) -> None:
    """A client knows a growth that the server has lost; another client makes another one."""
    ours, theirs = (make(capacity=50, slices=3, error_rate=1e-9, shards=1) for _ in range(2))
    items, others = ([f"{kind} {i}" for i in range(60)] for kind in ("item", "other"))
    await ours.add_many(items[:10])
    kept = {key: client.dump(key) for key in client.keys(f"{{{name}}}:*")}
    await ours.add_many(items)
    before = client.get(f"{{{name}}}:layout")
    client.delete(*client.keys(f"{{{name}}}:*"))
    for key, value in kept.items():
        client.restore(key, 600_000, value)
    older = (await theirs.info()).slices[0].label
    assert await theirs.import_many(others, older) == 60
    assert before.partition(";")[0] != client.get(f"{{{name}}}:layout").partition(";")[0]
    await ours.add_many(items)
    assert all(await theirs.contains_many([*items, *others]))
    assert all(await ours.contains_many([*items, *others]))


@pytest.mark.parametrize(("capacity", "number"), [(50, 500), (1, 5000)])
async def test_a_batch_that_fills_a_part_is_answered_to_the_end(
    make: Make, capacity: int, number: int
) -> None:
    """Also if it fills a dozen of them."""
    seen = make(capacity=capacity, error_rate=1e-9)
    items = [f"item {i}" for i in range(number)]
    assert [True] * number + [False] * number == await seen.add_many([*items, *items])
    assert [False] * number == await seen.add_many(items)


async def test_a_slice_begins_as_large_as_the_last_one_became(clockwork: Any, make: Make) -> None:
    """New slices start from what the last ones needed, and shrink again with the crawl."""
    seen = make(url=clockwork.server.url, capacity=100, slices=3, error_rate=1e-6)
    parts, sizes = [], []
    for day, items in enumerate([900, 900, 100, 100, 100], 3):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        assert all(await seen.add_many(f"{day} {i}" for i in range(items)))
        newest = (await seen.info()).slices[-1]
        assert items == newest.items
        parts.append(newest.parts)
        sizes.append(newest.bytes)
        assert not any(await seen.add_many(f"{day} {i}" for i in range(items)))
    assert [4, 1] == parts[:2]  # 100 + 200 + 400 + 800, then 1600 at once
    assert sizes[-1] < sizes[1] / 5


async def test_without_growth_a_full_slice_refuses_new_items(make: Make, name: str) -> None:
    seen = make(capacity=100, grow=False, error_rate=1e-9)
    items = [f"item {i}" for i in range(100)]
    assert all(await seen.add_many(items))
    assert await seen.add("item 7") is False
    assert await seen.contains("item 8") is True
    for _ in range(2):
        with pytest.raises(
            FilterFull, match=f"filter '{name}': .* capacity of 100 items"
        ) as caught:
            await seen.add("one more")
        assert (name, 100) == (caught.value.name, caught.value.capacity)
    assert await seen.contains("one more") is False
    assert (await seen.info()).items == 100


async def test_an_item_answered_new_after_a_full_slice_is_new_once(make: Make) -> None:
    """An item of a call that ended in FilterFull is new once, also if a later call with another of these
    items ends so too."""
    seen = make(capacity=10, grow=False, error_rate=1e-9)
    items = [f"item {i}" for i in range(12)]
    with pytest.raises(FilterFull):
        await seen.add_many(items)
    assert [True, False] == [await seen.add(items[0]), await seen.add(items[0])]
    with pytest.raises(FilterFull):
        await seen.add_many([items[1], "another"])
    assert [False, True, False] == [await seen.add(items[i]) for i in (0, 1, 1)]
    assert [False, False, *[True] * 8] == await seen.add_many(items[:10])


async def test_who_asks_or_claims_looks_into_a_new_part(make: Make) -> None:
    """A client that knows the first part only learns of the others by any question."""
    seen = make(capacity=10, error_rate=1e-9)
    items = [f"item {i}" for i in range(40)]
    for verb, answer in (("contains_many", True), ("claim_many", Claim.SEEN)):
        await seen.clear()
        other = make(capacity=10, error_rate=1e-9)
        await other.contains("a")
        await seen.add_many(items)
        assert [answer] * 40 == await getattr(other, verb)(items)


def test_a_slice_that_another_client_has_begun_meanwhile_gets_no_further_part(
    clockwork: Any, name: str
) -> None:
    """Both have counted what the last slice held; the other one has begun the next, and added to it."""
    url, parameters = clockwork.server.url, {"capacity": 10, "error_rate": 1e-9}
    with (
        TimeBloom.from_url(url, name, **parameters) as seen,
        TimeBloom.from_url(url, name, **parameters) as other,
        redis.Redis.from_url(url) as client,
    ):
        seen.add_many(f"item {i}" for i in range(40))
        clockwork.set("2019-06-04 12:00:00")
        assert seen.contains("item 7")
        beginning = flow_of(seen, "add_many", ["a"], None)
        calls = next(beginning)
        while not script_of(calls[0]).endswith("begin_slice"):
            calls = beginning.send(replies_to(client, calls))
        assert other.add("b")
        answers, _ = run(client, beginning, replies_to(client, calls))
        assert [True] == answers
        assert 1 == seen.info().slices[-1].parts


async def test_a_call_has_no_more_items_where_the_client_learns_of_parts(
    make: Make, client: redis.Redis
) -> None:
    """A client that asks for the first time does not know that slices have grown: its calls are split."""
    parameters = {"slices": 1, "capacity": 20}
    seen = make(**parameters)
    await seen.add_many(f"old {i}" for i in range(20_000))
    parts = (await seen.info()).slices[-1].parts
    fresh, items = make(**parameters), [f"new {i}" for i in range(2000)]
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert await fresh.contains_many(items) == [False] * 2000
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls
    assert 2000 / (1000 // (parts + 5)) <= calls
    assert await fresh.contains_many(f"old {i}" for i in range(20_000)) == [True] * 20_000
