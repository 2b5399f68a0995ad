"""Values that another program has written into a filter's keys: a right answer, or an error that says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import ConfigMismatch, TBloomError, TimeBloom
from tests.helpers.hostile import ITEMS, LABEL, PLANTED
from tests.helpers.stores import BLOOM

VERBS = PLANTED[BLOOM].verbs


def _filter(client: Any, shards: int = 1, capacity: int = 500) -> TimeBloom:
    return TimeBloom(client, "planted", granularity="m", capacity=capacity, shards=shards)


def _filled(own: redis.Redis, shards: int = 1) -> TimeBloom:
    own.flushall()
    seen = _filter(own, shards)
    seen.add_many(ITEMS)
    return seen


def _keys(seen: TimeBloom, kind: str) -> list[str]:
    """The keys of one kind: of every shard, so that each item's is among them."""
    keys, shards = seen.config.keys, range(seen.config.shards)
    return {
        "config": lambda: [keys.root],
        "copy": lambda: [keys.config(shard) for shard in shards],
        "layout": lambda: [keys.layout(shard) for shard in shards],
        "slice": lambda: [keys.slice(LABEL, shard) for shard in shards],
    }[kind]()


def _plant(seen: TimeBloom, kind: str, value: str | bytes) -> list[str]:
    keys = _keys(seen, kind)
    for key in keys:
        seen.client.set(key, value)
    return keys


def _ends_clearly(verb: str, seen: TimeBloom) -> Any:
    """What the verb answers, or the error; any error but tbloom's and redis-py's fails the test."""
    try:
        return VERBS[verb](seen)
    except (TBloomError, redis.RedisError) as error:
        return error


def _each_verb(own: redis.Redis, kind: str, value: str | bytes) -> Iterator[tuple[str, Any]]:
    for shards in (1, 3):
        for verb in VERBS:
            _plant(_filled(own, shards), kind, value)
            yield verb, _ends_clearly(verb, _filter(own, shards))


_SLICES = [b"", b"x", b"x" * 9, b"\xff" * 8, b"\0" * 10**6, b"\xff" * 10**6]


@pytest.mark.parametrize("value", _SLICES, ids=lambda value: f"{len(value)} {value[:1]!r}")
def test_a_slice_of_any_length_ends_clearly(own: redis.Redis, value: bytes) -> None:
    for verb, outcome in _each_verb(own, "slice", value):
        assert not isinstance(outcome, Exception), (verb, outcome)
        if verb == "info":
            assert 0 <= outcome.slices[-1].fill_ratio <= 1 >= outcome.error_rate >= 0


_ENTRIES: list[tuple[str | bytes, str | bytes]] = [
    *(("{planted}:20190508", value) for value in ["", "x", "nan", "inf", "-1", "1e300", "0x1f", b"\xff"]),
    *(("{planted}:20190508", value) for value in ["9" * 16, "9" * 5000, " 9", "9.5", "\u0661"]),
    *((part, "9" * 15) for part in ["", "x", b"\xff", "{planted}:", "{planted}:theirs", "\x1b[2J"]),
    *((part, "9" * 15) for part in ["{planted}:20190508:x", "{planted}:2019:1:1", "{other}:2019"]),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value"), _ENTRIES, ids=lambda text: ascii(text)[:24])
def test_an_entry_of_the_register_that_is_none_is_left_out(
    own: redis.Redis, part: str | bytes, value: str | bytes
) -> None:
    """No verb fails or deletes another program's key; parts that were dropped are answered as ever."""
    seen = _filled(own)
    own.set("{planted}:theirs", "theirs")
    own.hset(seen.config.keys.register(), part, value)
    assert [] == seen.warnings()
    own.delete(*_keys(seen, "slice"))
    assert all("the server has dropped {planted}:" in warning for warning in seen.warnings())
    seen.add_many(ITEMS)
    assert [] == seen.warnings()
    seen.clear()
    assert own.get("{planted}:theirs")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("callers", [False, True])
async def test_bytes_that_are_no_text_are_no_error_of_a_client_that_decodes(
    own: redis.Redis, name: str, make: Any, callers: bool, shards: int
) -> None:
    """Of tbloom's own client, and of a caller's."""
    url = f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}"
    decoding = f"{url}?decode_responses=True"
    seen = make(url=decoding, shards=shards)
    if callers:
        seen = BLOOM.awaited(decoding, name, callers=True, shards=shards)
    assert all(await seen.add_many(ITEMS))
    keys = TimeBloom(own, name, shards=shards).config.keys
    own.hset(keys.register(0), b"\xff", b"\xff")
    assert [] == await seen.warnings()
    own.hset(keys.claims(0), "d" * 16, b"0" * 16 + b"00000000" + b"0007" + b"the work\xff")
    own.hset(keys.sessions(0), b"\xff", "9" * 15)
    assert ["the work\ufffd"] == await seen.take_over()
    assert not any(await seen.add_many(ITEMS))
    for shard in range(shards):
        own.set(keys.config(shard), b"\xff")
    for verb in (seen.add_many, seen.contains_many):
        with pytest.raises(ConfigMismatch, match="stored"):
            await verb(map(str, range(100)))
