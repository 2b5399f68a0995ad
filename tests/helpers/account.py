"""The exact account in which tests of faults end."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

#: (Error rate 1e-9, so that a false positive doesn't pass for a lost item.)
PARAMETERS: Any = {"capacity": 200_000, "error_rate": 1e-9, "slices": 2}


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


class Account:
    """What was offered to a filter, by any number of threads or tasks, and the answers.

    It is exact when each distinct item was new once, and the filter holds them all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.new: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    @property
    def offered(self) -> Counter[str]:
        """All items that have an answer, each as often as it was offered."""
        with self._lock:
            return self.new + self.seen

    async def offer_async(self, seen: Any, items: Sequence[str]) -> None:
        """Adds the items, a single one by ``add``."""
        is_one = len(items) == 1
        answers = [await seen.add(items[0])] if is_one else await seen.add_many(items)
        self.note(items, answers)

    def note(self, items: Sequence[str], answers: list[bool]) -> None:
        """Notes the answers to items that were offered."""
        with self._lock:
            for item, new in zip(items, answers, strict=True):
                (self.new if new else self.seen)[item] += 1

    def check_answers(self) -> None:
        """Each item was new once."""
        offered = self.offered
        print(f"{offered.total()} offered = {self.new.total()} new + {self.seen.total()} seen")
        assert Counter([*offered]) == self.new
