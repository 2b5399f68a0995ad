"""``tbloom pages import`` and ``export``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tbloom.cli.commands import pagetext
from tbloom.cli.kit import formats, numbers, options, output, progress, streams
from tbloom.cli.kit.command import Command

#: The characters of a long URL that are printed.
_SHOWN = 200


@click.command("import", cls=Command, example="tbloom pages import pages crawl.warc.gz")
@pagetext.path_argument
@click.argument(
    "sources",
    metavar="SOURCE...",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True),
)
@options.as_json
@options.quiet
@click.option("--max-body", type=numbers.size, default="128MB", help="skip longer pages (128MB)")
@pagetext.new_store
def import_pages(*, path: str, sources: tuple[str, ...], max_body: int, **like: Any) -> int:
    """Store the pages of WARC files.

    A source is a WARC or WACZ file, or - for standard input. A page that the store has, fetched at the
    same time or later, stays; so after an interruption, the same command goes on. Damaged places are printed, and a file is
    read on behind them; so are sources that can't be read, or not to their end, and the others are imported. Exit code 1:
    there are some.
    """
    from tbloom.pages import PageStore, import_warc  # noqa: PLC0415 - the help does without isal

    total = sum(Path(word).stat().st_size for word in sources if Path(word).is_file())
    given = [sys.stdin.buffer if word == "-" else word for word in sources]
    with progress.bar("bytes", total) as advance, ExitStack() as stack:
        done = import_warc(
            lambda: stack.enter_context(PageStore(path, **like)),
            *given,
            max_body=max_body,
            progress=advance,
        )
    found = {
        name: getattr(done, name)
        for name in ("stored", "present", "skipped", "damaged", "replaced", "noted")
    }
    output.show(found, lambda: output.lines(done.damaged))
    skipped, noted = _counted(done.skipped) or "nothing", _counted(done.noted)
    stored = formats.counted(done.stored, "page")
    replaced = f" {done.replaced:,} replaced," if done.replaced else ""
    summary = f"{stored} stored,{replaced} {done.present:,} already there; skipped: {skipped}"
    output.summary(f"{summary}; not skipped: {noted}" if noted else summary)
    return 1 if done.damaged else 0


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in Counter(kinds).most_common())


@click.command(cls=Command, example="tbloom pages export pages -o june.warc.gz --since 2026-06-01")
@pagetext.path_argument
@click.argument("names", metavar="[URL]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(),
    required=True,
    help="the WARC file, with zstd if its name is FILE.warc.zst; -: standard output",
)
@click.option("--since", type=numbers.time, help="only pages fetched then or later")
@click.option("--until", type=numbers.time, help="only pages fetched before")
@options.quiet
def export(
    *,
    path: str,
    names: tuple[str, ...],
    target: str,
    since: datetime | None,
    until: datetime | None,
) -> int:
    """Write pages into a WARC file of their own.

    Without URLs, all pages. A URL may be key:HEX (see ls). Headers behind the first 31 KB of a page are left out: other
    tools would not read on. Exit code 1: the store has no page of a URL, one can't be read, or headers were left out.
    """
    from tbloom.pages import PageStore, export_warc  # noqa: PLC0415 - the help does without isal

    urls = [*map(pagetext.address_of, names)] or None
    codec = "zstd" if target.endswith(".zst") else "gzip"
    with (
        PageStore(path, readonly=True) as store,
        streams.writing(target) as file,
        progress.bar("pages", len(urls or store)) as advance,
    ):
        within = {"since": since, "until": until}
        done = export_warc(store, file, urls, **within, codec=codec, progress=advance)
    for address in done.missing:
        output.say(f"tbloom: no page {pagetext.as_word(address)!r} in {path!r}")
    for address in done.shortened:
        output.say(
            f"tbloom: headers over 31 KB are left out, or the page: {pagetext.as_word(address)[:_SHOWN]}"
        )
    output.summary(f"{formats.counted(done.pages, 'page')} written")
    return 1 if done.missing or done.shortened else 0
