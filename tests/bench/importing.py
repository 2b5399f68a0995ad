"""How fast ``tbloom import`` moves a set of a million fingerprints, source and target on one local Redis.

    make bench-import

Prints, for the current slice and for the oldest one, items per second, what an item costs client and
server, and the server's longest command.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time

import redis
from serving import command_stats

from tbloom import TimeBloom
from tbloom.cli.localredis import LocalRedis, find_binary

ITEMS, ROUNDS, FINGERPRINT_BYTES = 1_000_000, 1, 20
TBLOOM = [sys.executable, "-c", "import sys; from tbloom.cli import main; sys.exit(main())"]


def fill(client: redis.Redis) -> None:
    """Makes the set that is imported."""
    chance = random.Random(1)
    for _ in range(0, ITEMS, 10_000):
        client.sadd("old", *(chance.randbytes(FINGERPRINT_BYTES).hex() for _ in range(10_000)))


def longest_us(client: redis.Redis) -> int:
    """The longest of the commands that the slow log has."""
    return max((entry["duration"] for entry in client.slowlog_get(10_000)), default=0)


def server_seconds(client: redis.Redis) -> float:
    """Processor time of the server's process."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def measure(server: LocalRedis, client: redis.Redis, title: str, *options: str) -> None:
    """One import, as a user runs it."""
    client.config_resetstat()
    client.slowlog_reset()
    served, start = server_seconds(client), time.perf_counter()
    command = [*TBLOOM, "import", server.url, "new", "--create", "--from-set", "old", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    elapsed, served = time.perf_counter() - start, server_seconds(client) - served
    stats = command_stats(client)
    commands = ", ".join(
        f"{name} {stats[name]['usec'] / ITEMS:.2f}" for name in ("evalsha", "sscan")
    )
    slow = sum(entry["duration"] > 10_000 for entry in client.slowlog_get(10_000))
    print(
        f"{title:22} {ITEMS / elapsed:9,.0f} items/s with start and end; an item takes the server "
        f"{served / ITEMS * 1e6:.2f} us in all ({commands}); longest command "
        f"{longest_us(client) / 1000:.1f} ms, over 10 ms: {slow}"
    )
    print(f"{'':22} {done.stderr.splitlines()[-1]}")


def main() -> None:
    binary = find_binary()
    assert binary, "no redis-server"
    with LocalRedis(binary) as server, redis.Redis.from_url(server.url) as client:
        print(
            f"Redis {client.info('server')['redis_version']}, {ITEMS:,} fingerprints, 7 slices, 1e-4"
        )
        client.config_set("slowlog-log-slower-than", 1000)
        client.config_set("slowlog-max-len", 10_000)
        fill(client)
        with TimeBloom.from_url(server.url, "new") as seen:
            for _ in range(ROUNDS):
                oldest = seen.info().slices[0].label
                measure(server, client, "current slice")
                measure(server, client, "the same again")
                seen.clear()
                measure(server, client, "oldest of 7", "--slice", oldest)
                seen.clear()
        client.delete("old")


if __name__ == "__main__":
    main()
