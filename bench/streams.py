"""The items for all contenders: fingerprints, as scrapy-redis makes them from requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha1

BATCH = 500


def fingerprints(group: str, count: int) -> list[str]:
    """``count`` texts of 40 hex digits; each group has its own."""
    return [sha1(f"{group} {i}".encode(), usedforsecurity=False).hexdigest() for i in range(count)]


def half_seen(group: str, count: int) -> Iterator[tuple[list[str], list[bool]]]:
    """Endless rounds of ``count`` items, and which of them are new; in each batch every other one is.

    The others were new in the batch before, so a batch alone does not show which are new, and a batch is as
    hard as single calls. (In the first round, the batch before is unknown.)
    """
    chance = random.Random(group)
    before: list[str] = fingerprints(f"{group} before", BATCH // 2)
    number = 0
    while True:
        items: list[str] = []
        truth: list[bool] = []
        while len(items) < count:
            new = fingerprints(f"{group} {number}", BATCH // 2)
            number += 1
            batch = [*((item, True) for item in new), *((item, False) for item in before)]
            chance.shuffle(batch)
            items += [item for item, _ in batch]
            truth += [is_new for _, is_new in batch]
            before = new
        yield items, truth
