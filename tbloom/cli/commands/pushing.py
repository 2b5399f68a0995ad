"""``tbloom push`` and ``tbloom queue``: work for the crawlers of a Scrapy spider."""

from __future__ import annotations

import io
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from tbloom.cli.commands.project import settings_here
from tbloom.cli.kit import formats, options, output, progress
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import FAILED, CommandError

if TYPE_CHECKING:
    from tbloom.scrapy.extras.oldqueue import OldQueue
    from tbloom.scrapy.extras.pushing import SpiderQueue

#: Lines, or requests, in a call.
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


@click.command(cls=Command, extra="scrapy", example="tbloom push shop urls.txt -a country=de")
@_of_spider
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--from-scrapy-redis",
    "old_key",
    metavar="[KEY]",
    is_flag=False,
    flag_value="",
    type=options.text_of,
    help="move the requests in scrapy-redis' queue (by SCHEDULER_QUEUE_KEY)",
)
@options.as_json
def push(spider: str, arguments: dict[str, str], file: BinaryIO, old_key: str | None) -> int:
    """Give URLs to the crawlers of a Scrapy spider.

    Run it in the project's folder. The project needs tbloom's add-on. Each line of the file, or of standard input, is a URL,
    or a request as a JSON object with the fields url, callback, errback, method, headers, body, priority, meta and cb_kwargs. A
    new one waits in the spider's filter for the next crawler with the same arguments that has nothing to fetch; one that was
    seen, is claimed or waits already is not new. Lines are pushed 1,000 at a time; if one is wrong, none of its 1,000 is pushed.

    With --from-scrapy-redis, the requests come from the queue of the spider's scrapy-redis crawlers, which must have ended, and
    are removed from it once they are pushed. Do this before tbloom import --from-set: requests that were seen stay in the old
    queue. So do those that can't be pushed, which are named. Exit code 1: some have stayed. The requests are pickles, unless
    SCHEDULER_SERIALIZER is set: whoever can write to that Redis can run code here.
    """
    from tbloom.scrapy.extras.pushing import open_queue  # noqa: PLC0415 - needs Scrapy

    if old_key is None:
        with open_queue(settings_here(), spider, arguments) as queue:
            _push_lines(queue, file)
        return 0
    source = click.get_current_context().get_parameter_source("file")
    if source is ParameterSource.COMMANDLINE:
        raise CommandError("expected one of FILE, --from-scrapy-redis")
    with open_queue(settings_here(), spider, arguments) as queue, queue.old_queue(old_key) as old:
        return _move(queue, old)


def _push_lines(queue: SpiderQueue, file: BinaryIO) -> None:
    total = new = 0
    lines = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape")
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    given = ((number, line) for number, line in numbered if line)
    with progress.bar("lines", 0) as advance:
        while batch := [*islice(given, _BATCH)]:
            new += queue.push(batch)
            total += len(batch)
            advance(len(batch))
    shown = f"{formats.counted(total, 'line')}: {new:,} new, {total - new:,} not new"
    output.show({"lines": total, "new": new}, lambda: shown)


def _move(queue: SpiderQueue, old: OldQueue) -> int:
    """Move the requests of scrapy-redis' queue, and return the exit code."""
    total = new = repeats = seen = refused = 0
    with progress.bar("requests", old.size()) as advance:
        while moved := queue.move(old, seen + refused, _BATCH):
            total += moved.read
            new += moved.new
            repeats += moved.repeats
            seen += moved.seen
            refused += len(moved.refused)
            for each in moved.refused:
                output.say(f"stays in {old.key!r}: {each}")
            advance(moved.read)
    value = {"requests": total, "new": new, "seen": seen, "refused": refused}
    others = total - new - seen - refused
    shown = f"{formats.counted(total, 'request')}: {new:,} new, {others:,} not new"
    output.show(value, lambda: shown)
    if repeats:
        output.say(
            f"{repeats:,} of those that are not new have dont_filter: pages that wait already are fetched once"
        )
    if seen:
        output.say(
            f"{formats.counted(seen, 'request')} of pages that count as seen stay in {old.key!r}: "
            "scrapy-redis' set is imported after its queue is moved"
        )
    return FAILED if seen or refused else 0


@click.command(cls=Command, extra="scrapy", example="tbloom queue shop -a country=de")
@_of_spider
@options.as_json
def queue(spider: str, arguments: dict[str, str]) -> None:
    """Show a Scrapy spider's crawlers, and how many pages wait.

    Run it in the project's folder. Shown are the pages and crawlers of the spider with these arguments. A crawler has the pages
    that it fetches and those in its queue. To see it live: watch -n 5 tbloom queue SPIDER.
    """
    from tbloom.scrapy.extras.pushing import open_queue  # noqa: PLC0415 - needs Scrapy

    with open_queue(settings_here(), spider, arguments) as pages:
        info, failed, sessions = pages.info()
    value = {
        **info._asdict(),
        "failed": failed,
        "sessions": [session._asdict() for session in sessions],
    }
    rows = [
        ("pages left", info.left, "for the next free crawler"),
        ("suspect pages", info.suspects, "two crawlers or more have died of each"),
        ("failed pages", failed, "for the next crawl that starts"),
        ("crawlers at work", info.working, ""),
        ("crawlers that wait", info.waiting, "for pages"),
    ]
    counts = [{spider: what, "number": f"{n:,}", "": remark} for what, n, remark in rows]
    crawlers = [
        {"crawler": name, "claimed pages": f"{n:,}", "": "waits" if waits else "works"}
        for name, n, waits in sessions
    ]
    tables = counts, crawlers
    output.show(
        value,
        lambda: "\n\n".join(
            output.table(table, left=(spider, "crawler", "")) for table in tables if table
        ),
    )
