"""The items for all contenders: fingerprints, as scrapy-redis makes them from requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha1

BATCH = 500


def fingerprints(group: str, count: int) -> list[str]:
    """``count`` texts of 40 hex digits; each group has its own."""
    return [sha1(f"{group} {i}".encode(), usedforsecurity=False).hexdigest() for i in range(count)]


def rounds_of(
    group: str, count: int, duplicates: int = 50
) -> Iterator[tuple[list[str], list[bool]]]:
    """Endless rounds of ``count`` items, and which of them are new; ``duplicates`` % of each batch are not.

    These are the newest of the batches before, so a batch alone does not show which are new, and a batch is as
    hard as single calls. (In the first round, the batch before is unknown.)
    """
    chance = random.Random(group)
    seen = BATCH * duplicates // 100
    before: list[str] = fingerprints(f"{group} before", seen)
    number = 0
    while True:
        items: list[str] = []
        truth: list[bool] = []
        while len(items) < count:
            new = fingerprints(f"{group} {number}", BATCH - seen)
            number += 1
            batch = [*((item, True) for item in new), *((item, False) for item in before)]
            chance.shuffle(batch)
            items += [item for item, _ in batch]
            truth += [is_new for _, is_new in batch]
            before = [*new, *before][:seen]
        yield items, truth
