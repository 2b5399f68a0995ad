"""``tbloom demo``: its options."""

from __future__ import annotations

from typing import Any

import click

from tbloom.cli.kit import options
from tbloom.cli.kit.command import Command


@click.command(cls=Command, example="tbloom demo --crawlers 2 --period 16")
@click.option("--site", metavar="DIR", type=click.Path(), help="crawl a folder from its index.html")
@click.option(
    "--redis",
    metavar="URL",
    help="the Redis to use (REDIS_URL, or a server that the demo starts)",
)
@click.option(
    "--crawlers",
    type=click.IntRange(1, 32),
    default=2,
    metavar="N",
    help="number of crawler processes (2)",
)
@click.option(
    "--period",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="length of a slice (by the site)",
)
@options.as_json
def command(**given: Any) -> int:
    """Crawls a site three times, and shows what was fetched.

    Exit code 1: a figure is not as promised.
    """
    from tbloom import demo  # noqa: PLC0415 - the help does without Scrapy

    return demo.run(**given)
