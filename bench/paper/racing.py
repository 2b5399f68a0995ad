"""Three processes that add the same URLs: with the paper's code, which asks and then inserts, and with tbloom."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import redis

from bench.contest import fingerprints
from tbloom import TimeBloom

PROCESSES = 3
_HASHES, _BIT = 6, 20
_KEYS = "race:0", "race:1", "race:2"


def add(client: redis.Redis, fingerprint: str) -> bool:
    """The paper's way: a bitmap in each slice, and a command for each bit. True: it is new."""
    if exists(client, fingerprint):
        return False
    insert(client, fingerprint)
    return True


def exists(client: redis.Redis, fingerprint: str) -> bool:
    """Some slice has all its bits."""
    slices = ([client.getbit(key, bit) for bit in _bits(fingerprint)] for key in _KEYS)
    return any(map(all, slices))


def insert(client: redis.Redis, fingerprint: str) -> None:
    """Sets its bits in the current slice."""
    for bit in _bits(fingerprint):
        client.setbit(_KEYS[-1], bit, 1)


def _bits(fingerprint: str) -> Iterator[int]:
    for seed in range(_HASHES):
        value = 0
        for character in fingerprint:
            value += seed * value + ord(character)
        yield value & (1 << _BIT) - 1


def race(url: str, urls: int) -> dict[str, int]:
    """How often the answer was "new" with the paper's code, and with tbloom; ``urls`` is right."""
    answers = {"urls": urls}
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for kind in ("paper", "tbloom"):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            runs = pool.map(_run, [url] * PROCESSES, [urls] * PROCESSES, [kind] * PROCESSES)
            answers[kind] = sum(runs)
    return answers


def _run(url: str, urls: int, kind: str) -> int:
    """A process: adds the URLs once all processes are there; returns how often the answer was "new"."""
    with redis.Redis.from_url(url) as client:
        seen = TimeBloom(client, "race", granularity="m", slices=len(_KEYS))
        ways: dict[str, Callable[[str], bool]] = {"paper": partial(add, client), "tbloom": seen.add}
        items = fingerprints("race", urls)
        client.incr("race:ready")
        while int(client.get("race:ready") or 0) < PROCESSES:
            time.sleep(0.001)
        return sum(map(ways[kind], items))
