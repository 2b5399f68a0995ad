"""From one set of parameters to another, without forgetting the window."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import redis

from tbloom import ConfigMismatch, TimeBloom
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of, replies_to, run, script_of
from tests.helpers.making import Make

OLD = {"capacity": 500, "slices": 3, "error_rate": 1e-6}
CHANGES = {
    "larger": {"capacity": 5000},
    "smaller": {"capacity": 50},
    "stricter": {"error_rate": 1e-9},
    "fewer hashes": {"bits": 2**17, "hashes": 5},
    "explicit size": {"bits": 50_000, "hashes": 7},
    "longer window": {"slices": 5},
    "shorter window": {"slices": 2},
    "no growth": {"grow": False, "capacity": 5000},
    "no capacity": {"capacity": None},
}


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_live_filter_changes_without_forgetting(
    clockwork: Any, make: Make, change: str, shards: int
) -> None:
    """Items of three days are still seen, and leave with their slices; new ones go on as ever; the old client is refused."""
    old = make(url=clockwork.server.url, **OLD, shards=shards)
    for day in (3, 4, 5):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        assert all(await old.add_many(f"{day} {i}" for i in range(300)))
    new = make(url=clockwork.server.url, **{**OLD, **CHANGES[change]}, shards=shards)
    with pytest.raises(ConfigMismatch):
        await new.add("a")
    await new.reconfigure()
    await new.reconfigure()  # once more does no harm
    window = CHANGES[change].get("slices", 3)
    for day in (3, 4, 5):
        kept = day > 5 - window
        assert [kept] * 300 == await new.contains_many(f"{day} {i}" for i in range(300))
    assert all(await new.add_many(f"new {i}" for i in range(300)))
    assert not any(await new.add_many(f"new {i}" for i in range(300)))
    with pytest.raises(ConfigMismatch):
        await old.add("a")
    clockwork.set("2019-06-06 12:00:00")
    assert await new.contains("5 7") is True
    assert await new.contains("3 7") is (window == 5)
    assert await new.contains("new 7") is True
    assert await new.add("of the next day") is True
    clockwork.set("2019-06-08 12:00:00")
    assert await new.add("of another day")
    assert not clockwork.client.keys("*}:20190603*")


@pytest.mark.parametrize("fixed", [{"granularity": "h"}, {"tz": "Europe/Berlin"}, {"shards": 2}])
async def test_parameters_that_determine_where_items_are_cant_change(
    make: Make, fixed: dict[str, Any]
) -> None:
    seen = make(shards=1)
    await seen.add("a")
    with pytest.raises(ConfigMismatch) as caught:
        await make(**{"shards": 1, "capacity": 99, **fixed}).reconfigure()
    assert fixed.keys() == caught.value.differences.keys()
    assert await seen.add("a") is False


@pytest.mark.parametrize(
    "then",
    [
        "again",
        "clear",
        *(pytest.param(t, marks=pytest.mark.check) for t in ("another", "old clear")),
    ],
)
def test_a_reconfigure_that_ends_half_way_can_be_called_again(
    name: str, client: redis.Redis, then: str
) -> None:
    """Stopped after each of its steps, as by a crash. Until then nobody gets a wrong answer; clear() works as ever."""
    items, step = [f"item {i}" for i in range(50)], 0

    def opened(capacity: int) -> TimeBloom:
        return TimeBloom(client, f"{name}-{step}", shards=3, capacity=capacity, error_rate=1e-9)

    for step in range(1, 12):
        old, new, another = (opened(capacity) for capacity in (100, 200, 300))
        assert all(old.add_many(items))
        flow = flow_of(opened(200), "reconfigure")
        try:
            calls = next(flow)
            for _ in range(step):
                calls = flow.send(replies_to(client, calls))
        except StopIteration:
            break
        flow.close()
        for seen in (old, new):
            with suppress(ConfigMismatch):
                assert not any(seen.add_many(items))
        if "clear" in then:
            (old if then == "old clear" else new).clear()
            assert all(another.add_many(items))
        else:
            changed = new if then == "again" else another
            changed.reconfigure()
            assert [False] * 50 + [True] == changed.add_many([*items, "fresh"])
            with pytest.raises(ConfigMismatch):
                old.add("a")
    assert step > 6


async def test_a_filter_still_works_after_its_root_key_was_dropped(
    make: Make, client: redis.Redis, name: str
) -> None:
    """A client with other parameters is refused by the shards."""
    old, new = ({"shards": 3, "capacity": capacity, "error_rate": 1e-9} for capacity in (100, 200))
    items = [f"item {i}" for i in range(50)]
    await make(**old).add_many(items)
    client.delete(f"{{{name}}}:config")
    assert not any(await make(**old).add_many(items))
    client.delete(f"{{{name}}}:config")
    with pytest.raises(ConfigMismatch):
        await make(**new).add_many(items)
    await make(**old).reconfigure()
    assert not any(await make(**old).add_many(items))


def test_a_filter_that_is_cleared_meanwhile_stays_cleared(client: redis.Redis, name: str) -> None:
    old, ours = (TimeBloom(client, name, **{**OLD, "capacity": size}) for size in (500, 50))
    old.add("a")
    flow = flow_of(ours, "reconfigure")
    calls = next(flow)
    while "bloom/reconfigure" not in map(script_of, calls):
        calls = flow.send(replies_to(client, calls))
    old.clear()
    run(client, flow, replies_to(client, calls))
    assert [] == keys_of(client, name)
