"""From an item to its bits: uniform, independent, and computed by the client alone. (Fixed for ever: test_format.py.)"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.hasher import columns_of, digest, shard_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.tokens import LanePool
from tests.helpers.flows import keys_of
from tests.helpers.places import block_of

DIGESTS = [digest(f"https://example.com/{number}") for number in range(20_000)]
BUCKETS = 256
#: Chi-square over 256 buckets has a mean of 255 and a standard deviation of sqrt(2 * 255) = 22.6.
BOUND = 255 + 6 * math.sqrt(2 * 255)


def chi_square(buckets: list[int]) -> float:
    """How far counts over 256 buckets are from being equal."""
    expected, counts = len(buckets) / BUCKETS, Counter(buckets)
    assert all(0 <= bucket < BUCKETS for bucket in counts)
    return sum((counts[bucket] - expected) ** 2 / expected for bucket in range(BUCKETS))


def test_columns_block_and_shard_are_independent() -> None:
    """One of them says nothing about another: of each pair, sixteenths by sixteenths."""
    places = [
        [column >> 2 for column in columns_of(each, 2)] + [block_of(each, 16), shard_of(each, 16)]
        for each in DIGESTS
    ]
    for one, other in combinations(zip(*places, strict=True), 2):
        assert chi_square([16 * a + b for a, b in zip(one, other, strict=True)]) < BOUND


DIGEST = digest("an item")
COLUMNS = columns_of(DIGEST, 1)


def calls_of(client: redis.Redis, seen: TimeBloom) -> SliceCalls:
    """The calls that a client makes now that knows the filter's stored layout."""
    seen.add("the filter is stored")
    seconds, micros = client.time()
    layout = client.hget(seen.config.keys.state(0), "layout")
    return SliceCalls(
        seen.config, seconds * 1000 + micros // 1000, {0: Layout(seen.config, layout.decode())}
    )


@pytest.mark.usefixtures("away_from_midnight")
def test_no_script_computes_where_an_item_is(url: str, name: str) -> None:
    """The same item at other offsets: its bits are there, and nowhere else, also across blocks."""
    with redis.Redis.from_url(url) as client, TimeBloom(client, name, capacity=1000) as seen:
        calls, lanes, hashes = calls_of(client, seen), LanePool(), seen.config.hashes
        part = calls.shard(0).parts(1).keys[0]

        def bits() -> set[int]:
            data = client.get(part)
            return {i for i in range(8 * len(data)) if data[i // 8] & 128 >> i % 8}

        def answer(verb: str, start: int) -> bytes:
            batch = Batch([DIGEST], token=lanes.take())
            call = getattr(calls, verb)(*([] if verb == "commit" else [7]), batch)
            *args, items = call.words[3 + len(keys_of(call)) :]
            assert items[:16] == COLUMNS
            places = items[:16] + start.to_bytes(4, "little") + items[20:]
            _, answers, *_ = client.eval(
                call.script.text, len(keys_of(call)), *keys_of(call), *args, places
            )
            return bytes(answers)

        for verb, start in ("add", 0), ("add", 8 * hashes), ("commit", 999), ("add", 3001):
            before = bits()
            assert [b"0", b"1", b"1"] == [answer(v, start) for v in ("contains", verb, "contains")]
            assert bits() == before | {8 * start + 64 * row + COLUMNS[row] for row in range(hashes)}
            assert [b"0", b"0"] == [answer(v, start) for v in ("add", "commit")]
        assert "an item" not in seen
