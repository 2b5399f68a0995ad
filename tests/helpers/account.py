"""The exact account in which every test of this folder ends."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis

from tbloom import TimeBloom

#: `make faults`; else the short form.
FULL = os.environ.get("TBLOOM_FAULTS") == "full"
#: (Error rate 1e-9, so that a false positive doesn't pass for a lost item.)
PARAMETERS: Any = {"capacity": 200_000, "error_rate": 1e-9, "slices": 2}
#: What a client raises when its resends were in vain, or when it has none.
NO_ANSWER = (redis.ConnectionError, redis.TimeoutError)


def new_seed() -> int:
    """One to be printed with a failure; TBLOOM_SEED gives the same again."""
    seed = int(os.environ.get("TBLOOM_SEED") or random.randrange(1 << 32))
    print(f"TBLOOM_SEED={seed}")
    return seed


def names(number: int, kind: str = "item") -> list[str]:
    """That number of different items."""
    return [f"{kind} {n}" for n in range(number)]


def pieces(items: list[str], seed: int) -> list[list[str]]:
    """The items in a random order, some singly."""
    shuffled = random.Random(seed).sample(items, len(items))
    return [
        piece
        for start in range(0, len(items), 300)
        for piece in ([shuffled[start]], shuffled[start + 1 : start + 300])
    ]


def insist(call: Callable[..., Any], *arguments: Any) -> Any:
    """Makes a call until it is answered."""
    while True:
        with suppress(*NO_ANSWER):
            return call(*arguments)


class Hasty:
    """An asyncio store whose calls are cancelled after the time (s) that ``limit`` gives, or, for None, are not."""

    def __init__(self, seen: Any, limit: Callable[[], float | None]) -> None:
        self._seen, self._limit = seen, limit

    def __getattr__(self, verb: str) -> Callable[[Any], Any]:
        return lambda items: asyncio.wait_for(getattr(self._seen, verb)(items), self._limit())


class Account:
    """What was offered to a filter, by any number of threads or tasks, and the answers.

    It is exact when each offer was answered, each distinct item was new once, and the filter
    holds them all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.offered: Counter[str] = Counter()
        self.new: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        #: How often a call ended in an error and was made again.
        self.repeats = 0

    def offer(
        self, seen: TimeBloom, items: Sequence[str], *, repeat_on: tuple[Any, ...] = ()
    ) -> list[bool]:
        """Adds the items, a single one by ``add``, on the same object until there is an answer."""
        self._offer(items)
        while True:
            with suppress(*repeat_on):
                answers = seen.add_many(items) if len(items) > 1 else [seen.add(items[0])]
                return self._note(items, answers)
            self._repeat()

    async def offer_async(
        self, seen: Any, items: Sequence[str], *, repeat_on: tuple[Any, ...] = ()
    ) -> list[bool]:
        """The same, for a filter whose verbs are awaited."""
        self._offer(items)
        while True:
            with suppress(*repeat_on):
                answers = (
                    await seen.add_many(items) if len(items) > 1 else [await seen.add(items[0])]
                )
                return self._note(items, answers)
            self._repeat()

    def note(self, items: Sequence[str], answers: list[bool]) -> None:
        """Notes items that were offered, and the answers."""
        self._offer(items)
        self._note(items, answers)

    def _offer(self, items: Sequence[str]) -> None:
        with self._lock:
            self.offered.update(items)

    def _repeat(self) -> None:
        with self._lock:
            self.repeats += 1

    def _note(self, items: Sequence[str], answers: list[bool]) -> list[bool]:
        with self._lock:
            for item, new in zip(items, answers, strict=True):
                (self.new if new else self.seen)[item] += 1
        return answers

    def check_answers(self) -> None:
        """Each offer has one answer; each item was new once."""
        print(
            f"{self.offered.total()} offered = {self.new.total()} new + {self.seen.total()} seen; "
            f"{self.repeats} calls repeated"
        )
        assert self.offered == self.new + self.seen
        assert Counter([*self.offered]) == self.new

    def check(self, seen: TimeBloom) -> None:
        """The answers are right, and the filter holds each item once."""
        self.check_answers()
        items = list(self.offered)
        assert all(seen.contains_many(items))
        assert seen.info().items == len(items)
