"""Rounds in which contenders add the same items, which look like the fingerprints of scrapy-redis."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha1
from statistics import median
from typing import Any, NamedTuple

from bench.progress import shown
from bench.serving import Cost, Server, medians

BATCH = 500
ADD, ADD_MANY = "`add`", f"`add_many` of {BATCH}"
SADD, SADD_MANY = "scrapy-redis: `SADD`", f"`SADD` in pipelines of {BATCH}"
SET = "`SET NX EX`, a key each"
#: The columns that ``cells`` fills.
COLUMNS = {
    "x `SADD`": ".2f",
    "items/s": ",.0f",
    "command time (us)": ".1f",
}

Run = Callable[[Sequence[str]], list[bool]]
#: The costs of each contender, by its name.
Costs = dict[str, list[Cost]]


class Contender(NamedTuple):
    """A way to add items, which answers which of them are new."""

    name: str
    run: Run


def one_by_one(add: Callable[[str], Any]) -> Run:
    """Return a way with a call for each item."""
    return lambda items: [bool(add(item)) for item in items]


def in_batches(add_many: Callable[[Sequence[str]], Any], size: int = BATCH) -> Run:
    """Return a way with a call for each ``size`` items."""
    return lambda items: [
        bool(new)
        for start in range(0, len(items), size)
        for new in add_many(items[start : start + size])
    ]


def fingerprints(group: str, count: int) -> list[str]:
    """Return ``count`` texts of 40 hex digits. Each group has its own."""
    return [sha1(f"{group} {i}".encode(), usedforsecurity=False).hexdigest() for i in range(count)]


def rounds_of(count: int) -> Iterator[tuple[list[str], list[bool]]]:
    """Yield rounds of ``count`` items without end, each with a list of which are new.

    Half of each batch are items of the batches before, never of the same batch: so a batch needs as many answers from the server
    as single calls. (In the very first batch, they too are new to the server.)
    """
    chance = random.Random(0)
    seen = BATCH // 2
    before: list[str] = fingerprints("before", seen)
    number = 0
    while True:
        items: list[str] = []
        truth: list[bool] = []
        while len(items) < count:
            new = fingerprints(f"new {number}", BATCH - seen)
            number += 1
            batch = [*((item, True) for item in new), *((item, False) for item in before)]
            chance.shuffle(batch)
            items += [item for item, _ in batch]
            truth += [is_new for _, is_new in batch]
            before = [*new, *before][:seen]
        yield items, truth


def hold(server: Server, contenders: Sequence[Contender], rounds: int, items: int) -> Costs:
    """Return each contender's costs, round by round. In a round, all run once, in random order.

    :raises AssertionError: if a contender forgets an item, or calls too many new items seen.
    """
    chance, costs = random.Random(rounds), Costs()
    stream = rounds_of(items)
    with server.apart():
        for number in shown(range(rounds + 1), "calls"):
            these, truth = next(stream)
            for contender in chance.sample(contenders, len(contenders)):
                cost, answers = server.measure(contender.run, these)
                if number:  # the first one warms up
                    costs.setdefault(contender.name, []).append(cost)
                    check(contender.name, answers, truth)
    return costs


def check(name: str, answers: list[bool], truth: list[bool]) -> None:
    """Raise AssertionError if an item was forgotten, or too many new items were called seen."""
    forgotten = sum(new and not really for new, really in zip(answers, truth, strict=True))
    mistaken = sum(really and not new for new, really in zip(answers, truth, strict=True))
    assert forgotten == 0, f"{name}: {forgotten} of {len(truth)} items forgotten"
    assert mistaken <= len(truth) / 100, f"{name}: {mistaken} of {len(truth)} items called seen"


def ratio_and_rate(costs: Sequence[Cost], reference: Sequence[Cost]) -> list[float]:
    """Return the median of the rounds' ratios to the rate of the reference, and items per second."""
    pairs = zip(costs, reference, strict=True)
    rate = 1e6 / medians(costs).elapsed
    return [median(other.elapsed / cost.elapsed for cost, other in pairs), rate]


def cells(costs: Costs, name: str, reference: str) -> list[float]:
    """Return the cells for ``COLUMNS``."""
    return [*ratio_and_rate(costs[name], costs[reference]), medians(costs[name]).commands]
