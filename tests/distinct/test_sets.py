"""Sets of members, against pyroaring; and bitmaps in Roaring's portable format, read and changed by ClickHouse."""

from __future__ import annotations

import operator
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import reduce
from importlib.util import find_spec
from itertools import count, product
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from tbloom import ConfigError, TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.distinct.sets import SetVerbs
from tests.helpers.flows import run
from tests.helpers.making import Make

CHUNK = 65_536
OPERATORS = {"|": operator.or_, "&": operator.and_, "-": operator.sub, "^": operator.xor}
#: Chunks at both ends of the first piece, in others, and at the end of all ids.
_CHUNKS = (0, 1, 4095, 4096, 40_000, 65_535)
_low = st.integers(0, CHUNK - 1)
#: Ids of a chunk: few; a run; a pattern too dense for a list; all but one; all.
_shape = st.one_of(
    st.sets(_low, max_size=20),
    st.tuples(_low, st.integers(1, CHUNK)).map(
        lambda run: range(run[0], min(CHUNK, run[0] + run[1]))
    ),
    st.tuples(_low, st.sampled_from([2, 3, 15, 16, 17])).map(
        lambda start: range(start[0], CHUNK, start[1])
    ),
    _low.map(lambda low: BitMap(range(CHUNK)) - BitMap([low])),
    st.just(range(CHUNK)),
)
_ids = st.dictionaries(st.sampled_from(_CHUNKS), _shape, max_size=3).map(
    lambda chunks: BitMap(chunk * CHUNK + low for chunk, lows in chunks.items() for low in lows)
)
_tree = st.recursive(
    st.integers(0, 2),
    lambda inner: st.tuples(st.sampled_from([*OPERATORS]), inner, inner),
    max_leaves=6,
)
_numbers = count()


def value(tree: Any, leaves: list[Any]) -> Any:
    """The value of an expression."""
    if isinstance(tree, int):
        return leaves[tree]
    operation, left, right = tree
    return OPERATORS[operation](value(left, leaves), value(right, leaves))


@pytest.mark.check
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counted=st.tuples(_ids, _ids, _ids),
    more=st.sets(st.sampled_from(_CHUNKS).flatmap(lambda n: _low.map(lambda low: n * CHUNK + low))),
    trees=st.lists(_tree, min_size=2, max_size=4),
)
def test_sets_answer_as_bitmaps_of_pyroaring(
    url: str, name: str, counted: tuple[BitMap, ...], more: set[int], trees: list[Any]
) -> None:
    """Few ids, runs, dense chunks, also after adds and discards, in any expression."""
    with redis.Redis.from_url(url) as client:
        own = [DistinctCounter(client, f"{name}-{next(_numbers)}", None) for _ in counted]
        for counter, ids in zip(own, counted, strict=True):
            counter.from_roaring(ids.serialize())
        own[0].add_many(more)
        gone = BitMap(random.Random(1).sample([*counted[1]], min(40, len(counted[1]))))
        own[1].discard_many(gone)
        truth = [counted[0] | BitMap(more), counted[1] - gone, counted[2]]
        sets = [counter.members() for counter in own]
        for tree in (0, 1, 2, *trees):
            found, expected = value(tree, sets), value(tree, truth)
            assert len(expected) == len(found) == found.count()
            assert expected == found.bitmap()
            assert [*expected] == [*found]
            some = next(iter(expected), 7)
            assert (some in expected) is (some in found)
            assert expected == BitMap.deserialize(found.to_roaring())
        pairs = [(value(tree, sets), value(tree, truth)) for tree in (0, *trees[:1])]
        pairs.append((sets[0] & sets[1], truth[0] & truth[1]))
        for (one, ours), (other, theirs) in product(pairs, repeat=2):
            for compare in (eq, ne, le, lt, ge, gt):
                assert compare(ours, theirs) is compare(one, other)
            assert ours.isdisjoint(theirs) is one.isdisjoint(other)
            assert ours.issubset(theirs) is one.issubset(other)
        assert truth[1].isdisjoint(truth[2]) is sets[1].isdisjoint(own[2])
        first, *others = own
        for verb, function in zip(
            ("count_or", "count_and", "count_andnot", "count_xor"), OPERATORS.values(), strict=True
        ):
            assert len(reduce(function, truth)) == getattr(first, verb)(*others)


def test_a_chain_of_operators_may_be_longer_than_pythons_stack(url: str, name: str) -> None:
    """ibis#9194: as of a loop over the counters of many days or hosts; in both directions."""
    with redis.Redis.from_url(url) as client:
        a, b = (DistinctCounter(client, f"{name}-{each}", None) for each in "ab")
        a.add_many(range(10))
        b.add_many(range(5, 15))
        ours, theirs = a.members(), b.members()
        left = right = ours
        for _ in range(600):
            left = left & theirs | ours
            right = ours | theirs & right
        assert {*range(10)} == {*left} == {*right}
        assert left == right == ours
        assert 10 == len(left) == left.count_or(right)


async def test_sets_and_counters_are_compared_in_one_read(make_counter: Make) -> None:
    a, b = make_counter("a"), make_counter("b")
    await a.add_many(["x", "y"])
    await b.add_many(["x", "y", "z"])
    answers = [
        await a.members().issubset(b),
        await b.members().issubset(a.members()),
        await a.members().isdisjoint(b.members()),
        await (b.members() - a.members()).isdisjoint(a),
    ]
    assert [True, False, False, True] == answers
    with pytest.raises(ConfigError, match=r"^others\[0\]: expected a distinct counter, or a set"):
        await a.members().issubset(["x"])


def test_a_set_has_nothing_of_a_cleared_mapping(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids mean other members then: those of before are not there, those of after were never in the set."""
    before, after = ([f"{one} {i}" for i in range(9000)] for one in ("before", "after"))
    with (
        DistinctCounter.from_url(url, "a", name, keep_members=True) as counter,
        DistinctCounter.from_url(url, "a", name, keep_members=True) as other,
    ):
        counter.add_many(before)
        listed = iter(counter.members())
        got = [next(listed)]
        other.clear(mapping=True)
        other.add_many(after)
        with pytest.raises(TBloomError, match="was it cleared meanwhile"):
            got.extend(listed)
        assert {*got} <= {*before}

        reader = counter.reader
        read, clears = reader.read, iter([before[:1], [], [], after[:1]])

        def interrupted(selections: Any) -> Any:
            for is_read in (False, True):
                if some := next(clears):
                    other.clear(mapping=True)
                    other.add_many(some)
                if not is_read:
                    found = yield from read(selections)
            return found

        monkeypatch.setattr(reader, "read", interrupted)
        assert after[0] not in counter.members()  # before[0] has its id now, and is counted
        assert after[0] not in counter.members()  # it has the id of before[0], which was counted


def test_a_counter_that_is_cleared_meanwhile_is_read_again(url: str, name: str) -> None:
    """The names of its chunks were read before the clear, and their ids are to be read after it."""
    with DistinctCounter.from_url(url, name, None) as counter:
        counter.add(1)
        was_cleared = False

        def reading() -> Iterator[Any]:
            """The set's flow, whose counter is cleared before its chunks are read."""
            nonlocal was_cleared
            flow, replies = SetVerbs.bitmap.flow(counter.members()), None
            while True:
                try:
                    calls = flow.send(replies)
                except StopIteration as end:
                    return end.value
                if not was_cleared and any("HMGET" in call.command for call in calls):
                    was_cleared = True
                    counter.clear()
                    counter.add_many([2, 5 * CHUNK])
                replies = yield calls

        ids, _ = run(counter.client, reading())
        assert was_cleared
        assert BitMap([2, 5 * CHUNK]) == ids


def test_only_sets_of_one_mapping_can_be_combined(url: str, name: str) -> None:
    a, b, c = (DistinctCounter.from_url(url, "a", mapping) for mapping in (name, f"{name}2", None))
    for one, other, expected in ((a, b, f"the same mapping, '{name}'"), (c, a, "integers")):
        with pytest.raises(ConfigError, match=f"expected a set of a counter of {expected}"):
            one.members() | other.members()
    with pytest.raises(ConfigError, match="expected a set of a counter of the same mapping"):
        assert a.members() == b.members()
    for operation in (operator.and_, operator.le, lambda one, _: hash(one)):
        with pytest.raises(TypeError):
            operation(a.members(), {"x"})
    assert a.members() not in ({"x"}, a)
    with pytest.raises(ConfigError, match=r"^others\[1\]: expected a set of a counter of the same"):
        a.count_or(a, b)
    with pytest.raises(ConfigError, match=r"^keep_members: expected True"):
        [*a.members()]
    with pytest.raises(ConfigError, match=r"^mapping: expected True or False, got 'ids'"):
        a.clear(mapping="ids")  # type: ignore[arg-type]


@pytest.mark.parametrize("runs", [2048, 32_768])
def test_imported_bitmaps_of_many_runs_can_be_changed(url: str, name: str, runs: int) -> None:
    """The format allows runs also where a bitmap is smaller; tbloom's containers have at most 2,047."""
    counter = DistinctCounter.from_url(url, name, None)
    ids = BitMap(range(0, 2 * runs, 2))
    pairs = [half for first in ids for half in (first, 0)]
    head = struct.pack("<HHBHHH", 12347, 0, 1, 0, runs - 1, runs)
    data = head + struct.pack(f"<{2 * runs}H", *pairs)
    with pytest.raises(ConfigError, match="and no bytes after them"):
        counter.from_roaring(data + b"\0")
    counter.from_roaring(data)
    assert [True, False, True] == [counter.add(1), counter.add(2), counter.discard(0)]
    assert (ids | BitMap([1])) - BitMap([0]) == counter.members().bitmap()


def test_with_a_mapping_its_members_can_be_imported(url: str, name: str) -> None:
    a, b = (DistinctCounter.from_url(url, counter, name) for counter in "ab")
    a.add_many(["x", "y", "z"])
    b.from_roaring(a.members().to_roaring())
    assert [True, False] == b.contains_many(["x", "new"])
    with pytest.raises(ConfigError):
        b.from_roaring(BitMap([3]).serialize())
    assert 3 == b.count() == b.count_and(a)


#: Lists, bitmaps and runs; ids at the end of all.
IDS = {*range(10, 200_000), *range(1 << 20, 1 << 21, 3), 1 << 24, *range((1 << 32) - 5, 1 << 32)}


@pytest.mark.check
@pytest.mark.parametrize("many", [IDS, {*range(10, 41)}], ids=["many ids", "21 ids"])
@pytest.mark.parametrize("kind", ["UInt32", "UInt64"])
def test_a_counter_goes_to_clickhouse_and_back(
    url: str, name: str, kind: str, many: set[int]
) -> None:
    """ClickHouse#16798: a bitmap that is made elsewhere is uploaded. ClickHouse writes up to 32 ids as they are."""
    if find_spec("chdb") is None:  # 900 MB
        pytest.skip("chdb (pip install chdb-core) is missing")
    program = [sys.executable, Path(__file__).parent / "interop" / "clickhouse.py", kind]
    with DistinctCounter.from_url(url, f"{name}-a", None) as counter:
        other = DistinctCounter(counter.client, f"{name}-b", None)
        counter.from_roaring(BitMap(many).serialize())
        counter.discard_many([*range(10, 20), (1 << 32) - 1])
        ids = many - {*range(10, 20), (1 << 32) - 1}
        given = counter.members().to_roaring()
        done = subprocess.run(program, input=given, capture_output=True, check=True)
        assert len(ids) == int(done.stderr)
        other.from_roaring(done.stdout)
        expected = ids - {20} | {(1 << 32) - 1}
        assert len(expected) == other.count()
        assert BitMap(expected) == other.members().bitmap()
