"""The cost of an add in small and large filters, and their memory in Redis."""

from __future__ import annotations

from typing import Any

import redis
from contenders import (
    SLICES,
    Contender,
    after_a_week,
    in_batches,
    one_by_one,
    tbloom_filter,
)
from race import run_rounds
from serving import bytes_of_data, medians, slow_log
from streams import fingerprints, rounds_of

from tbloom import TimeBloom
from tbloom.demo.localredis import LocalRedis

LARGEST_SET = 10**6


def capacities(
    server: LocalRedis, client: redis.Redis, *, sizes: list[int], rounds: int, items: int
) -> dict[str, Any]:
    """Medians of interleaved rounds, for filters with each number of items per slice, and their sizes."""
    filters = {size: after_a_week(server.url, client, f"of {size}", size) for size in sizes}
    costs = run_rounds(
        server,
        client,
        [Contender(str(size), "", one_by_one(seen.add)) for size, seen in filters.items()],
        rounds=rounds,
        items=items,
    )
    rows = [
        {
            "capacity": size,
            "shards": seen.config.shards,
            "hashes": seen.config.hashes,
            **medians(costs[str(size)]),
            **memory(client, seen),
            "set_bytes": bytes_in_set(client, size) if size <= LARGEST_SET else None,
        }
        for size, seen in filters.items()
    ]
    client.flushall()
    for seen in filters.values():
        seen.close()
    return {"rounds": rounds, "items": items, "rows": rows}


def bytes_in_set(client: redis.Redis, items: int) -> float:
    """Bytes per fingerprint in a set, as scrapy-redis keeps them."""
    stock, before = fingerprints("set", items), bytes_of_data(client)
    for start in range(0, items, 1000):
        client.sadd("set", *stock[start : start + 1000])
    used = bytes_of_data(client) - before
    client.unlink("set")
    return float(used) / items


def memory(client: redis.Redis, seen: TimeBloom) -> dict[str, float]:
    """Bits per item and slice of a full window: of the bitmaps, and as Redis has allocated them."""
    keys = seen.keys()
    items = SLICES * seen.config.capacity
    return {
        "bits": 8 * sum(client.strlen(key) for key in keys) / items,
        "allocated_bits": 8 * sum(client.memory_usage(key, samples=0) for key in keys) / items,
    }


def hashes(
    server: LocalRedis,
    client: redis.Redis,
    *,
    numbers: range,
    capacity: int,
    rounds: int,
    items: int,
) -> dict[str, Any]:
    """For each number of hashes: the bits for the error rate, and the cost of an add."""
    filters = {k: after_a_week(server.url, client, f"k={k}", capacity, hashes=k) for k in numbers}
    adds = [Contender(f"add {k}", "", one_by_one(seen.add)) for k, seen in filters.items()]
    batches = [Contender(f"many {k}", "", in_batches(seen.add_many)) for k, seen in filters.items()]
    costs = run_rounds(server, client, adds, rounds=rounds, items=items)
    costs |= run_rounds(server, client, batches, rounds=rounds, items=items, group="batches")
    rows = [
        {
            "hashes": k,
            "bits": seen.config.bits / capacity,
            "one": medians(costs[f"add {k}"]),
            "many": medians(costs[f"many {k}"]),
        }
        for k, seen in filters.items()
    ]
    chosen = tbloom_filter(server.url, "chosen", capacity)
    client.flushall()
    for seen in [*filters.values(), chosen]:
        seen.close()
    return {
        "capacity": capacity,
        "rounds": rounds,
        "items": items,
        "chosen": chosen.config.hashes,
        "rows": rows,
    }


def longest_call(
    server: LocalRedis, client: redis.Redis, *, items: int, times: int
) -> dict[str, Any]:
    """The longest (ms) that one script call holds the server, of add_many with this number of items."""
    with (
        slow_log(client, 100),
        after_a_week(server.url, client, "longest", 1_000_000) as seen,
    ):
        stream = rounds_of("longest", items)
        client.config_resetstat()
        client.slowlog_reset()
        for _ in range(times):
            seen.add_many(next(stream)[0])
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        slow = [
            entry["duration"] / 1000
            for entry in client.slowlog_get(10_000)
            if entry["command"].upper().startswith(b"EVAL")
        ]
    client.flushall()
    return {"items": items, "times": times, "calls": calls, "longest": max(slow, default=0.0)}
