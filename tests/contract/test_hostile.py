"""Keys that another program has planted in a store's places: each verb answers, or an error says why."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TBloomError
from tests.helpers.contents import snapshot
from tests.helpers.hostile import LABEL, PLANTED, Planted
from tests.helpers.making import Make

pytestmark = pytest.mark.usefixtures("away_from_midnight")
#: These change one key after the other.
_IN_STEPS = {"clear", "clear_mapping", "reconfigure"}
each_number_of_shards = pytest.mark.parametrize("shards", [1, 3])
_NO_CONFIGS: list[str | bytes] = [
    *("not JSON", "", "[]", "null", "7", '"x"', "{}", '{"kind":"exact"}', "9" * 5000, b"\xff\xfe"),
    *("[" * 10**5, '{"a":' * 10**5, "{" * 10**6),
]
#: A store, a part of it, and what another program has written there; None: a list.
_WRITTEN = [
    (planted, part, value)
    for planted in PLANTED.values()
    for part in planted.parts
    for value in [
        None,
        *(_NO_CONFIGS if part == "config" else ()),
        *(planted.no_layouts if part in ("state", "layout") else ()),
    ]
]


def _write(own: redis.Redis, key: str, value: str | bytes | None) -> None:
    if value is not None and key.endswith(":state"):
        own.hset(key, "layout", value)
    elif value is not None:
        own.set(key, value)
    else:
        own.delete(key)
        own.rpush(key, "theirs")


@pytest.mark.parametrize(("planted", "part", "value"), _WRITTEN, ids=lambda it: ascii(it)[:20])
@each_number_of_shards
def test_what_another_program_has_written_is_named_and_left_alone(
    own: redis.Redis, planted: Planted, part: str, value: str | bytes | None, shards: int
) -> None:
    """A verb that does not read such a key minds none."""
    unconcerned = planted.parts[part][1]
    if value is not None:
        unconcerned = planted.without_layout if part != "config" else set()
    if isinstance(value, str):
        value = value.replace("{}=", f"{LABEL}=")
    for verb, call in planted.verbs.items():
        planted.filled(own, shards)
        keys = planted.keys(own, part)
        for key in keys:
            _write(own, key, value)
        types = [own.type(key) for key in keys]
        seen, before = planted.open(own, shards), snapshot(own, lanes=False)
        if verb in unconcerned:
            call(seen)
            continue
        with pytest.raises((redis.ResponseError, TBloomError), match="planted"):
            call(seen)
        assert types == [own.type(key) for key in keys]
        assert verb in _IN_STEPS or before == snapshot(own, lanes=False)


@each_number_of_shards
async def test_stores_of_other_kinds_refuse_each_other(
    make_counter: Make, make: Make, make_exact: Make, client: redis.Redis, name: str, *, shards: int
) -> None:
    makes = partial(make, shards=shards), partial(make_exact, shards=shards), make_counter
    for first, second in permutations(makes, 2):
        seen, other = first(), second()
        await seen.add("a")
        before = snapshot(client, name)
        if second is make_counter:
            verbs = [other.count, other.info, other.clear, partial(other.clear, mapping=True)]
        else:
            verbs = [partial(other.contains, "a")]
            others = [other.reconfigure] if second is makes[0] else []
            for refused in [other.info, other.clear, *others]:
                with pytest.raises((ConfigMismatch, ConfigError), match=r"exact|mapping|kind"):
                    await refused()
        for refused in [partial(other.add, "a"), *verbs]:
            with pytest.raises(ConfigMismatch, match="kind is ") as caught:
                await refused()
            assert "kind" in caught.value.differences
            assert name == caught.value.name
        assert before == snapshot(client, name)
        assert not await seen.add("a")
        await (seen.clear(mapping=True) if first is make_counter else seen.clear())
