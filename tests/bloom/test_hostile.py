"""Names, arguments and stored values from anywhere: a right answer, or an error that says why. (Items: test_hostile_items.py.)"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tbloom import AsyncTimeBloom, ConfigError, ConfigMismatch, TimeBloom
from tbloom.engine.keys import Keys
from tests.helpers.hostile import ITEMS, PLANTED, anything, refused
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


def _all_keys(name: str, shards: int) -> set[str]:
    keys = Keys(name, shards)
    made = {keys.root}
    for shard in range(shards):
        made |= {keys.config(shard), keys.layout(shard), keys.lanes(shard) + "0123456789abcdef:0"}
        made |= {keys.slice("20190508", shard, part) for part in (0, 1)}
    return made


@given(st.text("ab:.01", min_size=1, max_size=6), st.text("ab:.01", min_size=1, max_size=6))
@example("a", "a:config")
@example("a", "a:layout")
@example("a", "a:lane:0123456789abcdef:0")
@example("a", "a:20190508:1")
@example("a", "a:0")
def test_two_names_share_no_key(one: str, other: str) -> None:
    """Whatever their shards: also if one has the name of a shard of the other."""
    assume(one != other)
    for shards in (1, 2, 9):
        for tag in {key[1 : key.index("}")] for key in _all_keys(one, shards)} - {one}:
            with suppress(ConfigError):  # a tag that can't be a name is as good
                assert not _all_keys(tag, 1) & _all_keys(one, shards)
        for others in (1, 2, 9):
            assert not _all_keys(one, shards) & _all_keys(other, others)


@given(anything)
def test_any_within_is_a_number_of_slices_or_a_config_error(within: Any) -> None:
    assume(within is not None and (type(within) is not int or not 1 <= within <= 7))
    seen = TimeBloom(redis.Redis(port=1), "fuzzed")
    for verb in (seen.add, seen.contains):
        assert "within" == refused(partial(verb, "a", within=within))


_BAD_URLS = [
    *("redis://127.0.0.1:abc", "redis://127.0.0.1:99999", "redis://[::1", "redis://127.0.0.1?db=x"),
    *("redis+cluster://127.0.0.1:abc", "redis://127.0.0.1?max_connections=-3"),
    *("redis://127.0.0.1?protocol=x", "redis://127.0.0.1?socket_timeout=x"),
    "redis://127.0.0.1?nonsense=1",
]


@pytest.mark.parametrize(
    "url", ["", "redis:", "redis://h\n", "//", 5, None, b"redis://h", "x" * 9999, *_BAD_URLS]
)
@pytest.mark.parametrize("ours", [TimeBloom, AsyncTimeBloom])
def test_what_is_no_url_is_refused(ours: Any, url: Any) -> None:
    assert "url" == refused(lambda: ours.from_url(url, "fuzzed"))
