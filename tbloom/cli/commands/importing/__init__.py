"""``tbloom import``: the requests that scrapy-redis or Scrapy has seen, or a file of items, into a filter."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tbloom import TimeBloom
from tbloom.bloom.fingerprinter import note
from tbloom.cli.commands.importing.resume import Progress, ResumeFile
from tbloom.cli.kit import filters, interrupts, parameters, sources
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    import argparse

    from tbloom.cli.kit.sources import Source

#: What has made the fingerprints in the set of scrapy-redis' dupefilter.
_SCRAPY_REDIS = "tbloom.scrapy.dupefilter.fingerprinter.ScrapyRedisFingerprinter"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME, --url, --from-..., --slice, --resume, --quiet, and the parameters of a new filter."""
    filters.add_arguments(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--from-set",
        metavar="KEY",
        help="the set of scrapy-redis' dupefilter, such as news:dupefilter",
    )
    group.add_argument("--from-seen", metavar="FILE", help="Scrapy's requests.seen, or its JOBDIR")
    group.add_argument(
        "--from-lines", metavar="FILE", help="an item in each line; -: standard input"
    )
    parser.add_argument("--from-url", metavar="URL", help="the server of KEY (that of --url)")
    parser.add_argument(
        "--slice",
        metavar="LABEL",
        help="the slice to import into, as 'tbloom info' shows it (the current one)",
    )
    parser.add_argument(
        "--resume",
        metavar="FILE",
        help="a file that keeps the progress, with which an interrupted import goes on",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parameters.add_creation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Imports the items, and reports their number."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    resume = ResumeFile(arguments.resume)
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        source = _open_source(stack, arguments)
        target = stack.enter_context(_open_target(arguments))
        target.import_many([], arguments.slice)  # raises if there is no such slice
        # A filter that has vanished, or a file that has become shorter, is imported from the start.
        exists = bool(target.client.exists(target.config.keys.root))
        progress = begun = resume.begin(
            _fresh(arguments, source),
            is_valid=lambda known: exists and _is_within(source, known.position),
        )
        if begun.read:
            reporter.say(f"Going on after {begun.read:,} items")
        began = time.monotonic()
        advance = stack.enter_context(reporter.count("Importing", source.total, source.unit))
        for page in source.pages(progress.position):
            with interrupts.step():
                new = target.import_many(page.items, arguments.slice)
                progress = progress.after(page.position, len(page.items), new)
                resume.keep(progress)
            advance(progress.read if source.unit == "items" else progress.position)
        seconds = time.monotonic() - began
        if arguments.from_set is not None and progress.read:
            _note_fingerprinter(target, is_new=not exists)
    resume.remove()
    reporter.say(_summary(progress, begun, seconds))
    return 0


def _note_fingerprinter(target: TimeBloom, *, is_new: bool) -> None:
    """Notes whose fingerprints they are, for as long as the filter's parameters are kept."""
    keys = target.config.keys
    left = int(target.client.pttl(keys.root))
    noting = note(keys.fingerprinter(), _SCRAPY_REDIS, left if left > 0 else None, is_new=is_new)
    target.run(noting)


def _open_source(stack: ExitStack, arguments: argparse.Namespace) -> Source:
    if arguments.from_url is not None and arguments.from_set is None:
        raise CommandError("--from-url: needs --from-set, the key of the set on that server")
    if arguments.from_seen is not None:
        return sources.seen_file(stack, arguments.from_seen)
    if arguments.from_lines is not None:
        source = sources.line_file(stack, arguments.from_lines)
        if arguments.resume is not None and (arguments.from_lines == "-" or source.total is None):
            raise CommandError("--resume: needs a file as the source, not standard input or a pipe")
        return source
    return sources.stored_set(stack, arguments, "--from-set", arguments.from_set)


def _open_target(arguments: argparse.Namespace) -> TimeBloom:
    opened = filters.open_or_create(arguments.url, arguments.name, parameters.new(arguments))
    with opened as seen:
        known = filters.parameters_of(seen.config)
    # A client of its own prepares the next request while the server works on the last one.
    return TimeBloom.from_url(arguments.url, arguments.name, **known, retry_for=filters.RETRY_FOR)


def _fresh(arguments: argparse.Namespace, source: Source) -> Progress:
    where = f"{arguments.name!r} on {without_secrets(arguments.url)}"
    label = "" if arguments.slice is None else f", slice {arguments.slice}"
    mark = "" if arguments.resume is None else source.mark
    return Progress(source.name, f"{where}{label}", mark)


def _is_within(source: Source, position: int) -> bool:
    """The position is not the start, and the source reaches that far. (A cursor of a set is no offset.)"""
    return position > 0 and (source.unit != "bytes" or position <= (source.total or 0))


def _summary(progress: Progress, begun: Progress, seconds: float) -> str:
    rate = (progress.read - begun.read) / max(seconds, 1e-3)
    return (
        f"{progress.read:,} items read, {progress.new:,} new, "
        f"{progress.read - progress.new:,} already seen; {rate:,.0f} items/s"
    )
