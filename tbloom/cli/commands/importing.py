"""``tbloom import``: the requests that scrapy-redis or Scrapy has seen, or a file of items, into a filter."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tbloom.bloom.fingerprinter import note
from tbloom.cli.kit import filters, formats, options, output, progress, sources, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    from tbloom import TimeBloom
    from tbloom.bloom.hasher import Secret
    from tbloom.cli.kit.filters import Server

#: What has made the fingerprints in the set of scrapy-redis' dupefilter.
_SCRAPY_REDIS = "tbloom.scrapy.dupefilter.fingerprinter.ScrapyRedisFingerprinter"


@click.command(cls=Command, example="tbloom import news:tbloom --create --from-set news:dupefilter")
@options.name
@options.server
@options.secret
@click.option(
    "--from-set",
    metavar="KEY",
    help="the Redis set of an exact dupefilter, as scrapy-redis has it: news:dupefilter",
)
@click.option(
    "--from-seen",
    metavar="FILE",
    type=click.Path(exists=True),
    help="Scrapy's requests.seen, or its JOBDIR",
)
@click.option(
    "--from-lines",
    metavar="FILE",
    type=click.File("rb"),
    help="an item in each line; -: standard input",
)
@click.option("--from-url", metavar="URL", help="the server of --from-set (--url)")
@click.option(
    "--slice",
    metavar="LABEL",
    help="the slice to import into, as 'tbloom info' shows it (the current one)",
)
@options.as_json
@options.quiet
@options.creation
def command(
    *,
    name: str,
    server: Server,
    secret: Secret | None,
    from_set: str | None,
    from_seen: str | None,
    from_lines: BinaryIO | None,
    from_url: str | None,
    slice: str | None,
    **parameters: Any,
) -> None:
    """Imports what scrapy-redis or Scrapy has seen, or a file.

    Such as the requests in the set of scrapy-redis' dupefilter. The same import a second time adds nothing, so that an
    interrupted one can be started again.
    """
    if sum(source is not None for source in (from_set, from_seen, from_lines)) != 1:
        raise CommandError("expected one of --from-set, --from-seen, --from-lines")
    given, other = options.new(parameters), None
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        if from_set is not None:
            source = server
            if from_url:
                source = stack.enter_context(filters.connect(from_url, "--from-url"))
            batches, expected = sources.stored_set(source, from_set), source.client.scard(from_set)
        elif from_seen is not None:
            batches, expected = sources.seen_file(stack, from_seen), 0
        elif from_lines is not None:
            batches, expected = streams.batches(from_lines), streams.lines_in([from_lines])
        own = {"retry_for": filters.RETRY_FOR, "secret": secret}
        target = server.open_or_create(name, given, **own)
        target.import_many([], slice)  # raises if there is no such slice
        is_new = not target.client.exists(target.config.keys.root)
        target.expect(expected)
        read = new = 0
        advance = stack.enter_context(progress.bar("items", expected))
        for items in batches:
            with filters.patient():
                new += target.import_many(items, slice)
            read += len(items)
            advance(len(items))
        if from_set is not None and read:
            other = _other_fingerprinter(target, is_new=is_new)
    if output.is_on("json"):
        output.print_json({"read": read, "new": new, "seen": read - new})
    counts = f"{formats.counted(read, 'item')} read, {new:,} new, {read - new:,} already seen"
    output.summary(counts)
    if other:
        output.say(
            f"Warning: {name!r} was filled with the fingerprints of {other}, these are {_SCRAPY_REDIS}'s: "
            "to a crawl, only those of its own REQUEST_FINGERPRINTER_CLASS are seen"
        )


def _other_fingerprinter(target: TimeBloom, *, is_new: bool) -> str | None:
    """Notes whose fingerprints they are, for as long as the parameters are kept, unless another one has filled the filter."""
    keys = target.config.keys
    left = int(target.client.pttl(keys.root))
    noting = note(keys.fingerprinter(), _SCRAPY_REDIS, left if left > 0 else None, is_new=is_new)
    known = target.run(noting)
    return None if known == _SCRAPY_REDIS else known
