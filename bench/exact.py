"""The exact filter compared with other exact stores: memory, speed, and dead entries."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import redis
from contenders import (
    ADD,
    ADD_MANY,
    SADD,
    Contender,
    after_a_week,
    in_batches,
    one_by_one,
    scrapy_redis,
    set_many,
    set_nx_ex,
)
from race import check, compared
from serving import Cost, bytes_of_data, measure, placed, placements, slow_log
from streams import BATCH, fingerprints

from tbloom.demo.localredis import LocalRedis
from tbloom.engine.keys import Keys
from tbloom.exact import ExactFilter
from tbloom.items import encode, fingerprint

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.helpers import servers

EXACT = "ExactFilter"
EXACT_ADD, EXACT_ADD_MANY = f"{EXACT}: add", f"{EXACT}: add_many of {BATCH}"
SET_MANY = f"SET NX EX, pipelined by {BATCH}"
HASH = "HSET fingerprint expiry"
#: Shortest and longest lifetime of an item (s); each batch has another one.
SHORTEST, LONGEST = 3600, 86_400
#: Measurements of the exact filter's memory between two doublings.
STEPS = 4
#: Items that fill a store once before it is measured.
WARM = 10_000

Fill = Callable[[Sequence[str], int], Any]


class Store(NamedTuple):
    name: str
    #: Adds items with a lifetime (s).
    fill: Fill


def exact(
    server: LocalRedis,
    client: redis.Redis,
    *,
    sizes: list[int],
    stock: int,
    rounds: int,
    items: int,
    dead_items: int,
) -> dict[str, Any]:
    """The whole section. Memory is measured with ``sizes`` items; on other kinds of servers with the first size."""
    found: dict[str, Any] = {
        "server": version(client),
        "sizes": sizes,
        "memory": memory(server.url, client, sizes),
        "growth": growth(server.url, client, sizes[-1]),
        "fields": fields(server.url, client, sizes[0]),
    }
    for other, its_client in others(found["server"]):
        found["memory"] += memory(other.url, its_client, sizes[:1])
        found["fields"] += fields(other.url, its_client, sizes[0])
    found["speed"] = speed(server, client, stock=stock, rounds=rounds, items=items)
    found["dead"] = dead(server.url, client, dead_items)
    return found


def version(client: redis.Redis) -> str:
    """Such as Redis 7.0.15, or Valkey 9.1.2."""
    info = client.info("server")
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"


def others(but: str) -> Iterator[tuple[LocalRedis, redis.Redis]]:
    """Each further kind of server that this machine has, and a client."""
    for binary in servers.BINARIES.values():
        with LocalRedis(binary) as server, redis.Redis.from_url(server.url) as client:
            if version(client) != but:
                yield server, client


# --- memory


def memory(url: str, client: redis.Redis, sizes: list[int]) -> list[dict[str, Any]]:
    """Bytes per item in each store, with ``sizes`` items that live for 1 to 24 hours."""
    kind, everyone = version(client), fingerprints("exact", max(sizes))
    rows = []
    with stores(url) as all_of_them:  # the 0.5 MB that a server allocates once belong to no item
        for store in all_of_them:
            fill(store, everyone[:WARM])
            empty(client)
    for size in sizes:
        with stores(url) as all_of_them:
            for store in all_of_them:
                used = bytes_in(client, store, everyone[:size])
                empty(client)
                rows.append(
                    {"server": kind, "items": size, "name": store.name, "bytes": used / size}
                )
    return rows


def empty(client: redis.Redis) -> None:
    """Deletes everything, and returns when its memory is free. (By default Valkey frees it in a thread.)"""
    client.execute_command("FLUSHALL", "SYNC")


def bytes_in(client: redis.Redis, store: Store, items: Sequence[str]) -> int:
    before = bytes_of_data(client)
    fill(store, items)
    return bytes_of_data(client) - before


def fill(store: Store, items: Sequence[str]) -> None:
    chance = random.Random(len(items))
    for start in range(0, len(items), BATCH):
        store.fill(items[start : start + BATCH], chance.randrange(SHORTEST, LONGEST))


@contextmanager
def stores(url: str) -> Iterator[list[Store]]:
    with ExactFilter.from_url(url, "exact") as seen, redis.Redis.from_url(url) as server:

        def hset(some: Sequence[str], ttl: int) -> None:
            expires = int(time.time()) + ttl
            server.hset("expiries", mapping=dict.fromkeys(some, expires))

        yield [
            Store(EXACT, seen.add_many),
            Store(SADD, lambda some, _: server.sadd("dupefilter", *some)),
            Store("SET NX EX, a key each", partial(set_many, server)),
            Store(HASH, hset),
        ]


def growth(url: str, client: redis.Redis, limit: int) -> list[dict[str, Any]]:
    """The exact filter's bytes per item while it grows to ``limit`` items: all buckets fill up and are split together."""
    everyone, rows, done = fingerprints("exact", limit), [], 0
    with ExactFilter.from_url(url, "exact") as seen:
        before = bytes_of_data(client)
        for step in range(STEPS, -1, -1):
            items = round(limit * 2 ** (-step / STEPS))
            fill(Store(EXACT, seen.add_many), everyone[done:items])
            done, used = items, bytes_of_data(client) - before
            rows.append({"items": items, "bytes": used / items, "buckets": seen.info().buckets})
    empty(client)
    return rows


# --- memory of hashes whose fields have TTLs


def fields(url: str, client: redis.Redis, items: int) -> list[dict[str, Any]]:
    """Bytes per item in buckets of the same sizes: sorted sets, and hashes whose fields expire."""
    try:
        client.execute_command("HPEXPIREAT", "none", 1, "FIELDS", 1, "none")
    except redis.ResponseError:
        return []
    digests = [fingerprint(encode(item)) for item in fingerprints("exact", items)]
    rows = []
    for limit in (50, 80):
        parts = [part for part in split(digests, limit) if part]
        for name, write in (("sorted sets", _sorted_set), ("hashes, HPEXPIREAT", _hash)):
            before = bytes_of_data(client)
            with redis.Redis.from_url(url) as server:
                _write(server, write, parts)
            used = bytes_of_data(client) - before
            empty(client)
            row = {"name": name, "limit": limit, "buckets": len(parts), "bytes": used / items}
            rows.append({"server": version(client), **row})
    return rows


def split(digests: list[int], limit: int, bit: int = 47) -> Iterator[list[int]]:
    """Buckets of at most ``limit`` items, split as by the exact filter."""
    if len(digests) <= limit:
        yield digests
        return
    for half in (0, 1):
        yield from split([key for key in digests if key >> bit & 1 == half], limit, bit - 1)


def _write(server: redis.Redis, write: Callable[..., None], parts: list[list[int]]) -> None:
    keys, begun = Keys("exact"), time.time_ns() // 1_000_000
    chance = random.Random(len(parts))
    with server.pipeline(transaction=False) as pipeline:
        for number, part in enumerate(parts):
            key = f"{keys.buckets(f'{begun * 1000:016}')}{number + len(parts)}"
            expiries = {
                digest.to_bytes(16, "big"): chance.randrange(1000 * SHORTEST, 1000 * LONGEST)
                for digest in part
            }
            write(pipeline, key, expiries, begun)
            if number % 100 == 0:
                pipeline.execute()
        pipeline.execute()


def _sorted_set(pipeline: Any, key: str, expiries: dict[bytes, int], begun: int) -> None:
    pipeline.zadd(key, expiries)
    pipeline.pexpireat(key, begun + max(expiries.values()))


def _hash(pipeline: Any, key: str, expiries: dict[bytes, int], begun: int) -> None:
    pipeline.hset(key, mapping=dict.fromkeys(expiries, ""))
    for name, expires in expiries.items():
        pipeline.execute_command("HPEXPIREAT", key, begun + expires, "FIELDS", 1, name)


# --- speed


def speed(
    server: LocalRedis, client: redis.Redis, *, stock: int, rounds: int, items: int
) -> dict[str, Any]:
    """The cost of a new item, and of the same again, for each placement: medians of interleaved rounds."""
    rows = []
    with contenders(server.url, client, stock) as everybody:
        for placement in placements():
            costs = _rounds(server, client, everybody, placement, rounds=rounds, items=items)
            for contender in everybody:
                row: dict[str, Any] = {"placement": placement, "name": contender.name}
                for kind in ("new", "seen"):
                    row[kind] = compared(costs[contender.name, kind], costs[SADD, kind])
                rows.append(row)
    empty(client)
    return {"stock": stock, "rounds": rounds, "items": items, "rows": rows}


def _rounds(
    server: LocalRedis,
    client: redis.Redis,
    everybody: Sequence[Contender],
    placement: str,
    *,
    rounds: int,
    items: int,
) -> dict[tuple[str, str], list[Cost]]:
    chance = random.Random(rounds)
    costs: dict[tuple[str, str], list[Cost]] = {}
    with placed(server, placement):
        for number in range(rounds + 1):
            for contender in chance.sample(everybody, len(everybody)):
                these = fingerprints(f"{contender.name}, {placement} {number}", items)
                for kind in ("new", "seen"):
                    cost, answers = measure(client, contender.run, these)
                    check(contender.name, answers, [kind == "new"] * items)
                    if number:  # the first one warms up
                        costs.setdefault((contender.name, kind), []).append(cost)
    return costs


@contextmanager
def contenders(url: str, client: redis.Redis, stock: int) -> Iterator[list[Contender]]:
    """The contenders, each with ``stock`` items already (TimeBloom in each of its slices)."""
    everyone = fingerprints("stock", stock)
    with ExitStack() as stack:
        one, many = (
            stack.enter_context(ExactFilter.from_url(url, f"exact {way}"))
            for way in ("one", "many")
        )
        seen, seen_many = (
            stack.enter_context(after_a_week(url, client, name, stock)) for name in ("one", "many")
        )
        for exact_filter in (one, many):
            fill(Store(EXACT, exact_filter.add_many), everyone)
        yield [
            Contender(EXACT_ADD, "", one_by_one(one.add)),
            Contender(EXACT_ADD_MANY, "", in_batches(many.add_many)),
            Contender(ADD, "", one_by_one(seen.add)),
            Contender(ADD_MANY, "", in_batches(seen_many.add_many)),
            *scrapy_redis(url, everyone),
            set_nx_ex(url, everyone),
            Contender(SET_MANY, "", in_batches(partial(set_many, redis.Redis.from_url(url)))),
        ]


# --- dead entries


def _add(seen: ExactFilter, items: Sequence[str], ttl: int) -> None:
    for start in range(0, len(items), BATCH):
        seen.add_many(items[start : start + BATCH], ttl)


def dead(url: str, client: redis.Redis, items: int) -> dict[str, Any]:
    """The dead entries left after each number of single adds, when 90 % of all have expired.

    The live ones are in the same buckets, so no bucket expires as a whole.
    """
    everyone, few = fingerprints("dying", items), items // 10
    more = iter(fingerprints("after the dead", 1000))
    with slow_log(client, 0), ExactFilter.from_url(url, "dying") as seen:
        start = time.monotonic()
        _add(seen, everyone[:few], SHORTEST)
        # All the others must be there before the first of them expires, or they would be swept meanwhile.
        short = max(1, math.ceil(20 * (time.monotonic() - start)))
        _add(seen, everyone[few:], short)
        time.sleep(short + 0.1)
        rows, done = [], 0
        for adds in (0, 100, 300, 1000):
            client.slowlog_reset()
            for _ in range(adds - done):
                seen.add(next(more))
            held = [
                entry["duration"] / 1000
                for entry in client.slowlog_get(10_000)
                if entry["command"].upper().startswith(b"EVAL")
            ]
            done, info = adds, seen.info()
            row = {"adds": adds, "live": info.items, "dead": info.dead, "bytes": info.bytes}
            typical = median(held) if held else None
            rows.append({**row, "longest": max(held, default=None), "typical": typical})
    empty(client)
    return {"items": items, "short": short, "buckets": info.buckets, "rows": rows}
