"""``tbloom rate``: measures how often a filter takes items for seen that were never added."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any

import click

from tbloom.cli.kit import filters, formats, numbers, options, output, progress
from tbloom.cli.kit.command import Command

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Server

#: Items in a request: a millisecond or two of the server's time.
_BATCH = 1000
#: Of the standard normal distribution: for a confidence of 95 %.
_Z = 1.96


@click.command(cls=Command, example="tbloom rate news --sample 100000")
@options.name
@options.server
@options.secret
@click.option(
    "--sample",
    type=numbers.count,
    metavar="N",
    default="100000",
    help="items to ask for, such as 1M (100000)",
)
@options.as_json
def command(name: str, server: Server, secret: Any, sample: int) -> None:
    """Measures how often a filter takes new items for seen.

    It asks for random items, which were never added, in small batches, and changes nothing. The interval has the true rate
    with a confidence of 95 % (Wilson's score interval).
    """
    token = secrets.token_hex(8)
    found = 0
    seen = server.filter(name, retry_for=filters.RETRY_FOR, secret=secret)
    with progress.bar("items", sample) as advance:
        for begin in range(0, sample, _BATCH):
            items = [f"{token}/{n}" for n in range(begin, min(begin + _BATCH, sample))]
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
    output.show(made, lambda: _text(info.name, made))


def interval(found: int, sample: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion (JASA 22, 1927), for a confidence of 95 %."""
    rate, z = found / sample, _Z
    centre = rate + z * z / (2 * sample)
    half = z * math.sqrt(rate * (1 - rate) / sample + (z / (2 * sample)) ** 2)
    whole = 1 + z * z / sample
    return max(0.0, (centre - half) / whole), min(1.0, (centre + half) / whole)


def _text(name: str, made: dict[str, Any]) -> str:
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
