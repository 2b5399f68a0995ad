"""The counted ids, and how they are written into past slices."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import redis
from pyroaring import BitMap

from tbloom import DistinctCounter
from tbloom.distinct.config import parse_entry
from tbloom.distinct.roaring import containers_of

CHUNK = 1 << 16


class Scenario(NamedTuple):
    """Two sets of ids, which share about half of them (of half of all ids, a half by chance)."""

    name: str
    a: np.ndarray
    b: np.ndarray
    #: Ids that are not in ``a``, in no order.
    spare: list[int]


def scenarios(space: int, spare: int) -> Iterator[Scenario]:
    """Few ids, scattered ones, consecutive ones in one run and in ten, and half of all."""
    for count in (10, space // 1000, space // 100, space // 10):
        chance = np.random.default_rng(count)
        ids = chance.choice(space, count * 3 // 2 + spare, replace=False)
        half = count // 2
        name = f"{count}" if count <= 10 else f"scattered: {100 * count / space:g} %"
        yield _scenario(name, ids[:count], ids[half : half + count], ids[half + count :])
    length = space // 100
    for runs in (1, 10):
        starts = np.arange(runs)[:, None] * (space // runs) + space // 20
        a = (starts + np.arange(length // runs)).ravel()
        name = f"clustered: {length:,} in {'a row' if runs == 1 else f'{runs} rows'}"
        yield _scenario(name, a, a + length // runs // 2, np.arange(spare) * 7)
    chance = np.random.default_rng(0)
    a, b = (np.flatnonzero(chance.random(space) < 0.5) for _ in range(2))
    others = np.setdiff1d(np.arange(space), a, assume_unique=True)
    yield _scenario(f"half of {space:,}", a, b, chance.choice(others, spare, replace=False))


def _scenario(name: str, a: np.ndarray, b: np.ndarray, spare: np.ndarray) -> Scenario:
    left = np.setdiff1d(spare, a)
    random.Random(len(left)).shuffle(left)
    return Scenario(name, np.sort(a), np.sort(b), left.tolist())


def roaring(ids: np.ndarray) -> BitMap:
    """The ids as a bitmap, with runs where these are smaller."""
    made = BitMap(ids.astype(np.uint32))
    made.run_optimize()
    return made


def bitmap(ids: np.ndarray) -> bytes:
    """The ids in Redis' order of bits."""
    bits = np.zeros(int(ids[-1]) // 8 * 8 + 8, np.uint8)
    bits[ids] = 1
    return np.packbits(bits).tobytes()


def write(client: redis.Redis, counter: DistinctCounter, label: str, ids: Sequence[int]) -> None:
    """Writes a slice in the counter's format; only the current one can be added to."""
    keys, made = counter.config.keys, roaring(np.asarray(ids))
    entry = parse_entry(client.hget(keys.counters(), counter.name))
    head = f"{len(made)} {time.time_ns() // 1000} {entry.generation}"
    key = keys.piece(counter.name, label)
    client.delete(key)
    client.hset(key, mapping={"head": head, **containers_of(made)})
