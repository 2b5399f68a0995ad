"""The memory of each filter, and its error rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import redis
from scrapy_redis_bloomfilter.bloomfilter import BloomFilter as ScrapyRedisFilter

from bench.contenders import (
    DAYS,
    ERROR_RATE,
    HSETEX,
    SLICES,
    arguments,
    has_hsetex,
    raw,
    set_field,
    set_many,
    with_valkey,
)
from bench.contest import SADD, SET, fingerprints
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.exact import ExactFilter

CHUNK = 2_000
#: The size in scrapy-redis-bloomfilter's documents: 2^30 bits for 10^8 items.
BITS_PER_ITEM = 2**30 / 10**8


class Store(NamedTuple):
    """A filter that is made for a number of items."""

    name: str
    add_many: Callable[[Sequence[str]], Any]
    #: None: the filter is exact.
    count_seen: Callable[[Sequence[str]], int] | None


def measure(server: Server, *, items: int = 97_300, questions: int = 200_000) -> list[Table]:
    """Return bytes per item, and the error rate by ``questions`` items that were never added."""
    with with_valkey(server) as servers:
        *others, (valkey, also) = servers.items()
        found = _found(server, items, questions)
        there = _found(also, items, 0) if others else {}
    names = [*dict.fromkeys([*there, *found])]
    beside = found[SADD][0]
    rows = [[name, *_cells(found.get(name), beside), there.get(name, (None,))[0]] for name in names]
    columns = {
        "": "",
        "x `SADD`": ".2f",
        "bytes per item": ".1f",
        "false positives": ".1e",
        f"{valkey}: bytes per item": ".1f",
    }
    return [Table("footprint", columns, rows)]


def _cells(found: tuple[float, float | None] | None, beside: float) -> list[float | None]:
    return [found[0] / beside, *found] if found else [None] * 3


def _found(server: Server, items: int, questions: int) -> dict[str, tuple[float, float | None]]:
    """Return each store's bytes per item, and its error rate."""
    kept, absent = fingerprints("kept", items), fingerprints("never added", questions)
    asked = [absent[start : start + CHUNK] for start in range(0, questions, CHUNK)]
    found = {}
    for store in _stores(server, items):
        before = server.bytes_of_data()
        chunk = math.ceil(items / SLICES)
        for start in range(0, items, chunk):
            store.add_many(kept[start : start + chunk])
        exact = store.count_seen is None
        used = server.bytes_of_data() - before if exact else server.bytes_of_keys()
        count = store.count_seen if questions else None
        found[store.name] = used / items, count and sum(map(count, asked)) / questions
        server.empty()
    return found


def _stores(server: Server, items: int) -> Iterator[Store]:
    """Yield the filters, made for ``items`` items. These come in as many chunks as tbloom has slices."""
    client = redis.Redis.from_url(server.url)
    # With room for one more, because a full slice grows.
    with TimeBloom.from_url(server.url, "kept", **arguments(math.ceil(items / SLICES) + 1)) as seen:
        labels = iter([slice.label for slice in seen.info().slices])
        yield Store(
            "tbloom, 7 slices",
            lambda some: seen.import_many(some, next(labels)),
            lambda some: sum(seen.contains_many(some)),
        )
    with ExactFilter.from_url(server.url, "exact") as exact:
        exact.add_many(fingerprints("what a server allocates once", 10_000))
        server.empty()
        yield Store("`ExactFilter`", exact.add_many, None)
    yield Store(SADD, lambda some: client.sadd("dupefilter", *some), None)
    yield Store(SET, lambda some: set_many(client, some), None)
    days = iter(range(SLICES))
    yield Store(DAYS, lambda some: client.sadd(f"day {next(days)}", *map(raw, some)), None)
    if has_hsetex(server):

        def set_fields(some: Sequence[str]) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for item in some:
                    set_field(pipeline, "hash", item)
                pipeline.execute()

        yield Store(HSETEX, set_fields, None)
    yield _scrapy_redis_bloomfilter(client, math.ceil(math.log2(items * BITS_PER_ITEM)))
    if server.redisbloom:
        yield _redisbloom(client, "RedisBloom, one filter", items, 1)
        yield _redisbloom(client, f"RedisBloom, {SLICES} filters", items, SLICES)


def _scrapy_redis_bloomfilter(server: redis.Redis, bit: int) -> Store:
    """Return the filter with its own offsets, but in pipelines, because a call for each bit would take minutes."""
    bloom = ScrapyRedisFilter(None, "bloomfilter", bit, 6)

    def call(command: str, items: Sequence[str], *more: Any) -> list[int]:
        with server.pipeline(transaction=False) as pipeline:
            for item in items:
                for hash_map in bloom.maps:
                    pipeline.execute_command(command, bloom.key, hash_map.hash(item), *more)
            return pipeline.execute()

    def count_seen(items: Sequence[str]) -> int:
        bits = call("GETBIT", items)
        return sum(all(bits[i : i + 6]) for i in range(0, len(bits), 6))

    return Store("scrapy-redis-bloomfilter", lambda some: call("SETBIT", some, 1), count_seen)


def _redisbloom(server: redis.Redis, name: str, items: int, filters: int) -> Store:
    """Return a store that spreads the items over this number of filters."""
    keys = [f"{name} {i}" for i in range(filters)]

    def add_many(some: Sequence[str]) -> None:
        for i, key in enumerate(keys):
            server.execute_command("BF.MADD", key, *some[i::filters])

    def count_seen(some: Sequence[str]) -> int:
        answers = [server.execute_command("BF.MEXISTS", key, *some) for key in keys]
        return sum(any(of_item) for of_item in zip(*answers, strict=True))

    # With room for a few more, because a full filter grows to three times the size.
    room = math.ceil(items / filters) + filters
    for key in keys:
        server.execute_command("BF.RESERVE", key, ERROR_RATE / filters, room)
    return Store(name, add_many, count_seen)
