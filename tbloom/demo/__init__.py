"""``tbloom demo``: three crawls of a site, by several crawlers that share a filter.

The first crawl fetches each page once, except one that fails. The second, within the window, fetches only that page. The
third, after the window, fetches all pages again.
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
    """Run the demo. Return the exit code: 0 if every figure is as promised, else 1."""

    def say(text: str) -> None:
        click.echo(text, err=output.is_on("json"))

    with contextlib.ExitStack() as stack:
        url, description = stack.enter_context(open_redis(redis))
        say(f"Redis: {description}")
        start = first_page(site)
        server = stack.enter_context(serve(site))
        found = survey(server, start)
        pages = f"{counted(len(found.pages), 'page')} with {counted(found.links, 'link')}"
        say(f"Site: {site or TITLE}: {pages}, served on {server.url}")
        seconds = period or default_period(found, crawlers)
        runs = stack.enter_context(Runs(say, url, found, crawlers, seconds))
        figures = {"redis": description, **runs.crawl_three_times()}
    problems = report.problems(figures)
    verdict = problems or ["Every figure is as promised."]
    output.show(
        {**figures, "ok": not problems, "problems": problems},
        lambda: "\n".join(["", report.text(figures), *verdict]),
    )
    return 1 if problems else 0
