"""All contenders on one server with the same items, half of them seen before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

import redis
from contenders import SADD, Contender, everybody
from serving import APART, Cost, measure, medians, placed, placements
from streams import rounds_of

from tbloom.demo.localredis import LocalRedis


def run_rounds(
    server: LocalRedis,
    client: redis.Redis,
    contenders: Sequence[Contender],
    *,
    rounds: int,
    items: int,
    placement: str = APART,
    duplicates: int = 50,
    group: str = "race",
) -> dict[str, list[Cost]]:
    """Each contender's costs, round by round; in each round all of them run once, in another order.

    The items of a ``group`` are others than those of other groups.

    :raises AssertionError: if one forgets an item, or calls too many new ones seen.
    """
    chance = random.Random(rounds)
    stream = rounds_of(f"{group}, {placement}, {duplicates}", items, duplicates)
    costs: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    with placed(server, placement):
        for number in range(rounds + 1):
            these, truth = next(stream)
            for contender in chance.sample(contenders, len(contenders)):
                cost, answers = measure(client, contender.run, these)
                if number:  # the first one warms up
                    costs[contender.name].append(cost)
                    order = list if contender.in_order else sorted
                    check(contender.name, order(answers), order(truth))
    return costs


def check(name: str, answers: list[bool], truth: list[bool]) -> None:
    """No item is forgotten, and few are called seen that are new."""
    forgotten = sum(new and not really for new, really in zip(answers, truth, strict=True))
    invented = sum(really and not new for new, really in zip(answers, truth, strict=True))
    assert forgotten == 0, f"{name}: {forgotten} of {len(truth)} items forgotten"
    assert invented <= len(truth) / 100, f"{name}: {invented} of {len(truth)} items not new"


def race(
    server: LocalRedis, client: redis.Redis, *, capacity: int, rounds: int, items: int
) -> dict[str, Any]:
    """The figures of all contenders, for each placement: the medians of the rounds.

    ``ratio`` is how many times SADD's rate it is, the median over the rounds of what it was in each.
    """
    rows = []
    with everybody(server.url, client, capacity) as contenders:
        for placement in placements():
            costs = run_rounds(
                server, client, contenders, rounds=rounds, items=items, placement=placement
            )
            rows += [
                {
                    "placement": placement,
                    "name": contender.name,
                    "calls": contender.calls,
                    **compared(costs[contender.name], costs[SADD]),
                }
                for contender in contenders
            ]
    client.flushall()
    return {"capacity": capacity, "rounds": rounds, "items": items, "rows": rows}


def ratios(costs: list[Cost], reference: list[Cost], figure: str = "elapsed") -> list[float]:
    """The reference's figure to one's own, round by round: how many times its rate, for ``elapsed``."""
    return [
        getattr(other, figure) / getattr(one, figure)
        for one, other in zip(costs, reference, strict=True)
    ]


def compared(costs: list[Cost], reference: list[Cost]) -> dict[str, float]:
    """The medians; ``ratio`` (of the rate) and ``client_ratio`` to the reference are medians of the rounds' ratios."""
    return {
        **medians(costs),
        "ratio": median(ratios(costs, reference)),
        "client_ratio": median(ratios(reference, costs, "client")),
    }
