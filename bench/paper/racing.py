"""Three processes that add the same URLs: by the paper's code, which checks and then inserts, and by tbloom."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import redis

from bench.contest import fingerprints
from bench.tables import Table
from tbloom import TimeBloom

PROCESSES = 3
_HASHES, _BIT = 6, 20
_KEYS = "race:0", "race:1", "race:2"


def add(client: redis.Redis, fingerprint: str) -> bool:
    """Add as the paper does: a bitmap for each slice, and a command for each bit. Return whether it was new."""
    if exists(client, fingerprint):
        return False
    insert(client, fingerprint)
    return True


def exists(client: redis.Redis, fingerprint: str) -> bool:
    """Return whether a slice has all bits of the fingerprint."""
    slices = ([client.getbit(key, bit) for bit in _bits(fingerprint)] for key in _KEYS)
    return any(map(all, slices))


def insert(client: redis.Redis, fingerprint: str) -> None:
    """Set its bits in the current slice."""
    for bit in _bits(fingerprint):
        client.setbit(_KEYS[-1], bit, 1)


def _bits(fingerprint: str) -> Iterator[int]:
    for seed in range(_HASHES):
        value = 0
        for character in fingerprint:
            value += seed * value + ord(character)
        yield value & (1 << _BIT) - 1


def measure(url: str, urls: int) -> Table:
    """Return how often the answer was "new" with the paper's code, and with tbloom."""
    rows: list[list[Any]] = []
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for name in ("the paper's code", "`TimeBloom.add`"):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            runs = pool.map(_run, [url] * PROCESSES, [urls] * PROCESSES, [name] * PROCESSES)
            new = sum(runs)
            rows.append([name, urls, new, new - urls])
    return Table("raced", {"": "", "URLs": ",d", 'answers "new"': ",d", "too many": ",d"}, rows)


def _run(url: str, urls: int, name: str) -> int:
    """Add the URLs in one process, once all processes are ready. Return how often the answer was "new"."""
    with redis.Redis.from_url(url) as client:
        seen = TimeBloom(client, "race", granularity="m", slices=len(_KEYS))
        way = seen.add if name == "`TimeBloom.add`" else partial(add, client)
        items = fingerprints("race", urls)
        client.incr("race:ready")
        while int(client.get("race:ready") or 0) < PROCESSES:
            time.sleep(0.001)
        return sum(map(way, items))
