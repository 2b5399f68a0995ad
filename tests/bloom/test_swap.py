"""``swap``: a filter that was built under another name takes the place of a live one."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigError, ConfigMismatch, TBloomError, TimeBloom
from tests.helpers.contents import keys_of

FOREVER: dict[str, Any] = {"granularity": None, "capacity": 500, "error_rate": 1e-9, "shards": 1}
WINDOWS = [FOREVER, {**FOREVER, "granularity": "d", "slices": 3}]
OLD, BOTH, BUILT = ([f"{kind} {i}" for i in range(700)] for kind in ("old", "both", "built"))


@pytest.mark.parametrize("given", WINDOWS)
def test_the_other_filter_takes_the_place(
    client: redis.Redis, name: str, given: dict[str, Any]
) -> None:
    """For all clients; of the other name nothing is left, and the next one can be built under it."""
    live, same = (TimeBloom(client, name, cache_size=size, **given) for size in (5000, 0))
    for turn in ("first", "second"):
        live.add_many([*OLD, turn])
        assert Claim.NEW is same.claim(f"{turn} claim")
        with TimeBloom(client, f"{{{name}}}:new", **given) as built:
            built.add_many([*BOTH, *BUILT])
            assert Claim.NEW is built.claim("a")
        before = keys_of(client, name)
        assert any("}:new:" in key for key in before)
        live.swap(f"{{{name}}}:new")
        assert not any("}:new:" in key for key in keys_of(client, name))
        assert all(same.contains_many([*BOTH, *BUILT]))
        assert not any(live.contains_many([*OLD, turn]))
        assert (1400, ()) == (live.info().items, live.info().warnings)
        assert Claim.BUSY is TimeBloom(client, name, **given).claim(f"{turn} claim")
        assert [True, False] == [same.add(turn), live.add(turn)]
    if given is FOREVER:
        assert {-1} == {client.pttl(key) for key in keys_of(client, name)}
    else:
        assert all(client.pttl(key) > 0 for key in keys_of(client, name))


def test_a_part_that_is_dropped_after_a_swap_is_noticed(client: redis.Redis, name: str) -> None:
    TimeBloom(client, f"{{{name}}}:new", **FOREVER).add_many(BUILT)
    live = TimeBloom(client, name, **FOREVER)
    live.swap(f"{{{name}}}:new")
    client.delete(f"{{{name}}}:all:1")
    assert [f"the server has dropped {{{name}}}:all:1 early: what it held is forgotten"] == (
        live.warnings()
    )


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
