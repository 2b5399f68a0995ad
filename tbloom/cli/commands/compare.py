"""``tbloom compare``: a filter against an exact set, and its error rate as measured with random items."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tbloom.bloom.sizing import interval
from tbloom.cli.kit import filters, formats, numbers, options, output, sources
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.filter_info import keeps_promise
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tbloom import TimeBloom
    from tbloom.bloom.hasher import Secret

#: Items per request.
_BATCH = 2000
#: The length of Scrapy's fingerprints.
_RANDOM_BYTES = 20


@click.command(cls=Command, example="tbloom compare news --with-set news:dupefilter")
@options.name
@options.url
@options.secret
@sources.options("with", "set", "lines")
@click.option(
    "--random",
    "number",
    type=numbers.count,
    default="100k",
    metavar="N",
    help="number of random items that measure the error rate (100k)",
)
@options.as_json
@options.quiet
def command(
    name: str,
    url: str,
    secret: Secret | None,
    number: int,
    *,
    as_json: bool,
    quiet: bool,
    **source: Any,
) -> int:
    """Compares a filter with an exact set, and measures its error rate.

    Exit code 1: items are missing, or the error rate is higher than promised.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with ExitStack() as stack:
        own = {"retry_for": filters.RETRY_FOR, "secret": secret}
        opened = filters.open_filter(url, name, **own)
        seen = stack.enter_context(opened)
        found = sources.opened(stack, "with", url, source)
        exact = (items for items, _ in found.pages(0))
        total = found.total if found.unit == "items" else None
        items, known = _ask(reporter, "Comparing", seen, total, exact)
        _, hits = _ask(reporter, "Measuring", seen, number, _random(number))
        compared = _compared(seen, items, items - known, hits, number)
    output.show(compared, lambda: _text(compared), as_json=as_json)
    return 0 if compared["agrees"] else 1


def _random(number: int) -> Iterator[list[bytes]]:
    """Batches of random items, which nobody has added."""
    for done in range(0, number, _BATCH):
        yield [os.urandom(_RANDOM_BYTES) for _ in range(min(_BATCH, number - done))]


def _ask(
    reporter: Reporter,
    what: str,
    seen: TimeBloom,
    total: int | None,
    batches: Iterable[list[bytes]],
) -> tuple[int, int]:
    """The number of items, and of those that the filter calls seen."""
    asked = found = 0
    with reporter.count(what, total, "items") as advance:
        for items in batches:
            found += sum(seen.contains_many(items))
            asked += len(items)
            advance(asked)
    return asked, found


def _compared(seen: TimeBloom, items: int, missing: int, hits: int, random: int) -> dict[str, Any]:
    info, (low, high) = seen.info(), interval(hits, random)
    is_kept = keeps_promise(info, low)
    return {
        "name": seen.name,
        # Exact items, and how many of them the filter lacks.
        "items": items,
        "missing": missing,
        # Random items, which were never added, and how many of them the filter calls seen.
        "random": random,
        "seen": hits,
        # Their proportion, with its 95 % confidence interval.
        "measured_error_rate": hits / max(1, random),
        "measured_low": low,
        "measured_high": high,
        "estimated_error_rate": info.error_rate,
        "promised_error_rate": info.promised_error_rate,
        "keeps_promise": is_kept,
        "agrees": not missing and is_kept,
    }


def _text(compared: dict[str, Any]) -> str:
    rates = ("measured_error_rate", "measured_low", "measured_high")
    measured, low, high = (formats.rate(compared[name]) for name in rates)
    estimated = formats.rate(compared["estimated_error_rate"])
    promised = formats.rate(compared["promised_error_rate"])
    facts = output.facts(
        ("exact items", f"{compared['items']:,}", ""),
        ("missing", f"{compared['missing']:,}", "not in the filter, or no longer"),
        ("random items", f"{compared['random']:,}", "never added"),
        ("called seen", f"{compared['seen']:,}", ""),
        ("error rate, measured", measured, f"{low} to {high} (95 % interval)"),
        ("estimated", estimated, "from the number of items"),
        ("promised", promised, "at most, over the whole window"),
    )
    return "\n".join([facts, *output.warnings(_warnings(compared))])


def _warnings(compared: dict[str, Any]) -> Iterator[str]:
    if compared["missing"] == compared["items"] > 0:
        yield (
            "none of the items is in the filter. Are they fingerprints of the same kind? "
            "Those of scrapy-redis' dupefilter differ from Scrapy's"
        )
    elif compared["missing"]:
        yield "missing items would be fetched again"
    # By more than chance.
    if not compared["keeps_promise"]:
        yield "the error rate is higher than promised"
