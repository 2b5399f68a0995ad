"""What a new item sends to the append-only file, to each replica, and to the server."""

from __future__ import annotations

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import digest
from tbloom.bloom.script_calls import SliceCalls
from tbloom.cli.commands.plan import log_bytes
from tbloom.engine.batches import Batch
from tbloom.engine.tokens import LanePool
from tests.helpers.localredis import LocalRedis

#: At most, in bytes: one by one, and in batches of 500. (A set takes 68.)
ONE_BY_ONE, IN_BATCHES = 265, 150
LOGGED = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"]


def test_a_new_item_sends_few_bytes_to_the_log_and_to_replicas(
    binary: str, own: redis.Redis
) -> None:
    """In a slice that is half full."""
    with LocalRedis(binary, *LOGGED) as server, redis.Redis.from_url(server.url) as client:
        own.replicaof("127.0.0.1", server.port)
        seen = TimeBloom.from_url(server.url, "news", slices=7, capacity=60_000)
        one, many = _spent(client, seen)
        own.replicaof("NO", "ONE")
    print(f"one by one {one[0]:.1f} and {one[1]:.1f}, in batches {many[0]:.1f} and {many[1]:.1f}")
    assert max(one) <= ONE_BY_ONE
    assert max(many) <= IN_BATCHES


@pytest.mark.parametrize("error_rate", [0.1, 1e-2, 1e-6, 1e-9])
def test_plan_says_how_many_bytes_go_to_the_log(binary: str, error_rate: float) -> None:
    """To a tenth."""
    with LocalRedis(binary, *LOGGED) as server, redis.Redis.from_url(server.url) as client:
        seen = TimeBloom.from_url(server.url, "news", capacity=60_000, error_rate=error_rate)
        (one, _), (many, _) = _spent(client, seen)
    assert log_bytes(seen.config.hashes) == pytest.approx((one, many), rel=0.1)


def _spent(client: redis.Redis, seen: TimeBloom) -> list[tuple[float, float]]:
    """What an item sends to the log and to a replica, in a slice that is half full: one by one, and in batches."""
    seen.add_many(f"first {i}" for i in range(30_000))
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


def test_a_call_of_one_item_has_15_words() -> None:
    """With 7 slices: 9 keys, 3 arguments."""
    calls = SliceCalls(configure("news", capacity=1000), 1557273600000, {})
    call = calls.add(7, Batch([digest("a")], token=LanePool().take()))
    assert len(call.words) == 15
