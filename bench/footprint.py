"""The memory of each filter, and its rate of mistakes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
import walrus
import window
from contenders import ERROR_RATE, SLICES, tbloom_filter, walrus_bytes
from pottery import BloomFilter as PotteryFilter
from scrapy_redis_bloomfilter.bloomfilter import BloomFilter as ScrapyRedisFilter
from serving import bytes_of_data, redisbloom_version
from streams import fingerprints

from tbloom.demo.localredis import LocalRedis

CHUNK = 2_000
#: The size in scrapy-redis-bloomfilter's documents: 2^30 bits for 10^8 items.
BITS_PER_ITEM = 2**30 / 10**8


class Store(NamedTuple):
    name: str
    add_many: Callable[[Sequence[str]], Any]
    #: None: it makes no mistakes.
    count_seen: Callable[[Sequence[str]], int] | None


def footprint(
    server: LocalRedis, client: redis.Redis, *, items: int, questions: int, seconds: float
) -> dict[str, Any]:
    """Bytes per item, and the rate of mistakes, measured with ``questions`` or for ``seconds``."""
    everyone = fingerprints("kept", items)
    others = fingerprints("never added", questions)
    rows = []
    for store in stores(server.url, client, items):
        before = bytes_of_data(client)
        for start in range(0, items, CHUNK):
            store.add_many(everyone[start : start + CHUNK])
        exact = store.count_seen is None
        used = bytes_of_data(client) - before if exact else bytes_of_keys(client)
        rows.append({"name": store.name, "bytes": used / items, **mistakes(store, others, seconds)})
        client.flushall()
    rows.insert(0, tbloom_window(server.url, client, everyone, others, seconds))
    return {"items": items, "rows": rows}


def bytes_of_keys(client: redis.Redis) -> int:
    """Bytes that Redis has allocated for all keys (few and large ones)."""
    return sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


def mistakes(store: Store, others: list[str], seconds: float) -> dict[str, int | None]:
    if store.count_seen is None:
        return {"asked": None, "mistakes": None}
    asked, wrong, end = 0, 0, time.monotonic() + seconds
    while asked < len(others) and time.monotonic() < end:
        some = others[asked : asked + CHUNK]
        wrong += store.count_seen(some)
        asked += len(some)
    return {"asked": asked, "mistakes": wrong}


def tbloom_window(
    url: str, client: redis.Redis, items: list[str], others: list[str], seconds: float
) -> dict[str, Any]:
    """A whole window of full slices: the current one is filled and then renamed to an older one."""
    per_slice = math.ceil(len(items) / SLICES)
    with tbloom_filter(url, "kept", per_slice + 1) as seen:  # one more, else it would grow
        older = seen.keys()[:-1]
        for start in range(0, len(items), per_slice):
            seen.add_many(items[start : start + per_slice])
            if older and start + per_slice < len(items):
                window.move_to(client, seen, older.pop())
        info = seen.info()
        assert abs(info.items - len(items)) <= len(items) * ERROR_RATE * 2, info.items
        used = bytes_of_keys(client)
        store = Store("tbloom, 7 slices", seen.add_many, lambda some: sum(seen.contains_many(some)))
        row = {"name": store.name, "bytes": used / len(items), **mistakes(store, others, seconds)}
        seen.clear()
    client.flushall()
    return row


def stores(url: str, client: redis.Redis, items: int) -> Iterator[Store]:
    """The peers, each with the size for ``items`` items."""
    server = redis.Redis.from_url(url)
    yield Store("scrapy-redis: SADD", lambda some: server.sadd("dupefilter", *some), None)
    yield Store("SET NX EX, a key each", lambda some: _set_many(server, some), None)
    yield scrapy_redis_bloomfilter(server, math.ceil(math.log2(items * BITS_PER_ITEM)))
    pottery = PotteryFilter(
        num_elements=items, false_positives=ERROR_RATE, redis=server, key="pottery"
    )
    yield Store("pottery", pottery.update, lambda some: sum(pottery.contains_many(*some)))
    yield walrus_filter(url, items)
    if redisbloom_version(client):
        yield redisbloom(server, items)
        yield redisbloom_slices(server, items)


def _set_many(server: redis.Redis, items: Sequence[str]) -> None:
    with server.pipeline(transaction=False) as pipeline:
        for item in items:
            pipeline.set(item, 1, nx=True, ex=604_800)
        pipeline.execute()


def scrapy_redis_bloomfilter(server: redis.Redis, bit: int) -> Store:
    """Its own offsets, but in pipelines: a call for each bit would take minutes."""
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


def walrus_filter(url: str, items: int) -> Store:
    address = urlsplit(url)
    bloom = walrus.Database(address.hostname, address.port).bloom_filter(
        "walrus", size=walrus_bytes(items)
    )
    return Store(
        "walrus",
        lambda some: [bloom.add(item) for item in some],
        lambda some: sum(item in bloom for item in some),
    )


def redisbloom(server: redis.Redis, items: int) -> Store:
    def call(command: str, some: Sequence[str]) -> list[int]:
        return server.execute_command(command, "bf", *some)

    server.execute_command("BF.RESERVE", "bf", ERROR_RATE, items)
    return Store(
        "RedisBloom, one filter",
        lambda some: call("BF.MADD", some),
        lambda some: sum(call("BF.MEXISTS", some)),
    )


def redisbloom_slices(server: redis.Redis, items: int) -> Store:
    """As many items in each of 7 filters."""
    keys = [f"bf{i}" for i in range(SLICES)]

    def add_many(some: Sequence[str]) -> None:
        for i, key in enumerate(keys):
            server.execute_command("BF.MADD", key, *some[i::SLICES])

    def count_seen(some: Sequence[str]) -> int:
        answers = [server.execute_command("BF.MEXISTS", key, *some) for key in keys]
        return sum(any(of_item) for of_item in zip(*answers, strict=True))

    for key in keys:
        server.execute_command("BF.RESERVE", key, ERROR_RATE / SLICES, math.ceil(items / SLICES))
    return Store("RedisBloom, 7 filters", add_many, count_seen)
