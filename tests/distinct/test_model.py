"""Distinct counters against Python's sets, and what they store against Roaring bitmaps of another make."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import combinations_with_replacement
from operator import and_, or_, xor
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from tbloom import MappingFull
from tbloom.distinct import DistinctCounter, algebra, exchange
from tbloom.engine.tree import read_tree
from tbloom.items import encode, fingerprint
from tests.helpers.flows import CHUNK, run, stored_ids

OPERATIONS: dict[str, Callable[..., set[int]]] = {"and": and_, "or": or_, "xor": xor}
#: What a counter may be in a chunk, by how many ids it has there: nothing, sorted ids, or a bitmap, from 4,097 on.
SIZES = {"none": 0, "one": 1, "few": 60, "many": 4095, "most": 4096, "least": 4097, "dense": 6000}


@pytest.fixture
def binary(url: str) -> Iterator[redis.Redis]:
    """A client that does not decode replies."""
    with redis.Redis.from_url(url) as client:
        yield client


def ids_given(client: redis.Redis, mapping: str) -> dict[int, int]:
    """The id of each fingerprint, from the mapping's buckets; each is where the tree says."""
    root, given = f"{{{mapping}}}", dict[int, int]()
    tree, _ = run(client, read_tree(mapping, f"{root}:layout"))
    for bucket in tree.buckets():
        for field, value in client.hgetall(f"{root}:ids:{tree.generation}:{bucket}").items():
            key = int.from_bytes(field, "big")
            assert bucket == tree.half_of(key) >> 1
            given[key] = int(value)
    assert len(given) == len(set(given.values()))
    return given


def ids_of(given: dict[int, int], members: set[str]) -> BitMap:
    """The ids that the mapping has given to these members."""
    return BitMap(given[fingerprint(encode(member))] for member in members)


def skip_to(client: redis.Redis, mapping: str, following: int) -> None:
    """Has the mapping give its next id from there on."""
    client.set(f"{{{mapping}}}:members", following)


class Fleet:
    """Counters of one mapping, and what each must have counted."""

    def __init__(self, client: redis.Redis, mapping: str) -> None:
        self.client = client
        self.mapping = mapping
        self.clients: dict[tuple[str, int], DistinctCounter] = {}
        self.members: dict[str, set[str]] = {}

    def add(self, name: str, members: list[str], client: int = 0) -> None:
        counter, counted = self.counter(name, client), self.members[name]
        new = [member not in counted for member in members]
        told: set[str] = set()
        for i, member in enumerate(members):  # of a repeated one the first
            new[i] &= member not in told
            told.add(member)
        assert new == counter.add_many(members)
        counted.update(members)

    def counter(self, name: str, client: int = 0) -> DistinctCounter:
        """One of the clients that share it; each knows what it has learnt itself."""
        if (name, client) not in self.clients:
            self.clients[name, client] = DistinctCounter(self.client, name, self.mapping)
            self.members.setdefault(name, set())
        return self.clients[name, client]

    def clear(self, name: str, client: int = 0) -> None:
        self.counter(name, client).clear()
        self.members[name].clear()

    def forget(self, name: str, client: int = 0) -> None:
        """Clears the mapping."""
        self.counter(name, client).clear(mapping=True)
        for members in self.members.values():
            members.clear()

    def check(self, *names: str) -> None:
        """Each sum of these, against sets."""
        first, *others = (self.counter(name) for name in names)
        for operation, function in OPERATIONS.items():
            expected = len(reduce(function, (self.members[name] for name in names)))
            assert expected == getattr(first, f"count_{operation}")(*others), (operation, names)

    def check_stored(self) -> None:
        """What is stored, against the ids that the mapping has given, and the sums of those."""
        given, bitmaps = ids_given(self.client, self.mapping), dict[str, BitMap]()
        for name, members in self.members.items():
            counter = self.counter(name)
            stored = bitmaps[name] = BitMap(stored_ids(self.client, counter))
            assert ids_of(given, members) == stored
            assert len(stored) == counter.count()
        for one, other in combinations_with_replacement(self.members, 2):
            for operation, function in OPERATIONS.items():
                verb = getattr(self.counter(one), f"count_{operation}")
                assert len(function(bitmaps[one], bitmaps[other])) == verb(self.counter(other))


def test_counters_are_what_sets_are_for_every_representation(
    binary: redis.Redis, name: str
) -> None:
    """Two to four operands, each of any size in one chunk, and of another size in a chunk far away."""
    fleet, rng, near = Fleet(binary, name), random.Random(1), [f"near {i}" for i in range(12_000)]
    far = [f"far {i}" for i in range(12_000)]
    fleet.add("all", near)
    skip_to(binary, name, 152 * CHUNK)
    fleet.add("all", far)
    sizes = list(SIZES)
    for size, other in zip(sizes, rng.sample(sizes, len(sizes)), strict=True):
        fleet.add(size, rng.sample(near, SIZES[size]))
        fleet.add(size, rng.sample(far, SIZES[other]))
    fleet.check_stored()
    for counter, members in fleet.members.items():
        in_chunk = sum(member.startswith("near") for member in members)
        assert in_chunk == SIZES.get(counter, 12_000)
        entry = binary.hget(f"{{{name}}}:chunks:{counter}:all", 0) or b":"
        assert entry.startswith(b":") == (in_chunk <= 4096)
    for operands in combinations_with_replacement(sizes, 2):
        fleet.check(*operands[::-1])
    for operands in combinations_with_replacement(sizes, 3):
        fleet.check(*rng.sample(operands, 3))
    for operands in rng.sample([*combinations_with_replacement(sizes, 4)], 60):
        fleet.check(*rng.sample(operands, 4))
    assert [] == binary.keys(f"{{{name}}}:scratch:*")


def test_a_directory_of_many_chunks_is_counted_page_by_page(binary: redis.Redis, name: str) -> None:
    """Its fields are more than one call lists; beside it are one that is listed, and one as long."""
    fleet = Fleet(binary, name)
    for chunk in range(1100):
        skip_to(binary, name, chunk * 3 * CHUNK + 7)
        fleet.add("large", [f"{chunk}"])
    fleet.add("small", [f"{chunk}" for chunk in range(0, 1100, 30)])
    fleet.add("as large", [f"{chunk}" for chunk in range(40, 1100)])
    skip_to(binary, name, 3300 * CHUNK + 100)
    fleet.add("bitmap", [f"more {i}" for i in range(4200)])
    fleet.add("as large", [f"more {i}" for i in range(0, 4200, 2)])
    for operands in combinations_with_replacement(fleet.members, 2):
        fleet.check(*operands[::-1])
    fleet.check(*fleet.members)
    fleet.check_stored()
    skip_to(binary, name, 2**32 - 1)
    for counter in ("large", "small"):
        fleet.add(counter, ["last"])
    fleet.check("small", "large")


@pytest.mark.parametrize("size", [4095, 4096, 4097])
@pytest.mark.parametrize("step", [1, 150, 5000])
def test_a_chunk_becomes_a_bitmap_with_its_4097th_id(
    binary: redis.Redis, name: str, size: int, step: int
) -> None:
    """With any size of the last calls; the ids are scattered."""
    fleet, members = Fleet(binary, name), [f"{i}" for i in range(5000)]
    fleet.add("all", members)
    some = random.Random(step).sample(members, size)
    fleet.add("some", some[: max(0, 4090 - step)])
    for start in range(max(0, 4090 - step), size, step):
        fleet.add("some", some[start : start + step], client=start % 2)
    assert (size > 4096) == binary.exists(f"{{{name}}}:bitmap:some:all:0")
    fleet.check_stored()
    fleet.add("some", members)
    fleet.check("some", "all")


@pytest.mark.parametrize("step", [1, 150, 10_000])
@pytest.mark.parametrize(
    "first", [0, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 153 * CHUNK - 2, 2**32 - 5]
)
def test_ids_beside_the_border_of_a_chunk(
    binary: redis.Redis, name: str, first: int, step: int
) -> None:
    fleet, members = Fleet(binary, name), [f"{i}" for i in range(5)]
    skip_to(binary, name, first)
    for start in range(0, 5, step):
        fleet.add("a", members[start : start + step])
    assert [*range(first, first + 5)] == stored_ids(binary, fleet.counter("a"))
    fleet.add("b", members[1:4])
    fleet.check("a", "b")
    fleet.check_stored()


def test_a_batch_that_fills_two_chunks(binary: redis.Redis, name: str) -> None:
    """Both become bitmaps meanwhile; one client knows neither."""
    fleet, members = Fleet(binary, name), [f"{i}" for i in range(10_000)]
    skip_to(binary, name, CHUNK - 5000)
    fleet.add("a", members)
    fleet.add("b", members[::-2])
    fleet.add("a", members, client=1)
    fleet.add("b", members, client=1)
    fleet.check("a", "b")
    fleet.check_stored()


def test_the_mapping_ends_with_the_id_2_to_the_32_less_1(binary: redis.Redis, name: str) -> None:
    fleet, members = Fleet(binary, name), [f"{i}" for i in range(5000)]
    skip_to(binary, name, 2**32 - 5000)
    fleet.add("a", members)
    for counter in (fleet.counter("a"), fleet.counter("b")):
        with pytest.raises(MappingFull):
            counter.add("one more")
    fleet.add("b", members[::2])
    assert 2**32 - 1 == stored_ids(binary, fleet.counter("a"))[-1]
    assert 2**32 == fleet.counter("a").info().members
    fleet.check("a", "b")
    fleet.check_stored()


def test_a_client_that_keeps_few_bitmaps_in_mind_is_right(
    binary: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls are told which they need; the counts bring two at a time."""
    monkeypatch.setattr(exchange, "_MAX_BITMAPS", 1)
    monkeypatch.setattr(exchange, "_MAX_BITMAPS_OF_MANY", 3)
    monkeypatch.setattr(algebra, "_BITMAPS_PER_CALL", 4)
    fleet, rng, members = Fleet(binary, name), random.Random(1), list[str]()
    for chunk in range(5):
        skip_to(binary, name, 7 * chunk * CHUNK)
        fleet.add("all", [f"{chunk} {i}" for i in range(4400)])
        members += [f"{chunk} {i}" for i in range(4400)]
    fleet.add("most", rng.sample(members, 21_000))
    for member in rng.sample(members, 200):
        fleet.add("most", [member], client=1)
        fleet.add("all", [member], client=1)
    fleet.check("all", "most")
    fleet.check_stored()


def test_a_count_of_much_takes_several_calls(binary: redis.Redis, name: str) -> None:
    """So that none keeps the server for long: of many sorted ids, and of bitmaps that are looked into."""
    fleet = Fleet(binary, name)
    for chunk in range(5):
        skip_to(binary, name, 3 * chunk * CHUNK)
        members = [f"{chunk} {i}" for i in range(5000)]
        fleet.add("most", members)
        fleet.add("many", members[:4000])
        fleet.add("others", members[1000:])
    for operation, function in OPERATIONS.items():
        for names, least in (
            (("many", "others"), 2),
            (("most", "many"), 3),
            (("many", "most", "others"), 3),
        ):
            first, *others = map(fleet.counter, names)
            flow = first._protocol.count(operation, first._with(tuple(others)))
            counted, scripts = run(binary, flow)
            assert counted == len(reduce(function, (fleet.members[name] for name in names)))
            assert scripts >= least, names


@pytest.mark.parametrize("most_entries", [1, 3, 100])
def test_adds_of_many_clients_in_any_order(
    binary: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch, most_entries: int
) -> None:
    """The ids of each counter are scattered, because others add in between; buckets are split all the time."""
    monkeypatch.setattr(exchange, "_MAX_ENTRIES", most_entries)
    fleet, rng = Fleet(binary, name), random.Random(most_entries)
    for _ in range(100):
        counter, most = rng.choice([("a", 9000), ("b", 9000), ("c", 3000), ("d", 400)])
        members = [f"{rng.randrange(most)}" for _ in range(rng.choice([1, 2, 40, 150, 700]))]
        fleet.add(counter, members, rng.randrange(3))
    fleet.check_stored()
    fleet.check(*"abcd")


_names, _clients = st.sampled_from("abc"), st.integers(0, 2)
_adds = st.tuples(
    st.just("add"), _names, _clients, st.integers(0, 4300), st.integers(1, 160), st.integers(1, 30)
)
_clears = st.tuples(st.just("clear"), _names, _clients)
_forgets = st.tuples(st.just("forget"), _names, _clients)
_skips = st.tuples(st.just("skip"), st.integers(1, 2 * CHUNK))
_checks = st.tuples(st.just("check"), st.lists(_names, min_size=1, max_size=4))


@settings(max_examples=20)
@given(
    first=st.sampled_from([0, CHUNK - 4200, CHUNK - 4097, CHUNK - 100, 153 * CHUNK - 4096]),
    sizes=st.lists(st.sampled_from([0, 1, 150, 4000, 4095, 4096, 4097]), min_size=3, max_size=3),
    steps=st.lists(st.one_of(_adds, _adds, _adds, _clears, _forgets, _skips, _checks), max_size=12),
)
def test_every_sequence_of_verbs_is_answered_as_by_sets(
    url: str, first: int, sizes: list[int], steps: list[Any]
) -> None:
    with redis.Redis.from_url(url) as client:
        mapping = f"test-{secrets.token_hex(6)}"
        fleet = Fleet(client, mapping)
        skip_to(client, mapping, first)
        for name, size in zip("abc", sizes, strict=True):
            fleet.add(name, [f"{i}" for i in range(size)])
        for step in steps:
            match step:
                case ("add", name, number, start, length, stride):
                    members = [f"{i}" for i in range(start, start + length * stride, stride)]
                    fleet.add(name, members, number)
                case ("clear", name, number):
                    fleet.clear(name, number)
                case ("forget", name, number):
                    fleet.forget(name, number)
                case ("skip", distance):
                    given = int(client.get(f"{{{mapping}}}:members") or 0)
                    skip_to(client, mapping, given + distance)
                case ("check", names):
                    fleet.check(*names)
        fleet.check_stored()
        fleet.counter("a").clear(mapping=True)
        assert [] == [key for key in client.keys(f"*{mapping}*") if b":lane:" not in key]
