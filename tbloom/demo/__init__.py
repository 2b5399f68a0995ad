"""``tbloom demo``: three crawls of a site, by several crawlers on one filter.

The first crawl fetches each page once, but for one that fails. The second, within the window, fetches only
that one. The third, after the window, fetches each page again.
"""

from __future__ import annotations

import contextlib

import click

from tbloom.cli.kit import output
from tbloom.cli.kit.formats import counted
from tbloom.demo import report
from tbloom.demo.gazette import TITLE
from tbloom.demo.localredis import open_redis
from tbloom.demo.runs import Runs, default_period
from tbloom.demo.site import first_page, serve, survey


def run(*, site: str | None, redis: str | None, crawlers: int, period: int | None) -> int:
    """Run the demo. 0: every figure is as promised; 1: one is not."""

    def say(text: str) -> None:
        click.echo(text, err=output.is_on("json"))

    with contextlib.ExitStack() as stack:
        url, what = stack.enter_context(open_redis(redis))
        say(f"Redis: {what}")
        start = first_page(site)
        server = stack.enter_context(serve(site))
        found = survey(server, start)
        pages = f"{counted(len(found.pages), 'page')} with {counted(found.links, 'link')}"
        say(f"Site: {site or TITLE}: {pages}, served on {server.url}")
        seconds = period or default_period(found, crawlers)
        runs = stack.enter_context(Runs(say, url, found, crawlers, seconds))
        figures = {"redis": what, **runs.make()}
    problems = report.problems(figures)
    verdict = problems or ["Every figure is as promised."]
    output.show(
        {**figures, "ok": not problems, "problems": problems},
        lambda: "\n".join(["", report.text(figures), *verdict]),
    )
    return 1 if problems else 0
