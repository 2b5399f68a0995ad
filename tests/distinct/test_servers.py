"""The keys that the scripts of distinct counters touch, and the memory that they take."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tbloom.engine.keys import DEFAULT_MAPPING, MappingKeys
from tbloom.engine.scripts import Script
from tests.helpers.localredis import LocalRedis
from tests.helpers.verbs import verbs_of_counters

pytestmark = pytest.mark.usefixtures("away_from_midnight")


def test_every_key_of_a_call_is_declared_and_in_the_mapping_s_slot(
    own: redis.Redis, name: str
) -> None:
    """What MONITOR says that scripts touch is among their KEYS; and all scripts are called. (So none makes a global:
    servers refuse that.)"""
    own.flushall()
    own.script_flush()
    url = f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"
    with own.monitor() as monitor, ThreadPoolExecutor(1) as thread:
        heard = thread.submit(
            lambda: [*takewhile(lambda each: "ECHO" != each["command"][:4], monitor.listen())]
        )
        with redis.Redis.from_url(url) as client:
            verbs_of_counters(client, name)
        own.echo("the end")
        commands = heard.result()
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
