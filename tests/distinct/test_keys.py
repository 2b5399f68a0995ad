"""A mapping's keys: what another program may have written into them, which of them scripts touch, and the memory that they take."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest
import redis

from tbloom import TBloomError
from tbloom.arguments import encode, fingerprint
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import MappingKeys
from tbloom.engine.keys import DEFAULT_MAPPING
from tbloom.engine.scripts import Script
from tests.helpers.clock import Clockwork
from tests.helpers.contents import keys_of, snapshot
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.localredis import LocalRedis
from tests.helpers.stores import DISTINCT, verbs_of_counters

pytestmark = pytest.mark.usefixtures("away_from_midnight")
KEYS = MappingKeys("planted")
PIECE = KEYS.piece("one", "all")
VERBS = PLANTED[DISTINCT].verbs


def _filled(own: redis.Redis) -> tuple[DistinctCounter, DistinctCounter]:
    """Two counters of one mapping with the same members."""
    return PLANTED[DISTINCT].filled(own, 1), DistinctCounter(own, "two", "planted")


def _set(key: str, field: str, value: str | bytes, own: redis.Redis) -> None:
    """Writes a value, or a field of a hash."""
    own.hset(key, field, value) if field else own.set(key, value)


def _lose(pattern: str, own: redis.Redis) -> None:
    own.delete(*own.scan_iter(pattern))


def _set_an_id(own: redis.Redis) -> None:
    [bucket] = own.scan_iter("*:ids:*")
    own.hset(bucket, fingerprint(encode("7")).to_bytes(16, "big"), "1.5")


_CLEARS = {"clear", "clear_mapping"}
_COUNTS = {"count", "info", *_CLEARS}
_OF_CHUNK_0 = {"add", "add_many", "contains", "discard", "merge"}
_HEAD = "1557273600000000 1557273600000000 "
_NO_ENTRIES = ["", "x y {}", _HEAD, _HEAD + '{"name":"x"}', b"\xff"]
_CONTAINERS = {
    "none": b"",
    "another form": b"xab",
    "half an id": b"a123",
    "too many ids": b"a" + bytes(8194),
    "a bitmap without its number": b"b" + bytes(8192),
    "another number of runs": b"r" + struct.pack("<5H", 1, 0, 1, 5, 1),
}
#: What another program did, and the verbs that have an answer nevertheless.
_DAMAGES: dict[str, tuple[Callable[[redis.Redis], None], set[str]]] = {
    **{what: (partial(_set, PIECE, "0", data), _COUNTS) for what, data in _CONTAINERS.items()},
    "no chunk": (partial(_set, PIECE, "x", b"a\1\0"), _COUNTS | _OF_CHUNK_0),
    "a chunk of another piece": (partial(_set, PIECE, "4096", b"a\1\0"), _COUNTS | _OF_CHUNK_0),
    **{
        ascii((key, field, value))[:60]: (partial(_set, key, field, value), _CLEARS)
        for key, field, values in (
            (KEYS.counters(), "one", _NO_ENTRIES),
            (PIECE, "head", ["", "1 2", "-1 2 1557273600000000", "9" * 30 + " 2 3", b"\xff"]),
            (KEYS.members(), "", ["x", "-1", "9" * 17, b"\xff"]),
        )
        for value in values
    },
    "no id": (_set_an_id, {*VERBS} - {"add_many", "contains", "discard", "in"}),
    "the piece is lost": (partial(_lose, PIECE), {*_COUNTS, "count_and", "in"}),
    "the layout is lost": (partial(_lose, KEYS.layout()), _CLEARS),
    "the number of members is lost": (
        partial(_lose, KEYS.members()),
        {*_COUNTS, "count_and", "in", "merge"},
    ),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_or_lost_key_is_an_error(own: redis.Redis, damage: str) -> None:
    """It is tbloom's own, and changes nothing; and ``clear(mapping=True)`` mends it."""
    do, expected = _DAMAGES[damage]
    answered = set()
    for verb, call in VERBS.items():
        one, _ = _filled(own)
        do(own)
        before = snapshot(own, lanes=False)
        try:
            call(one)
            answered.add(verb)
        except TBloomError as error:
            assert re.search("'one'|planted", str(error))  # noqa: PT017 - not each verb raises
            assert verb.startswith("clear") or before == snapshot(own, lanes=False)
    assert expected == answered
    one, _ = _filled(own)
    do(own)
    one.clear(mapping=True)
    # What a damaged layout does not name.
    assert all(b":ids:" in key for key in keys_of(own))
    assert all(one.add_many(ITEMS))
    assert len(ITEMS) == one.count()


@pytest.mark.parametrize(
    ("lost", "left", "after"),
    [
        (KEYS.counters(), (0, 0), (50, 0)),
        # That is not noticed: a bucket may be empty.
        ("*:ids:*", (50, 50), (100, 50)),
    ],
)
def test_members_of_a_lost_bucket_or_entry_are_counted_anew(
    own: redis.Redis, lost: str, left: tuple[int, int], after: tuple[int, int]
) -> None:
    one, two = _filled(own)
    _lose(lost, own)
    assert left == (one.count(), two.count())
    assert all(one.add_many(ITEMS))
    assert after == (one.count(), two.count())


def test_each_change_has_a_later_version(clockwork: Clockwork, name: str) -> None:
    """Though the clock is set back: else a reader may take two states for one."""
    versions = []
    with DistinctCounter.from_url(clockwork.server.url, "one", name) as one:
        for member in range(3):
            one.add(member)
            head = clockwork.client.hget(MappingKeys(name).piece("one", "all"), "head")
            versions.append(int(head.split()[1]))
            clockwork.go_on(-60)
    assert versions == sorted({*versions})


def test_every_key_of_a_call_is_declared(own: redis.Redis, name: str) -> None:
    """What MONITOR says that scripts touch is among their KEYS; and all scripts are called. (So none makes a global:
    servers refuse that.)"""
    own.flushall()
    own.script_flush()
    url = f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"
    with own.monitor() as monitor, redis.Redis.from_url(url) as client:
        verbs_of_counters(client, name)
        own.echo("the end")
        commands = [*takewhile(lambda each: "ECHO" != each["command"][:4], monitor.listen())]
    declared: set[str] = set()
    touched, called = set(), " ".join(each["command"] for each in commands)
    for path in (Path(__file__).parents[2] / "lua" / "distinct").glob("*.lua"):
        assert Script(f"distinct/{path.stem}").sha in called, path.name
    for each in commands:
        words = each["command"].split()
        if words[0] in ("EVALSHA", "EVAL"):
            # (The text of EVAL has spaces, and no key.)
            declared = {*re.findall(rf"\{{{name}(?:-numbers)?\}}:[\w:-]+", each["command"])}
            assert declared
        elif each["client_type"] == "lua" and words[0] not in ("TIME", "INFO"):
            key = words[2] if words[0] in ("MEMORY", "BITOP") else words[1]
            touched.add(key.split(":")[1])
            assert key in declared, each
            if words[0] == "BITOP":
                assert {*words[3:]} <= declared
    kinds = {"config", "layout", "members", "counters", "forgotten", "lane"}
    assert touched == kinds | {"ids", "chunks", "scratch"}


@pytest.mark.parametrize("members", [10_000, pytest.param(100_000, marks=pytest.mark.check)])
@pytest.mark.parametrize(("first", "most"), [(0, 32), (1 << 31, 33)])
def test_a_mapping_takes_32_bytes_a_member_at_most(
    server: LocalRedis, members: int, first: int, most: int
) -> None:
    """Of all its keys, overhead included; and each bucket is in the server's compact form. From the id 2^31 on, one more."""
    with redis.Redis.from_url(server.url) as client:
        counter, mapping = DistinctCounter(client, "one"), MappingKeys(DEFAULT_MAPPING)
        counter.add("0")
        client.set(mapping.members(), first or 1)
        assert all(counter.add_many(map(str, range(1, members))))
        buckets = [*client.scan_iter("{ids}:_:ids:*", 1000)]
        with client.pipeline() as pipeline:
            for key in buckets:
                pipeline.object("encoding", key)
                pipeline.memory_usage(key, samples=0)
            replies = pipeline.execute()
        assert {b"listpack", b"ziplist"} >= {*replies[::2]}
        others = [mapping.layout(), mapping.members(), mapping.config()]
        taken = sum(replies[1::2]) + sum(client.memory_usage(key) for key in others)
        assert members * 20 < taken <= members * most
        info = counter.info()
        assert (members + max(0, first - 1), len(buckets)) == (info.members, info.buckets)
        assert 0.9 * taken < info.mapping_bytes < 1.1 * taken


def test_info_sends_a_bounded_number_of_commands(own: redis.Redis, name: str) -> None:
    counter, members = DistinctCounter(own, "one", name), 20_000
    counter.add_many(map(str, range(members)))
    before = own.info("stats")["total_commands_processed"]
    info = counter.info()
    sent = own.info("stats")["total_commands_processed"] - before
    assert (members, True) == (info.members, info.buckets > 200)
    assert sent < 150
