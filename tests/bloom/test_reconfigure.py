"""From one set of parameters to another, without forgetting the window; and ``swap``: another filter takes a live one's place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigError, ConfigMismatch, TBloomError, TimeBloom
from tests.helpers import servers
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of, replies_to, run, script_of
from tests.helpers.localredis import MAIN
from tests.helpers.making import Make

OLD = {"capacity": 500, "slices": 3, "error_rate": 1e-6}
CHANGES = {
    "larger": {"capacity": 5000},
    "smaller": {"capacity": 50},
    "stricter": {"error_rate": 1e-9},
    "fewer hashes": {"hashes": 5},
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
async def test_what_items_are_found_by_cant_change_in_place(
    make: Make, fixed: dict[str, Any]
) -> None:
    seen = make(shards=1)
    await seen.add("a")
    with pytest.raises(ConfigMismatch) as caught:
        await make(**{"shards": 1, "capacity": 99, **fixed}).reconfigure()
    assert fixed.keys() == caught.value.differences.keys()
    assert await seen.add("a") is False


@pytest.mark.parametrize("then", ["again", "another", "clear", "old clear"])
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


async def test_a_filter_whose_root_was_dropped_goes_on(
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


def test_a_filter_that_is_cleared_meanwhile_is_not_made_anew(
    client: redis.Redis, name: str
) -> None:
    old, ours = (TimeBloom(client, name, **{**OLD, "capacity": size}) for size in (500, 50))
    old.add("a")
    flow = flow_of(ours, "reconfigure")
    calls = next(flow)
    while "bloom/reconfigure" not in map(script_of, calls):
        calls = flow.send(replies_to(client, calls))
    old.clear()
    run(client, flow, replies_to(client, calls))
    assert [] == keys_of(client, name)


FOREVER: dict[str, Any] = {"granularity": None, "capacity": 500, "error_rate": 1e-9, "shards": 1}
WINDOWS = [FOREVER, {**FOREVER, "granularity": "d", "slices": 3}]
REPLACED, BOTH, BUILT = ([f"{kind} {i}" for i in range(700)] for kind in ("old", "both", "built"))


@pytest.mark.parametrize("given", WINDOWS)
def test_the_other_filter_takes_the_place(
    client: redis.Redis, name: str, given: dict[str, Any]
) -> None:
    """For all clients; of the other name nothing is left, and the next one can be built under it."""
    live, same = (TimeBloom(client, name, cache_size=size, **given) for size in (5000, 0))
    for turn in ("first", "second"):
        live.add_many([*REPLACED, turn])
        assert Claim.NEW is same.claim(f"{turn} claim")
        with TimeBloom(client, f"{{{name}}}:new", **given) as built:
            built.add_many([*BOTH, *BUILT])
            assert Claim.NEW is built.claim("a")
        before = keys_of(client, name)
        assert any("}:new:" in key for key in before)
        live.swap(f"{{{name}}}:new")
        assert not any("}:new:" in key for key in keys_of(client, name))
        assert all(same.contains_many([*BOTH, *BUILT]))
        assert not any(live.contains_many([*REPLACED, turn]))
        assert (1400, ()) == (live.info().items, live.info().warnings)
        assert Claim.BUSY is TimeBloom(client, name, **given).claim(f"{turn} claim")
        assert [True, False] == [same.add(turn), live.add(turn)]
    if given is FOREVER:
        assert {-1} == {client.pttl(key) for key in keys_of(client, name)}
    else:
        assert all(client.pttl(key) > 0 for key in keys_of(client, name))


def test_what_can_not_be_swapped_is_refused_and_changes_nothing(
    client: redis.Redis, name: str
) -> None:
    live, own = TimeBloom(client, name, **FOREVER), f"{{{name}}}:new"
    live.add("a")
    with pytest.raises(TBloomError, match=r"^there is no filter"):
        live.swap(own)
    for wrong in (name, f"{name}-new", f"{{{name}x}}:new", f"{{{name}}}", "", None):
        with pytest.raises(ConfigError, match=r"^name: expected "):
            live.swap(wrong)
    with pytest.raises(ConfigError, match=r"^shards: expected 1"):
        TimeBloom(client, f"{name}3", **{**FOREVER, "shards": 3}).swap(f"{{{name}3}}:new")
    other = TimeBloom(client, own, **{**FOREVER, "capacity": 600})
    other.add("b")
    with pytest.raises(ConfigMismatch, match="capacity"):
        live.swap(own)
    assert ([True, False], True) == (live.contains_many(["a", "b"]), other.contains("b"))


@pytest.mark.parametrize("cluster", [MAIN], indirect=True)
def test_a_swap_on_a_cluster(cluster: servers.Cluster, name: str) -> None:
    with TimeBloom.from_url(cluster.url, name, **FOREVER) as live:
        live.add_many(REPLACED)
        with TimeBloom.from_url(cluster.url, f"{{{name}}}:new", **FOREVER) as built:
            built.add_many(BUILT)
        live.swap(f"{{{name}}}:new")
        assert (True, False) == (all(live.contains_many(BUILT)), any(live.contains_many(REPLACED)))
