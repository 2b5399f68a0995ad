"""``tbloom compare``: does a filter have what an exact set has, and how often does it see what it never got?"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from tbloom.bloom.measured import Measured
from tbloom.cli.kit import filters, numbers, show, sources, words
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from tbloom import TimeBloom
    from tbloom.cli.kit.sources import Source

#: So many items are asked for at once.
_AT_ONCE = 2000
#: As long as Scrapy's fingerprints.
_RANDOM_BYTES = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found."""

    name: str
    #: The exact items, and those of them that the filter lacks.
    items: int
    missing: int
    #: Random items, which nobody has added, and those of them that the filter calls seen.
    random: int
    seen: int
    #: Their share, and its 95 % interval.
    measured_error_rate: float
    measured_low: float
    measured_high: float
    #: From the bits that are set.
    estimated_error_rate: float
    promised_error_rate: float

    @property
    def is_too_high(self) -> bool:
        """Whether chance alone does not explain so high an error rate."""
        return self.measured_low > self.promised_error_rate

    @property
    def agrees(self) -> bool:
        """Whether the filter has all, and keeps its promise."""
        return not self.missing and not self.is_too_high


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME, --with-set or --with-lines, --from-url, --random, --json, --quiet."""
    filters.add_arguments(parser)
    exact = parser.add_mutually_exclusive_group(required=True)
    exact.add_argument(
        "--with-set",
        metavar="KEY",
        help="the Redis set of an exact dupefilter, such as news:dupefilter",
    )
    exact.add_argument(
        "--with-lines", metavar="FILE", help="an item in each line; -: standard input"
    )
    parser.add_argument("--from-url", metavar="URL", help="where the set is (URL)")
    parser.add_argument(
        "--random",
        type=numbers.count,
        default=100_000,
        metavar="N",
        help="how many random items measure the error rate (100000)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison. 0: they agree; 1: items are missing, or the error rate is too high."""
    if arguments.from_url is not None and arguments.with_set is None:
        raise CommandError("--from-url: it says where the set is, and --with-set is not given")
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with ExitStack() as stack:
        opened = filters.open_filter(arguments.url, arguments.name, retry_for=filters.RETRY_FOR)
        seen = stack.enter_context(opened)
        source = _exact(stack, arguments)
        exact = (page.items for page in source.pages(0))
        total = source.total if source.unit == "items" else None
        items, found = _ask(reporter, "Comparing", seen, total, exact)
        number = arguments.random
        _, hits = _ask(reporter, "Measuring", seen, number, _random(number))
        compared = _compared(seen, items, items - found, Measured(hits, number))
    if arguments.json:
        told = {**asdict(compared), "agrees": compared.agrees}
        show.print_json(told)
    else:
        show.console().print(_shown(compared))
    return 0 if compared.agrees else 1


def _exact(stack: ExitStack, arguments: argparse.Namespace) -> Source:
    if arguments.with_lines is not None:
        return sources.line_file(stack, arguments.with_lines)
    return sources.stored_set(stack, arguments, "--with-set", arguments.with_set)


def _random(number: int) -> Iterator[list[bytes]]:
    """Items that nobody has added."""
    for done in range(0, number, _AT_ONCE):
        yield [os.urandom(_RANDOM_BYTES) for _ in range(min(_AT_ONCE, number - done))]


def _ask(
    reporter: Reporter, what: str, seen: TimeBloom, total: int | None, some: Iterable[list[bytes]]
) -> tuple[int, int]:
    """How many items there are, and how many of them the filter has."""
    asked = found = 0
    with reporter.count(what, total, "items") as advance:
        for items in some:
            found += sum(seen.contains_many(items))
            asked += len(items)
            advance(asked)
    return asked, found


def _compared(seen: TimeBloom, items: int, missing: int, measured: Measured) -> Comparison:
    return Comparison(
        name=seen.name,
        items=items,
        missing=missing,
        random=measured.of,
        seen=measured.hits,
        measured_error_rate=measured.rate,
        measured_low=measured.low,
        measured_high=measured.high,
        estimated_error_rate=seen.info().error_rate,
        promised_error_rate=seen.config.error_rate,
    )


def _shown(compared: Comparison) -> RenderableType:
    low, high = words.rate(compared.measured_low), words.rate(compared.measured_high)
    table = show.facts(
        ("exact items", f"{compared.items:,}", ""),
        ("missing", f"{compared.missing:,}", "not in the filter, or not any more"),
        ("random items", f"{compared.random:,}", "never added"),
        ("called seen", f"{compared.seen:,}", ""),
        (
            "error rate, measured",
            words.rate(compared.measured_error_rate),
            f"{low} to {high} (95 % interval)",
        ),
        (
            "estimated",
            words.rate(compared.estimated_error_rate),
            "from the bits that are set",
        ),
        ("promised", words.rate(compared.promised_error_rate), "at most, over the whole window"),
    )
    return Group(table, *(Text(line, style="yellow") for line in _verdict(compared)))


def _verdict(compared: Comparison) -> Iterator[str]:
    if compared.missing == compared.items > 0:
        yield (
            "warning: not one is in the filter. Are they fingerprints of the same kind? "
            "scrapy-redis' dupefilter makes others than Scrapy"
        )
    elif compared.missing:
        yield "warning: missing items would be fetched again"
    if compared.is_too_high:
        yield "warning: the error rate is higher than promised"
