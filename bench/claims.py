"""The cost of a claim, compared with an add: one by one, interleaved, on a local Redis.

    make bench-claims

Prints medians over the rounds, the server's time per call, and the memory of a claim.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import redis

from tbloom import TimeBloom
from tbloom.demo.localredis import LocalRedis, find_binary

ROUNDS, ITEMS = 9, 3000


def seconds_per_call(call: Any, items: list[str]) -> float:
    start = time.perf_counter()
    for item in items:
        call(item)
    return (time.perf_counter() - start) / len(items)


def main() -> None:
    binary = find_binary()
    assert binary, "no redis-server"
    with LocalRedis(binary) as server, redis.Redis.from_url(server.url) as client:
        version = client.info("server")["redis_version"]
        figures: dict[str, list[tuple[float, float]]] = {}
        with TimeBloom.from_url(server.url, "bench") as seen:
            verbs = {
                "add, new": seen.add,
                "add, seen": seen.add,
                "claim, new": seen.claim,
                "commit": seen.commit,
                "claim, seen": seen.claim,
                "claim, new, with a note of 200 characters": lambda item: seen.claim(
                    item, note="x" * 200
                ),
                "release": seen.release,
            }
            groups = ["added", "added", "done", "done", "done", "given up", "given up"]
            for round_ in range(ROUNDS + 1):
                for (name, verb), group in zip(verbs.items(), groups, strict=True):
                    items = [f"{group} {round_} {i}" for i in range(ITEMS)]
                    client.config_resetstat()
                    took = seconds_per_call(verb, items)
                    served = client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"]
                    if round_:  # the first one warms up
                        figures.setdefault(name, []).append((took * 1e6, served))
            base = median(took for took, _ in figures["add, new"])
            print(
                f"Redis {version}, 7 slices, 1e-4, one by one, medians of {ROUNDS} rounds of {ITEMS}"
            )
            for name, rows in figures.items():
                took = median(row[0] for row in rows)
                served = median(row[1] for row in rows)
                print(
                    f"{name:42} {took:6.0f} us  {took / base:5.2f} x add  server {served:5.1f} us"
                )
            items = [f"held {i}" for i in range(100_000)]
            seen.claim_many(items)
            used = client.memory_usage("{bench}:claims", samples=0)
            print(f"memory of a claim: {used / len(items):.0f} bytes (100,000 at once)")
            seen.release_many(items)


if __name__ == "__main__":
    main()
