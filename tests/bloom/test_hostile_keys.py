"""Values that another program has written into a filter's keys: a right answer, or an error that says why."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import ConfigMismatch, TimeBloom
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.stores import BLOOM

_SLICES = [b"", b"x", b"x" * 9, b"\xff" * 8, b"\0" * 10**6, b"\xff" * 10**6]


@pytest.mark.parametrize("value", _SLICES, ids=lambda value: f"{len(value)} {value[:1]!r}")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_slice_of_any_length_is_answered(own: redis.Redis, value: bytes, shards: int) -> None:
    for verb, call in PLANTED[BLOOM].verbs.items():
        PLANTED[BLOOM].filled(own, shards)
        for key in PLANTED[BLOOM].keys(own, "slice"):
            own.set(key, value)
        answer = call(PLANTED[BLOOM].open(own, shards))
        if verb == "info":
            assert 0 <= answer.slices[-1].fill_ratio <= 1 >= answer.error_rate >= 0


_ENTRIES: list[tuple[str | bytes, str | bytes]] = [
    *(("29990508", value) for value in ["", "x", "nan", "inf", "-1", "1e300", "0x1f", b"\xff"]),
    *(("29990508", value) for value in ["9" * 16, "9" * 5000, " 9", "9.5", "\u0661"]),
    *((part, "9" * 15) for part in ["", "x", b"\xff", "theirs", "\x1b[2J", "L", "Lane"]),
    *((part, "9" * 15) for part in ["29990508:x", "2999:1:1", "{other}:2999"]),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value"), _ENTRIES, ids=lambda text: ascii(text)[:24])
def test_a_field_of_the_state_that_is_none_is_left_out(
    own: redis.Redis, part: str | bytes, value: str | bytes
) -> None:
    """No verb fails or deletes another program's key; parts that were dropped are answered as ever."""
    seen = PLANTED[BLOOM].filled(own, 1)
    own.set("{planted}:theirs", "theirs")
    own.hset(seen.config.keys.state(), part, value)
    assert [] == seen.warnings()
    own.delete(*PLANTED[BLOOM].keys(own, "slice"))
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
    own.hset(keys.state(0), b"\xff", b"\xff")
    assert [] == await seen.warnings()
    own.hset(keys.claims(0), "d" * 16, b"0" * 16 + b"00000000" + b"0007" + b"the work\xff")
    own.hset(keys.sessions(0), b"\xff", "9" * 15)
    assert ["the work\ufffd"] == await seen.take_over()
    assert not any(await seen.add_many(ITEMS))
    for shard in range(shards):
        own.set(keys.config(shard), b"\xff")
    later = make(url=decoding, shards=shards)
    for verb in (later.add_many, later.contains_many):
        with pytest.raises(ConfigMismatch, match="stored"):
            await verb(map(str, range(100)))
