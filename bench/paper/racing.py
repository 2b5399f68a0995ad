"""Three processes that add the same URLs: with the paper's code, which asks and then inserts, and with tbloom."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import redis

from bench.contest import fingerprints
from tbloom import TimeBloom

PROCESSES = 3
_SLICES, _HASHES, _BIT = 3, 6, 20


class PaperFilter:
    """The paper's filter: a bitmap in each slice, and a command for each bit."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._keys = [f"race:{n}" for n in range(_SLICES)]

    def add(self, fingerprint: str) -> bool:
        """True: it is new."""
        if self.exists(fingerprint):
            return False
        self.insert(fingerprint)
        return True

    def exists(self, fingerprint: str) -> bool:
        """Some slice has all its bits."""
        bits = [*self._bits(fingerprint)]
        return any(
            all([self._client.getbit(key, bit) for bit in bits])  # noqa: C419 - it asks for all of them
            for key in self._keys
        )

    def insert(self, fingerprint: str) -> None:
        """Sets its bits in the current slice."""
        for bit in self._bits(fingerprint):
            self._client.setbit(self._keys[-1], bit, 1)

    def _bits(self, fingerprint: str) -> Iterator[int]:
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
        seen = TimeBloom(client, "race", granularity="m", slices=_SLICES)
        add: Callable[[str], bool] = PaperFilter(client).add if kind == "paper" else seen.add
        items = fingerprints("race", urls)
        client.incr("race:ready")
        while int(client.get("race:ready") or 0) < PROCESSES:
            time.sleep(0.001)
        return sum(map(add, items))
