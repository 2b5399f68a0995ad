"""Distinct counters against Python's sets, in every form that their chunks may have."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import redis
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tbloom.distinct import DistinctCounter
from tests.helpers.contents import counted, keys_of
from tests.helpers.flows import flow_of, run

CHUNK = 65_536


def forms(client: redis.Redis, name: str) -> dict[int, str]:
    """The form of each chunk in the first piece of a counter of integers."""
    stored = client.hgetall(f"{{{name}}}:chunks:{name}:all")
    stored.pop(b"head", None)
    return {int(field): chr(container[0]) for field, container in stored.items()}


class Model:
    """A counter of integers and the set that it must equal."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.name = f"test-{secrets.token_hex(6)}"
        self.counters = [DistinctCounter(client, self.name, None) for _ in range(2)]
        self.ids: set[int] = set()

    def add(self, ids: list[int], client: int = 0) -> None:
        new = self._first(ids, lambda id: id not in self.ids)
        assert new == self.counters[client].add_many(ids)
        self.ids.update(ids)

    def discard(self, ids: list[int], client: int = 0) -> None:
        there = self._first(ids, self.ids.__contains__)
        assert there == self.counters[client].discard_many(ids)
        self.ids.difference_update(ids)

    def contains(self, ids: list[int], client: int = 0) -> None:
        assert [id in self.ids for id in ids] == self.counters[client].contains_many(ids)

    def merge(self, ids: list[int], client: int = 0) -> None:
        self.counters[client].from_roaring(BitMap(ids).serialize())
        self.ids.update(ids)

    def clear(self, _: list[int], client: int = 0) -> None:
        self.counters[client].clear()
        self.ids.clear()

    def check(self) -> None:
        assert sorted(self.ids) == counted(self.client, self.name, self.name)
        assert len(self.ids) == self.counters[0].count()

    @staticmethod
    def _first(ids: list[int], is_right: Callable[[int], bool]) -> list[bool]:
        """What the first of equal ids is answered; a repeat is answered False."""
        given: set[int] = set()
        return [is_right(id) and not (id in given or given.add(id)) for id in ids]


def _ids(base: int, spread: int, size: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [min(base + rng.randrange(spread), 2**32 - 1) for _ in range(size)]


#: Where ids are: in one chunk, around a border of chunks or pieces, at both ends.
_bases = st.sampled_from([0, 60_000, CHUNK - 50, 2**28 - 3000, 2**32 - 5000])
_scattered = st.builds(
    _ids, _bases, st.sampled_from([200, 9000, 200_000]), st.integers(1, 500), st.integers(0, 5)
)
_rows = st.builds(
    lambda base, start, size, step: [*range(base + start, min(base + start + size, 2**32), step)],
    *(_bases, st.integers(0, 300), st.integers(1, 5000), st.sampled_from([1, 1, 2, 3])),
)
_verbs = st.sampled_from(
    [*["add"] * 6, *["merge"] * 2, "discard", "discard", "contains", "contains", "clear"]
)


@given(steps=st.lists(st.tuples(_verbs, _scattered | _rows, st.integers(0, 1)), max_size=12))
def test_every_sequence_of_verbs_is_answered_as_by_a_set(url: str, steps: list[Any]) -> None:
    with redis.Redis.from_url(url) as client:
        model = Model(client)
        for verb, ids, chosen in steps:
            getattr(model, verb)(ids, chosen)
        model.check()
        model.clear([])
        assert [] == keys_of(client, model.name)


def test_a_chunk_is_kept_in_the_form_that_is_smallest(own: redis.Redis) -> None:
    """A list (a), a bitmap (b), or runs (r), whatever it was before."""
    odd, model = [*range(1, 8193, 2)], Model(own)
    for verb, ids, expected in (
        ("add", odd[:63], {0: "a"}),
        ("add", range(300), {0: "r"}),
        ("add", odd[:3000], {0: "a"}),
        ("add", [1_000_000, *odd], {0: "b", 15: "a"}),
        ("discard", [*range(5000, 30_000), 1_000_000], {0: "b"}),
        ("discard", range(8193), {}),
        ("add", range(70_000), {0: "r", 1: "r"}),
        ("merge", odd, {0: "r", 1: "r"}),
        ("discard", range(0, 9_000, 2), {0: "b", 1: "r"}),
        ("merge", range(CHUNK, 2 * CHUNK, 7), {0: "b", 1: "b"}),
    ):
        getattr(model, verb)([*ids])
        assert expected == forms(own, model.name)
        model.check()


def test_a_large_change_is_made_in_several_calls(own: redis.Redis) -> None:
    """Full arrays become bitmaps: a few in each call, each id once."""
    rng, model = random.Random(1), Model(own)
    filled: Iterable[int] = (
        chunk * CHUNK + 2 * low for chunk in range(10) for low in rng.sample(range(32_768), 4096)
    )
    model.merge([*filled])
    assert {"a"} == {*forms(own, model.name).values()}
    ids = [chunk * CHUNK + 1 for chunk in range(10)]
    _, scripts = run(own, flow_of(model.counters[0], "add_many", ids))
    assert 3 < scripts <= 12
    assert {"b"} == {*forms(own, model.name).values()}
    model.ids.update(ids)
    model.check()
