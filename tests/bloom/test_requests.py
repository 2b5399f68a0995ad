"""How much a call sends: in one round trip, to the append-only file and to each replica, in a window of 672 grown
slices."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom import calls
from tbloom.bloom.batch import FilterBatch
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import digest
from tbloom.bloom.layout import Layout
from tbloom.bloom.view import View
from tbloom.engine.sync import Sender
from tbloom.engine.tokens import LanePool
from tests.helpers.flows import keys_of
from tests.helpers.localredis import LocalRedis

#: At most, in bytes: one by one, and in batches of 500. (A set takes 68.)
ONE_BY_ONE, IN_BATCHES = 265, 150
LOGGED = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"]


def test_a_new_item_sends_few_bytes_to_replicas(binary: str, own: redis.Redis) -> None:
    """In a slice that is half full."""
    with LocalRedis(binary, *LOGGED) as server, redis.Redis.from_url(server.url) as client:
        own.replicaof("127.0.0.1", server.port)
        seen = TimeBloom.from_url(server.url, "news", capacity=20_000)
        one, many = _spent(client, seen)
        own.replicaof("NO", "ONE")
    print(f"one by one {one[0]:.1f} and {one[1]:.1f}, in batches {many[0]:.1f} and {many[1]:.1f}")
    assert max(one) <= ONE_BY_ONE
    assert max(many) <= IN_BATCHES


def _spent(client: redis.Redis, seen: TimeBloom) -> list[tuple[float, float]]:
    """What an item sends to the log and to a replica, in a slice that is half full: one by one, and in batches."""
    seen.add_many(f"first {i}" for i in range(10_000))
    spent = []
    for items, call in (
        (500, lambda: [seen.add(f"one {i}") for i in range(500)]),
        (5000, lambda: seen.add_many(f"many {i}" for i in range(5000))),
    ):
        log, stream = _sizes(client)
        call()
        log_after, stream_after = _sizes(client)
        spent.append(((log_after - log) / items, (stream_after - stream) / items))
    return spent


def _sizes(client: redis.Redis) -> tuple[int, int]:
    client.ping()  # the log is written before the next command
    log = client.info("persistence")["aof_current_size"]
    return log, client.info("replication")["master_repl_offset"]


SLICES = 672
PARAMETERS: dict[str, Any] = {"granularity": "15min", "slices": SLICES, "capacity": 50}


def test_the_request_of_an_add_is_small() -> None:
    """Where each slice has two parts: less than 40 KB; what is not the names of keys has at most 1 KB."""
    config, now = configure("news", **PARAMETERS), 1557273600000
    labels = View(config, now, {}).labels
    grown = Layout(config).grown(labels[0], labels[:1])
    layout = ";".join(grown.replace(labels[0], label) for label in labels[::-1])
    layouts = {0: Layout(config, f"1557273600000000.1557277200123456;{layout}")}
    view = View(config, now, layouts)
    header = view.header(0, len(view.slices))
    call = calls.add(FilterBatch([digest("a")], lane=LanePool().take(), header=header))
    assert len(keys_of(call)) == 2 + 2 * SLICES
    packed = b"".join(redis.Connection().pack_command(*call.command))
    assert len(packed) < 40 * 1024
    names = sum(len(f"${len(key)}\r\n{key}\r\n") for key in keys_of(call)[1:])
    assert len(packed) - names < 1024


def test_a_first_add_takes_three_exchanges(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which shards are stored, the filter's begin, and the item; where the user says how many shards there are, two."""
    with TimeBloom.from_url(url, f"{name}1") as other:
        other.add("the scripts are known")
    sent: list[Any] = []
    send = Sender.send
    monkeypatch.setattr(
        Sender, "send", lambda self, calls, now: sent.append(calls) or send(self, calls, now)
    )
    for number, parameters in ((3, {}), (5, {"shards": 1})):
        with TimeBloom.from_url(url, f"{name}{number}", **parameters) as seen:
            assert seen.add("a")
            assert number == len(sent)
            assert not seen.add("a")
            sent[number:] = []
