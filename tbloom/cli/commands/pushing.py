"""``tbloom push`` and ``tbloom queue``: work for the crawlers of a Scrapy spider."""

from __future__ import annotations

import io
from itertools import islice
from typing import BinaryIO

import click

from tbloom.cli.commands.project import settings_here
from tbloom.cli.kit import formats, interrupts, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import TBloomError

#: Lines in a call.
_BATCH = 1_000


def _pairs(_context: object, _option: object, words: tuple[str, ...]) -> dict[str, str]:
    """Return the spider's arguments by name."""
    for word in words:
        if "=" not in word:
            raise click.BadParameter(f"expected NAME=VALUE, got {word!r}")
    return dict(word.split("=", 1) for word in words)


_of_spider = options.all_of(
    click.argument("spider", type=options.text_of),
    click.option(
        "-a",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        type=options.text_of,
        callback=_pairs,
        help="an argument of the spider, as of scrapy crawl; may be repeated",
    ),
)


@click.command(cls=Command, example="tbloom push shop urls.txt -a country=de")
@_of_spider
@click.argument("file", type=click.File("rb"), default="-")
@options.as_json
def push(spider: str, arguments: dict[str, str], file: BinaryIO) -> None:
    """Give URLs to the crawlers of a Scrapy spider.

    Run it in the project's folder. The project needs TBLOOM_MARK = "done". Each line of the file, or of standard input, is a URL,
    or a request as a JSON object with the fields url, callback, errback, method, headers, body, priority, meta and cb_kwargs. A
    new one waits in the spider's filter for the next crawler with the same arguments that has nothing to fetch; one that was
    seen, is claimed or waits already is not new. Lines are pushed 1,000 at a time; if one is wrong, none of its 1,000 is pushed.
    """
    from tbloom.scrapy.extras.pushing import open_queue  # noqa: PLC0415 - needs Scrapy

    total = new = 0
    expected = streams.lines_in([file])
    lines = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape")
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    given = ((number, line) for number, line in numbered if line)
    try:
        with (
            open_queue(settings_here(), spider, arguments) as queue,
            progress.bar("lines", expected) as advance,
        ):
            while batch := [*islice(given, _BATCH)]:
                with interrupts.step():
                    try:
                        new += queue.push(batch)
                    except TBloomError as error:
                        before = f"{formats.counted(total, 'line')} before were pushed"
                        raise CommandError(f"{error} ({before})") from None
                    total += len(batch)
                advance(len(batch))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{formats.counted(total, 'line')} pushed") from None
    shown = f"{formats.counted(total, 'line')}: {new:,} new, {total - new:,} not new"
    output.show({"lines": total, "new": new}, lambda: shown)


@click.command(cls=Command, example="tbloom queue shop -a country=de")
@_of_spider
@options.as_json
def queue(spider: str, arguments: dict[str, str]) -> None:
    """Show how many pages wait for the crawlers of a Scrapy spider.

    Run it in the project's folder. Shown are the pages and crawlers of the spider with these arguments.
    """
    from tbloom.scrapy.extras.pushing import open_queue  # noqa: PLC0415 - needs Scrapy

    with open_queue(settings_here(), spider, arguments) as pages:
        info, failed = pages.info()
    rows = [
        ("pages left", info.left, "for the next free crawler"),
        ("suspect pages", info.suspects, "two crawlers or more have died of each"),
        ("failed pages", failed, "for the next crawl that starts"),
        ("claimed pages", info.claimed, "of all crawlers on this filter"),
        ("crawlers at work", info.working, ""),
        ("crawlers that wait", info.waiting, "for pages"),
    ]
    shown = [{spider: what, "number": f"{n:,}", "": remark} for what, n, remark in rows]
    output.show(
        {**info._asdict(), "failed": failed}, lambda: output.table(shown, left=(spider, ""))
    )
