"""``tbloom add`` and ``check``, which print the lines that are new or seen; ``tbloom rate``, which measures false positives."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import click
from redis.exceptions import OutOfMemoryError

from tbloom import FilterFull, Period, TimeBloom
from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.hasher import Secret
from tbloom.cli.kit import filters, formats, interrupts, numbers, options, output, progress, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server

#: Items in a request, which take a millisecond or two of the server's time.
_SAMPLED_AT_ONCE = 1000
#: The quantile of the standard normal distribution for a confidence of 95 %.
_Z = 1.96
_lookup = options.all_of(
    options.name,
    options.files,
    options.server,
    options.secret,
    click.option("--seen", is_flag=True, help="print the seen items, not the new ones"),
    options.within,
    options.quiet,
)


@click.command(cls=Command, example="tbloom add news < urls.txt > new.txt")
@_lookup
@click.option("--exit-code", is_flag=True, help="end with 1 if no line was printed, as grep does")
@options.creation
def add(
    name: str,
    files: tuple[BinaryIO, ...],
    server: Server,
    secret: Secret | None,
    within: int | None,
    *,
    seen: bool,
    exit_code: bool,
    **parameters: Any,
) -> int:
    """Add the lines of files, and print the new ones."""
    own = {"retry_for": filters.RETRY_FOR, "secret": secret}
    filter = server.open_or_create(name, options.creation_parameters(parameters), **own)

    def ask(items: list[bytes]) -> Iterator[bytes]:
        return (item for item, is_new in _add(filter, items, within) if is_new is not seen)

    printed = _run(files, ask, kind="seen" if seen else "new", line="answer")
    return 1 if exit_code and not printed else 0


def _add(seen: TimeBloom, items: list[bytes], within: int | None) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from zip(items, seen.add_many(items, within), strict=True)
    except (FilterFull, OutOfMemoryError) as error:
        # The items that were added before there was no more room get the same answers again.
        has_room = True
        for item in items:
            try:
                yield item, seen.add(item, within)
            except type(error):
                has_room = False
        if not has_room:
            raise
    except filters.OUTAGES as error:
        lost = f"the answers to {formats.counted(len(items), 'line')} could not be printed; they may be seen now"
        raise CommandError(f"{error}; {lost}") from None


@click.command(cls=Command, example="tbloom check news urls.txt")
@_lookup
@click.option(
    "--when",
    is_flag=True,
    help="print the seen items, each after the newest slice that holds it: label, start, end and item, with tabs between",
)
def check(
    name: str,
    files: tuple[BinaryIO, ...],
    server: Server,
    secret: Secret | None,
    within: int | None,
    *,
    seen: bool,
    when: bool,
) -> int:
    """Print the new lines of files, without adding them.

    Exit code 1: no line was printed.
    """
    if when and within is not None:
        raise CommandError("--when: expected no --within")
    filter = server.filter(name, retry_for=filters.RETRY_FOR, secret=secret)
    if maker := checked(filter.client.get(filter.config.keys.fingerprinter())):
        output.summary(
            f"tbloom: a crawler has filled {name!r} with fingerprints ({maker}); lines such as URLs are new to it"
        )

    def ask(items: list[bytes]) -> Iterator[bytes]:
        if when:
            found = zip(items, filter.last_seen_many(items), strict=True)
            return (_dated(item, period) for item, period in found if period)
        known = zip(items, filter.contains_many(items, within), strict=True)
        return (item for item, is_known in known if is_known is seen)

    return 0 if _run(files, ask, kind="seen" if seen or when else "new") else 1


def _run(
    files: tuple[BinaryIO, ...],
    ask: Callable[[list[bytes]], Iterable[bytes]],
    kind: str,
    line: str = "",
) -> int:
    """Print what ``ask`` returns for the files' lines, batch by batch, and return the number of printed lines.

    If ``line`` is given, output that can't be printed is an error, which calls a line by this name.
    """
    printed = total = 0
    lines = streams.lines_in(files)
    try:
        with progress.bar("lines", lines, prints=True) as advance:
            for items in streams.batches(*files):
                with interrupts.step():
                    wanted: list[bytes] = []
                    try:
                        with filters.announcing_waits():
                            wanted.extend(ask(items))
                    finally:
                        # After an error too: an item that was added is never new again.
                        streams.write(b"".join(item + b"\n" for item in wanted), line)
                    printed += len(wanted)
                    total += len(items)
                advance(len(items))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{formats.counted(total, 'line')} answered") from None
    output.summary(f"{formats.counted(total, 'line')}, {printed:,} {kind}")
    return printed


def _dated(item: bytes, period: Period) -> bytes:
    """Return a line of the slice's label, start and end, and the item."""
    times = [at.isoformat() if at else "" for at in (period.start, period.end)]
    return "\t".join([period.label, *times, ""]).encode() + item


@click.command(cls=Command, example="tbloom rate news --sample 100000")
@options.name
@options.server
@options.secret
@click.option("--sample", type=numbers.count, default="100000", help="items to ask for (100000)")
@options.as_json
def rate(name: str, server: Server, secret: Any, sample: int) -> None:
    """Measure how often a filter takes new items for seen.

    It asks for random items, which were never added, in small batches, and changes nothing. The interval has the true rate
    with a confidence of 95 % (Wilson's score interval).
    """
    token = secrets.token_hex(8)
    found = 0
    seen = server.filter(name, retry_for=filters.RETRY_FOR, secret=secret)
    with progress.bar("items", sample) as advance:
        for begin in range(0, sample, _SAMPLED_AT_ONCE):
            items = [f"{token}/{n}" for n in range(begin, min(begin + _SAMPLED_AT_ONCE, sample))]
            found += sum(seen.contains_many(items))
            advance(len(items))
    info = seen.info()
    low, high = interval(found, sample)
    made = {
        "sample": sample,
        "false_positives": found,
        "rate": found / sample,
        "interval": [low, high],
        "predicted": info.error_rate,
        "promised": info.promised_error_rate,
    }
    output.show(made, lambda: _rate_text(info.name, made))


def interval(found: int, sample: int) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (JASA 22, 1927), for a confidence of 95 %."""
    rate, z = found / sample, _Z
    centre = rate + z * z / (2 * sample)
    half = z * math.sqrt(rate * (1 - rate) / sample + (z / (2 * sample)) ** 2)
    whole = 1 + z * z / sample
    return max(0.0, (centre - half) / whole), min(1.0, (centre + half) / whole)


def _rate_text(name: str, made: dict[str, Any]) -> str:
    low, high = map(formats.rate, made["interval"])
    counts = f"{made['false_positives']:,} of {formats.counted(made['sample'], 'item')}"
    rows = [
        {"error rate": kind, "value": formats.rate(value), "remark": remark}
        for kind, value, remark in (
            ("measured", made["rate"], f"{low} to {high} (95 %)"),
            ("predicted", made["predicted"], "by the bits that are set"),
            ("promised", made["promised"], "at most, with every slice full"),
        )
    ]
    first = output.sentence(f"{name}: {counts} that were never added are called seen")
    return f"{first}\n\n{output.table(rows, left=('error rate', 'remark'))}"
