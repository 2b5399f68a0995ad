"""Keys that another program has planted in a store's places: each verb answers, or an error says why."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TBloomError
from tests.helpers.contents import snapshot
from tests.helpers.hostile import ITEMS, LABEL, PLANTED, Planted
from tests.helpers.making import Make
from tests.helpers.stores import BLOOM, DISTINCT

pytestmark = pytest.mark.usefixtures("away_from_midnight")
#: These change one key after the other.
_IN_STEPS = {"clear", "clear_mapping", "reconfigure"}
each_store = pytest.mark.parametrize("planted", PLANTED.values(), ids=str)
each_number_of_shards = pytest.mark.parametrize("shards", [1, 3])


def _plant_lists(own: redis.Redis, keys: list[str]) -> None:
    for key in keys:
        own.delete(key)
        own.rpush(key, "theirs")


@pytest.mark.parametrize(
    ("planted", "part"),
    [(planted, part) for planted in PLANTED.values() for part in planted.parts],
    ids=str,
)
@each_number_of_shards
def test_a_key_of_another_type_is_named_and_left_alone(
    own: redis.Redis, planted: Planted, part: str, shards: int
) -> None:
    """A verb that does not read such a key minds none."""
    for verb, call in planted.verbs.items():
        planted.filled(own, shards)
        keys = planted.keys(own, part)
        _plant_lists(own, keys)
        seen, before = planted.open(own, shards), snapshot(own, lanes=False)
        if verb in planted.parts[part][1]:
            call(seen)
            continue
        with pytest.raises(redis.ResponseError, match=r"WRONGTYPE .* a key of {planted"):
            call(seen)
        assert [b"list"] * len(keys) == [own.type(key) for key in keys]
        assert verb in _IN_STEPS or before == snapshot(own, lanes=False)


_NO_CONFIGS = [
    *("not JSON", "", "[]", "null", "7", '"x"', "{}", '{"kind":"exact"}', "9" * 5000, b"\xff\xfe"),
    *("[" * 10**5, '{"a":' * 10**5, "{" * 10**6),
]


@each_store
@pytest.mark.parametrize("text", _NO_CONFIGS, ids=lambda text: ascii(text)[:16])
def test_a_config_that_is_none_is_refused(
    own: redis.Redis, planted: Planted, text: str | bytes
) -> None:
    for shards in (1, 3):
        for call in planted.verbs.values():
            planted.filled(own, shards)
            for key in planted.keys(own, "config"):
                own.set(key, text)
            before = snapshot(own, lanes=False)
            with pytest.raises((ConfigMismatch, ConfigError), match="planted"):
                call(planted.open(own, shards))
            assert before == snapshot(own, lanes=False)


@pytest.mark.parametrize(
    ("planted", "text"),
    [(planted, text) for planted in PLANTED.values() for text in planted.no_layouts],
    ids=lambda given: str(given) if isinstance(given, Planted) else ascii(given)[:20],
)
def test_a_layout_that_is_none_is_refused(
    own: redis.Redis, planted: Planted, text: str | bytes
) -> None:
    """A filter can be cleared once the key is deleted; an exact filter and a mapping as they are."""
    if isinstance(text, str):
        text = text.replace("{}", LABEL)
    for shards in (1, 3):
        for verb, call in planted.verbs.items():
            planted.filled(own, shards)
            keys = planted.keys(own, "state" if planted.store is BLOOM else "layout")
            for key in keys:
                if planted.store is BLOOM:
                    own.hset(key, "layout", text)
                else:
                    own.set(key, text)
            seen, before = planted.open(own, shards), snapshot(own, lanes=False)
            if verb in planted.without_layout:
                call(seen)
            else:
                with pytest.raises(TBloomError, match="planted") as caught:
                    call(seen)
                named = [key for key in keys if repr(key) in str(caught.value)]
                assert named or planted.store is DISTINCT
                assert verb in _IN_STEPS or before == snapshot(own, lanes=False)
        if planted.store is BLOOM:
            own.delete(*keys)
        seen.clear(**({"mapping": True} if planted.store is DISTINCT else {}))
        assert all(seen.add_many(ITEMS))


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
