"""``tbloom demo``: three crawls of a site, by several crawlers on one filter.

The first crawl fetches each page once. The second, within the window, fetches none. The third, after
the window, fetches each page again.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from tbloom.demo import report
from tbloom.demo.gazette import TITLE
from tbloom.demo.localredis import open_redis
from tbloom.demo.runs import Runs, default_period
from tbloom.demo.site import first_page, serve, survey

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo. 0: every figure is as promised; 1: one is not."""

    def say(text: str) -> None:
        click.echo(text, err=arguments.json)

    with contextlib.ExitStack() as stack:
        url, what = stack.enter_context(open_redis(arguments.redis))
        say(f"Redis: {what}")
        start = first_page(arguments.site)
        server = stack.enter_context(serve(arguments.site))
        site = survey(server, start)
        say(
            f"Site: {arguments.site or TITLE}: {len(site.pages):,} pages with {site.links:,} links, "
            f"served on {server.url}"
        )
        period = arguments.period or default_period(site, arguments.crawlers)
        runs = stack.enter_context(Runs(say, url, site, arguments.crawlers, period))
        figures = {"redis": what, **runs.make()}
    problems = report.problems(figures)
    if arguments.json:
        figures |= {"ok": not problems, "problems": problems}
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        click.echo(f"\n{report.text(figures)}")
        for line in problems or ["Every figure is as promised."]:
            say(line)
    return 1 if problems else 0
