"""``tbloom paper``: measures again what the papers behind tbloom measured, on a Redis of its own."""

from __future__ import annotations

import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import redis

from tbloom.cli.kit import formats, outfile
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.interrupts import ended_by_signals
from tbloom.cli.kit.output import print_json
from tbloom.cli.kit.progress import Reporter
from tbloom.demo.localredis import open_own
from tbloom.paper import crawls, memory, page, racing, rates
from tbloom.paper.figures import Figures

if TYPE_CHECKING:
    import argparse


# The server frees a set of 10 GB in one call.
_SECONDS = 300


class _Amounts(NamedTuple):
    """How much is measured."""

    #: The largest filter that is filled, and the largest set.
    filled: int
    in_set: int
    asked: int
    requests: int
    raced: int


_QUICK = _Amounts(filled=10**6, in_set=10**6, asked=100_000, requests=10_000, raced=500)
_FULL = _Amounts(filled=10**7, in_set=10**8, asked=1_000_000, requests=100_000, raced=3000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--quick, --out, --json."""
    parser.add_argument(
        "--quick", action="store_true", help="smaller amounts: two minutes instead of ten"
    )
    parser.add_argument(
        "--out", metavar="DIR", default="paper", help="folder for paper.md and its plots (paper)"
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout too")


def run(arguments: argparse.Namespace) -> int:
    """Measures, and writes the page. 0: every promise was kept; 1: one was not."""
    folder = Path(arguments.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--out: {folder}: {error.strerror}") from None
    reporter = Reporter(stderr=arguments.json)
    began = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        url, what = stack.enter_context(open_own())
        client = stack.enter_context(redis.Redis.from_url(url, socket_timeout=_SECONDS))
        reporter.say(f"Redis: {what}")
        figures = _measure(client, url, _QUICK if arguments.quick else _FULL, reporter)
    about = {
        "quick": arguments.quick,
        "redis": what.partition(",")[0],
        "packages": {name: version(name) for name in ("tbloom", "scrapy", "scrapy-redis")},
        "seconds": round(time.monotonic() - began),
    }
    for name, text in page.files(figures, about).items():
        with outfile.writing(str(folder / name)) as file:
            file.write(text.encode())
    if arguments.json:
        print_json({"about": about, **figures.as_dict()})
    broken = figures.broken()
    for sentence in broken:
        reporter.say(f"Not as promised: {sentence}")
    reporter.say(f"{folder / 'paper.md'} written, after {formats.duration(about['seconds'])}")
    return 1 if broken else 0


def _measure(client: redis.Redis, url: str, amounts: _Amounts, reporter: Reporter) -> Figures:
    def say(number: int, what: str) -> None:
        reporter.say(f"{number} of 6: {what}")

    say(1, "hourly crawls")
    hours = crawls.make(client, url, crawls.HOURS, reporter)
    say(2, "daily crawls, whose pages expire")
    days = crawls.make(client, url, crawls.DAYS, reporter)
    full = rates.measure_window(client, crawls.PAGES, 1 << crawls.BIT, amounts.asked, reporter)
    say(3, f"the paper's code and tbloom's, raced by {racing.PROCESSES} processes")
    race = racing.race(url, amounts.raced)
    say(4, "the rate of a window")
    overfilled = rates.measure_overfilled(client, amounts.asked, reporter)
    say(5, "filters of the best size")
    best = list(rates.measure_best(client, amounts.filled, amounts.asked, reporter))
    say(6, "memory")
    used = memory.measure(client, amounts.in_set, amounts.requests, reporter)
    return Figures(hours, days, full, race, overfilled, best, used)
