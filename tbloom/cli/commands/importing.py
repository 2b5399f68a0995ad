"""``tbloom import``: the requests that scrapy-redis or Scrapy has seen, or a file of items, into a filter."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tbloom import TimeBloom
from tbloom.bloom.fingerprinter import note
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import filters, formats, interrupts, options, output, sources
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import checked_fields
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.urls import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tbloom.cli.kit.sources import Source

#: What has made the fingerprints in the set of scrapy-redis' dupefilter.
_SCRAPY_REDIS = "tbloom.scrapy.dupefilter.fingerprinter.ScrapyRedisFingerprinter"


@click.command(cls=Command, example="tbloom import news:tbloom --create --from-set news:dupefilter")
@options.name
@options.url
@options.secret
@sources.options("from", "set", "seen", "lines")
@click.option(
    "--slice",
    metavar="LABEL",
    help="the slice to import into, as 'tbloom info' shows it (the current one)",
)
@click.option(
    "--resume",
    metavar="FILE",
    type=click.Path(),
    help="a file that keeps the progress, with which an interrupted import goes on",
)
@options.as_json
@options.quiet
@options.creation
def command(
    name: str,
    url: str,
    secret: Secret | None,
    slice: str | None,
    resume: str | None,
    *,
    as_json: bool,
    quiet: bool,
    create: bool,
    **parameters: Any,
) -> None:
    """Imports what scrapy-redis or Scrapy has seen, or a file of items.

    Such as the requests in the set of scrapy-redis' dupefilter.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    file = ResumeFile(resume)
    with ExitStack() as stack:
        # The source is opened first, so that a wrong name changes nothing.
        is_set, is_file = parameters["source_set"] is not None, parameters["source_lines"] != "-"
        source = sources.opened(stack, "from", url, parameters)
        if resume is not None and (not is_file or source.total is None):
            raise CommandError("--resume: needs a file as the source, not standard input or a pipe")
        given = options.new(parameters, create=create)
        target = stack.enter_context(_open_target(url, name, given, secret))
        target.import_many([], slice)  # raises if there is no such slice
        # A filter that has vanished, or a file that has become shorter, is imported from the start.
        exists = bool(target.client.exists(target.config.keys.root))
        where = f"{name!r} on {without_secrets(url)}{'' if slice is None else f', slice {slice}'}"
        progress = begun = file.begin(
            Progress(source.name, where, "" if resume is None else source.mark),
            is_valid=lambda known: exists and _is_within(source, known.position),
        )
        if begun.read:
            reporter.say(f"Going on after {formats.counted(begun.read, 'item')}")
        began = time.monotonic()
        advance = stack.enter_context(reporter.count("Importing", source.total, source.unit))
        for items, position in source.pages(progress.position):
            with interrupts.step():
                new = progress.new + target.import_many(items, slice)
                read = progress.read + len(items)
                progress = progress._replace(position=position, read=read, new=new)
                file.keep(progress)
            advance(progress.read if source.unit == "items" else progress.position)
        seconds = max(time.monotonic() - began, 1e-3)
        other = is_set and progress.read and _other_fingerprinter(target, is_new=not exists)
    file.remove()
    seen = progress.read - progress.new
    if as_json:
        output.print_json({"read": progress.read, "new": progress.new, "seen": seen})
    reporter.say(
        f"{formats.counted(progress.read, 'item')} read, {progress.new:,} new, {seen:,} already seen; "
        f"{(progress.read - begun.read) / seconds:,.0f} items/s"
    )
    if other:
        reporter.say(
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


def _open_target(
    url: str, name: str, given: dict[str, Any] | None, secret: Secret | None
) -> TimeBloom:
    with filters.open_or_create(url, name, given, secret=secret) as seen:
        known = filters.parameters_of(seen.config)
    # A client of its own prepares the next request while the server works on the last one.
    return TimeBloom.from_url(url, name, **known, retry_for=filters.RETRY_FOR)


def _is_within(source: Source, position: int) -> bool:
    """The position is not the start, and the source reaches that far. (A cursor of a set is no offset.)"""
    return position > 0 and (source.unit != "bytes" or position <= (source.total or 0))


class Progress(NamedTuple):
    """Source, target and position of an import, with its counts."""

    source: str
    target: str
    #: ``Source.mark`` when the import began.
    mark: str
    position: int = 0
    read: int = 0
    new: int = 0


class ResumeFile:
    """The progress, kept in a file; without a path, it is not kept."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path is not None else None

    def begin(self, fresh: Progress, *, is_valid: Callable[[Progress], bool]) -> Progress:
        """The file's progress if it ``is_valid``, else ``fresh``. Raises CommandError where the file can't be written."""
        known = self._read()
        if known is not None and (known.source, known.target) != (fresh.source, fresh.target):
            raise self._error(f"belongs to another import, from {known.source} into {known.target}")
        is_good = known is not None and known.mark == fresh.mark and is_valid(known)
        progress = known if known is not None and is_good else fresh
        self.keep(progress)
        return progress

    def keep(self, progress: Progress) -> None:
        """Writes the progress; the file is replaced as a whole."""
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.tmp")
        try:
            beside.write_text(json.dumps(progress._asdict()), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            raise self._error(error.strerror) from None

    def remove(self) -> None:
        """Removes the file of a finished import."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self) -> Progress | None:
        if self._path is None:
            return None
        try:
            return Progress(**checked_fields(Progress, json.loads(self._path.read_bytes())))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error.strerror) from None
        except (LookupError, TypeError, ValueError):
            raise self._error("expected a file by 'tbloom import', or a new name") from None

    def _error(self, text: str | None) -> CommandError:
        return CommandError(f"--resume {self._path}: {text}")
