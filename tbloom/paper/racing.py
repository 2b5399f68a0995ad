"""Three processes that add the same URLs: with the paper's code, which asks and then inserts, and with tbloom."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import redis

from tbloom.bloom.sync import TimeBloom

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES = 3
_SLICES, _HASHES, _BIT = 3, 6, 20
_READY = "race:ready"


class Race(NamedTuple):
    """How often the answer was "new" to the processes of a race."""

    urls: int
    #: With the paper's code, and with tbloom; ``urls`` is right.
    paper: int
    tbloom: int


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
        bits = self._bits(fingerprint)
        return any(
            all([self._client.getbit(key, bit) for bit in bits])  # noqa: C419 - it asks for all of them
            for key in self._keys
        )

    def insert(self, fingerprint: str) -> None:
        """Sets its bits in the current slice."""
        for bit in self._bits(fingerprint):
            self._client.setbit(self._keys[-1], bit, 1)

    def _bits(self, fingerprint: str) -> list[int]:
        return [_hash(seed, fingerprint) for seed in range(_HASHES)]


def _hash(seed: int, text: str) -> int:
    value = 0
    for character in text:
        value += seed * value + ord(character)
    return value & (1 << _BIT) - 1


def fingerprints(urls: int) -> list[str]:
    """Fingerprints of that number of URLs."""
    return [hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest() for n in range(urls)]


def race(url: str, urls: int) -> Race:
    """Runs a race of each kind, on an empty server."""
    spawn = multiprocessing.get_context("spawn")
    # Ctrl-C goes to the parent only, which waits for the end of the race.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    answers = {}
    with ProcessPoolExecutor(PROCESSES, spawn, signal.signal, quiet) as pool:
        for kind in ("paper", "tbloom"):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            runs = pool.map(_run, [url] * PROCESSES, [urls] * PROCESSES, [kind] * PROCESSES)
            answers[kind] = sum(runs)
    return Race(urls, **answers)


def _run(url: str, urls: int, kind: str) -> int:
    """A process: adds the URLs once all processes are there; returns how often the answer was "new"."""
    with redis.Redis.from_url(url) as client:
        seen = TimeBloom(client, "race", granularity="m", slices=_SLICES)
        add: Callable[[str], bool] = PaperFilter(client).add if kind == "paper" else seen.add
        items = fingerprints(urls)
        client.incr(_READY)
        while int(client.get(_READY) or 0) < PROCESSES:
            time.sleep(0.001)
        return sum(map(add, items))
