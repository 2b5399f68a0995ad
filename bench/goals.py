"""The issues' goals, and what was reached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from contenders import (
    ADD,
    ADD_CACHED,
    ADD_MANY,
    REDISBLOOM_SLICES_MANY,
    SADD,
    SCRAPY_REDIS_BLOOMFILTER,
)
from counts import AGAIN, COUNTER
from distinct import faster, ratios
from exact import EXACT
from links import REFERENCE
from pages_text import among
from serving import APART, TOGETHER
from startup import HELP, OWN, REDIS
from table import Table
from together import ASYNC_ADD, TASKS

Found = dict[str, Any]

ONE, MANY, RATE = "`add` one by one", "`add_many` of 500", "rate, to that of"
#: Possible ids; ten are counted.
SPACE = 10**7
#: Pages in the store, and gets.
PAGES, GETS = 10**6, 10**4


class Goal(NamedTuple):
    text: str
    bound: float
    #: The figure, or several; raises LookupError if it was not measured.
    figure: Callable[[Found], float | list[float]]
    #: The bound is a minimum, not a maximum.
    at_least: bool = True
    unit: str = "x"
    digits: int = 2


def _adding(
    text: str, bound: float, name: str, share: int, figure: str = "ratio", **others: str
) -> Goal:
    """A goal for a figure of the section "adding" on its main server, in each placement or in the one given."""
    placement, unit = others.get("placement"), others.get("unit", "x")

    def figures(found: Found) -> list[float]:
        of = found["adding"]
        kept = (of["servers"][0], name, share)
        rows = [row for row in of["rows"] if (row["on"], row["name"], row["duplicates"]) == kept]
        reached = [row[figure] for row in rows if placement in (None, row["placement"])]
        if not reached:
            raise LookupError("the placement was not there")
        return reached

    return Goal(text, bound, figures, figure == "ratio", unit)


def _asyncio(found: Found, name: str, count: int, figure: str) -> list[float]:
    """The figure of so many tasks, in each placement."""
    rows = found["asyncio"]["rows"]
    return [row[figure] for row in rows if (row["name"], row["count"]) == (name, count)]


def _race(found: Found, name: str, figure: str, section: str = "race") -> list[float]:
    """The figure in each placement."""
    rows = [row for row in found[section]["rows"] if row["name"] == name]
    return [float(row[figure]) for row in rows]


def _compared(found: Found, name: str, with_name: str, figure: str = "ratio") -> list[float]:
    """The ratio of two figures, in each placement."""
    figures = [_race(found, one, figure) for one in (name, with_name)]
    if not all(figures):
        raise LookupError("one of them was not there")  # a server without RedisBloom
    return [one / other for one, other in zip(*figures, strict=True)]


def _capacity(found: Found, capacity: int, figure: str) -> float:
    rows = {row["capacity"]: row[figure] for row in found["capacities"]["rows"]}
    return float(rows[capacity])


def _bytes(found: Found, name: str) -> float:
    return float({row["name"]: row["bytes"] for row in found["footprint"]["rows"]}[name])


def _less_than_sets(found: Found) -> list[float]:
    """With the items of the footprint, and in windows of other capacities."""
    return [
        _bytes(found, SADD) / _bytes(found, "tbloom, 7 slices"),
        *(
            row["set_bytes"] / row["allocated_bits"] * 8
            for row in found["capacities"]["rows"]
            if row["set_bytes"]
        ),
    ]


def _exact_memory(found: Found) -> list[float]:
    """The exact filter's bytes, to those of a set, with each number of items."""
    of = found["exact"]
    used = {
        (row["name"], row["items"]): row["bytes"]
        for row in of["memory"]
        if row["server"] == of["server"]
    }
    return [used[EXACT, size] / used[SADD, size] for size in of["sizes"]]


def _waiting(found: Found) -> float:
    """Waiting of scrapy-redis' dupefilter, to that of tbloom's best way."""
    waited = {row["way"]: row["waited"] for row in found["links"]["rows"] if row["delay"] == 0.0005}
    return float(waited.pop(REFERENCE) / min(waited.values()))


def _few_ids(found: Found, figure: str) -> list[float]:
    """The rate of a counter of few ids, to that of a bitmap."""
    if found["distinct"]["space"] != SPACE:
        raise LookupError("measured with other ids")
    return [faster(found["distinct"], verb, figure) for verb in ("count", "and", "or")]


def _to_bitmaps(found: Found, name: str) -> list[float]:
    """The least and the greatest time of sets' verbs, to a bitmap's."""
    times = [
        time
        for _, one, times in ratios(found["distinct"])
        if one == name
        for time in times.values()
    ]
    return [min(times), max(times)]


def _pages(found: Found, figure: str) -> float:
    """A figure of a get among ``PAGES`` pages."""
    return float(among(found["pages"], PAGES)[figure])


def _slope(found: Found) -> float:
    costs = [row["elapsed"] for row in found["capacities"]["rows"]]
    return 100.0 * (max(costs) / min(costs) - 1)


GOALS = [
    _adding(f"{ONE}, 50 % duplicates, {APART}: {RATE} `SADD`", 1, ADD, 50, placement=APART),
    _adding(
        f"{ONE}, 50 % duplicates, {TOGETHER}: {RATE} `SADD`", 0.65, ADD, 50, placement=TOGETHER
    ),
    _adding(f"{ONE}, 95 % duplicates, {APART}: {RATE} `SADD`", 1.15, ADD, 95, placement=APART),
    _adding(
        f"{ONE}, 95 % duplicates, {TOGETHER}: {RATE} `SADD`", 0.75, ADD, 95, placement=TOGETHER
    ),
    _adding(f"{MANY}, 50 % duplicates: {RATE} `SADD` in pipelines", 0.6, ADD_MANY, 50),
    _adding(f"{MANY}, 95 % duplicates: {RATE} `SADD` in pipelines", 1, ADD_MANY, 95),
    _adding(
        f"{MANY}, 50 % duplicates: client CPU, to that of `SADD` in pipelines",
        *(0.3, ADD_MANY, 50, "client_ratio"),
    ),
    _adding(f"{MANY}: to the server per item", 32, ADD_MANY, 50, "sent", unit="bytes"),
    *(
        Goal(
            f"asyncio: `add` by {by}: {RATE} {to}",
            bound,
            partial(_asyncio, name=ASYNC_ADD, count=count, figure=figure),
        )
        for by, to, bound, count, figure in (
            ("1 task", "redis.asyncio's `SADD`", 0.8, 1, "ratio"),
            (f"{TASKS[-1]} tasks", "1 task", 6, TASKS[-1], "to_one"),
            (f"{TASKS[-1]} tasks", "as many that `SADD`", 5, TASKS[-1], "ratio"),
        )
    ),
    Goal(
        "`add` one by one: rate, to that of scrapy-redis-bloomfilter",
        6,
        lambda f: _compared(f, ADD, SCRAPY_REDIS_BLOOMFILTER),
    ),
    Goal(
        "`add` one by one, local cache on: rate, to that of `SADD`",
        1.3,
        lambda f: _race(f, ADD_CACHED, "ratio"),
    ),
    Goal(
        "`add` on real pages' links, local cache on: rate, to that of `SADD`",
        8,
        lambda f: _race(f, ADD_CACHED, "ratio", "linkrace"),
    ),
    Goal(
        "`add_many` of 500: rate, to that of `SADD` one by one",
        6,
        lambda f: _race(f, ADD_MANY, "ratio"),
    ),
    Goal(
        "`add_many` of 500: the server's time in commands, to that of RedisBloom's 7 filters",
        3,
        lambda f: _compared(f, ADD_MANY, REDISBLOOM_SLICES_MANY, "commands"),
        at_least=False,
    ),
    Goal(
        "a slice of 1,000,000: bits per item",
        26,
        lambda f: _capacity(f, 10**6, "bits"),
        at_least=False,
        unit="bits",
    ),
    Goal(
        "memory for the same items: of `SADD`, to tbloom's",
        25,
        _less_than_sets,
        digits=1,
    ),
    Goal(
        "`ExactFilter`: memory, to that of `SADD`",
        0.4,
        _exact_memory,
        at_least=False,
    ),
    Goal(
        f"`DistinctCounter` of 10 ids of {SPACE:,}: count, AND and OR, rate to that of a bitmap",
        1,
        lambda f: _few_ids(f, "elapsed"),
    ),
    Goal(
        "the same in the server's time in commands",
        1,
        lambda f: _few_ids(f, "commands"),
    ),
    *(
        Goal(
            f"`DistinctCounter`: AND, OR, XOR, ANDNOT of all rows, {when}: time, to that of `BITOP` and `BITCOUNT`",
            bound,
            partial(_to_bitmaps, name=name),
            at_least=False,
        )
        for when, bound, name in (("the first time", 1.5, COUNTER), ("again", 0.1, AGAIN))
    ),
    Goal(
        "the same: the longest command",
        5,
        lambda f: max(
            cost["longest"] / 1000
            for row in f["distinct"]["rows"]
            if row["name"] == COUNTER
            for cost in row["verbs"].values()
        ),
        at_least=False,
        unit="ms",
    ),
    Goal(
        "waiting for Redis, 0.5 ms away: of scrapy-redis' dupefilter, to tbloom's",
        50,
        _waiting,
        digits=1,
    ),
    Goal(
        "`add` from the cheapest to the dearest capacity, 10^4 to 10^8",
        20,
        _slope,
        at_least=False,
        unit="% more",
        digits=0,
    ),
    Goal(
        "`add_many` of 5,000: the longest script call",
        5,
        lambda f: f["longest"]["longest"],
        at_least=False,
        unit="ms",
    ),
    Goal(
        f"{OWN}: time, to that of {REDIS}",
        1.5,
        lambda f: f["startup"]["seconds"][OWN] / f["startup"]["seconds"][REDIS],
        at_least=False,
    ),
    Goal(HELP, 0.15, lambda f: f["startup"]["seconds"][HELP], at_least=False, unit="s"),
    Goal(
        "`tbloom import` of a set into the current slice, and into the oldest",
        100_000,
        lambda f: [row["rate"] for row in f["imports"]["rows"] if row["title"] != "the same again"],
        unit="items/s",
        digits=0,
    ),
    Goal(
        "`tbloom import`: the server's longest command",
        10,
        lambda f: max(row["longest"] for row in f["imports"]["rows"]),
        at_least=False,
        unit="ms",
        digits=1,
    ),
    Goal(
        f"`PageStore`: {GETS:,} random `get`s among {PAGES:,} pages",
        3,
        lambda f: GETS * _pages(f, "get"),
        at_least=False,
        unit="s",
    ),
    Goal(
        f"`PageStore.get` among {PAGES:,} pages: time, to that among the fewest",
        1.3,
        lambda f: _pages(f, "ratio"),
        at_least=False,
    ),
]


def table(found: Found) -> Table:
    """Each goal, the figure, and whether it holds."""
    rows = []
    for goal in GOALS:
        try:
            figure = goal.figure(found)
        except LookupError:
            rows.append([goal.text, "", "not measured", ""])
            continue
        figures = figure if isinstance(figure, list) else [figure]
        good = [one >= goal.bound if goal.at_least else one <= goal.bound for one in figures]
        holds = "yes" if all(good) else "in part" if any(good) else "**no**"
        shown = " and ".join(f"{figure:,.{goal.digits}f}" for figure in figures)
        bound = f"{'>=' if goal.at_least else '<='} {goal.bound:,g} {goal.unit}"
        rows.append([goal.text, bound, f"{shown} {goal.unit}", holds])
    return Table("Goals", ["", "goal", "reached", "holds"], rows, words=4)
