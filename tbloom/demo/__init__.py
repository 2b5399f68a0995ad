"""``tbloom demo``: three crawls of a site, by several crawlers on one filter.

The first crawl fetches each page once. The second, within the window, fetches none. The third, after
the window, fetches each page again.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.interrupts import ended_by_signals
from tbloom.cli.kit.progress import Reporter
from tbloom.demo import report
from tbloom.demo.localredis import open_redis
from tbloom.demo.runs import Runs
from tbloom.demo.target import live, loopback

if TYPE_CHECKING:
    import argparse

_MAX = {"crawlers": 32, "period": 86_400, "max_pages": 100_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--site or --url, --redis, --crawlers, --period, --max-pages, --json."""
    site = parser.add_mutually_exclusive_group()
    site.add_argument("--site", metavar="DIR", help="crawl the HTML files of a folder")
    site.add_argument("--url", help="crawl a live site, politely")
    parser.add_argument(
        "--redis",
        metavar="URL",
        help="the Redis to use (default: REDIS_URL, or a server that the demo starts)",
    )
    parser.add_argument(
        "--crawlers",
        type=int,
        default=2,
        metavar="N",
        help="number of crawler processes (default: 2)",
    )
    parser.add_argument(
        "--period", type=int, metavar="SECONDS", help="length of a slice (default: by the site)"
    )
    parser.add_argument(
        "--max-pages", type=int, default=200, metavar="N", help="with --url (default: 200)"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo. 0: every figure is as promised; 1: one is not."""
    _check(arguments)
    reporter = Reporter(stderr=arguments.json)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        url, what = stack.enter_context(open_redis(arguments.redis))
        reporter.say(f"Redis: {what}")
        if arguments.url:
            target = live(arguments.url, arguments.crawlers, arguments.max_pages, reporter)
        else:
            site = loopback(arguments.site, arguments.crawlers, reporter)
            target = stack.enter_context(site)
        period = arguments.period or target.period
        runs = stack.enter_context(Runs(reporter, url, target, arguments.crawlers, period))
        numbers = runs.make(what)
    if arguments.json:
        sys.stdout.write(report.to_json(numbers) + "\n")
    else:
        report.show(numbers, reporter.console)
    return 1 if numbers.problems() else 0


def _check(arguments: argparse.Namespace) -> None:
    for name, limit in _MAX.items():
        value = getattr(arguments, name)
        if value is not None and not 1 <= value <= limit:
            raise CommandError(f"--{name.replace('_', '-')}: expected 1 to {limit}, got {value}")
