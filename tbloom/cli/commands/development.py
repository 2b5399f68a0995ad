"""``tbloom demo`` and ``tbloom completion``."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from tbloom.cli.kit import options, output
from tbloom.cli.kit.command import Command


@click.command(cls=Command, example="tbloom demo --crawlers 2 --period 16")
@click.option("--site", metavar="DIR", type=click.Path(), help="crawl a folder from its index.html")
@click.option("--redis", metavar="URL", help="the Redis to use (REDIS_URL, or one that is started)")
@click.option("--crawlers", type=click.IntRange(1, 32), default=2, help="crawler processes (2)")
@click.option("--period", type=click.IntRange(1, 86_400), help="seconds of a slice (by the site)")
@options.as_json
def demo(**given: Any) -> int:
    """Crawls a site three times, and shows what was fetched.

    Exit code 1: a figure is not as promised.
    """
    from tbloom.demo import run  # noqa: PLC0415 - the help does without Scrapy

    return run(**given)


@click.command(cls=Command, example="tbloom completion bash > tbloom.bash")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Prints a script that completes commands in a shell.

    In bash: eval "$(tbloom completion bash)".
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click knows these three
    output.line(script(context.find_root().command, {}, "tbloom", "_TBLOOM_COMPLETE").source())
