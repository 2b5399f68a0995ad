"""The error rate of one filter, by bits per item and number of hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group
from rich.text import Text

from tbloom.bloom import sizing
from tbloom.cli.kit import output
from tbloom.cli.kit.classic import classic_hashes, classic_rate

if TYPE_CHECKING:
    from rich.console import RenderableType

_BITS = range(2, 33)
_HASHES = range(1, 9)
_PLAIN_FROM = 1e-3
_NOTE = """\
The rate of one full filter, by its bits per item and number of hashes (k), as the
classic formula has it. *: tbloom's number of hashes for this size; the last column
is the rate that it has then, in its blocks. best: the k of the lowest classic rate.
Over a window the slices' rates add up: each of 7 slices may have a seventh."""


class Row(NamedTuple):
    """The rates for one number of bits per item."""

    bits_per_item: int
    #: By the classic formula, for 1 to 8 hashes.
    rates: list[float]
    #: The number of hashes that the classic formula has its lowest rate with.
    best_hashes: int
    #: tbloom's number of hashes, and the rate of its blocks.
    tbloom_hashes: int
    tbloom_rate: float


def rows() -> list[Row]:
    """The table."""
    return [
        Row(
            bits,
            [classic_rate(1, bits, hashes) for hashes in _HASHES],
            classic_hashes(bits, 1),
            *_own(bits),
        )
        for bits in _BITS
    ]


def _own(bits_per_item: int) -> tuple[int, float]:
    """The number of hashes that tbloom takes for the rate that it has with them; and this rate."""

    def rate(hashes: int) -> float:
        return sizing.rate_of_load(hashes * sizing.COLUMNS / bits_per_item, hashes)

    # The lowest such rate; where none is, the nearest.
    counts = range(1, sizing.MAX_HASHES + 1)
    hashes = min(
        counts, key=lambda count: (abs(sizing.hashes_for(rate(count)) - count), rate(count))
    )
    return hashes, rate(hashes)


def table(rows: list[Row]) -> RenderableType:
    """The table, for 80 columns."""
    hashes = [f"k={number}" for number in _HASHES]
    shown = output.columns(right=("bits", *hashes, "best", "tbloom", "rate"))
    shown.padding = (0, 1, 0, 0)
    for row in rows:
        cells = [
            Text(f"{'*' * (k == row.tbloom_hashes)}{_short(rate)}", _style(k, row))
            for k, rate in zip(_HASHES, row.rates, strict=True)
        ]
        own = (str(row.best_hashes), str(row.tbloom_hashes), _short(row.tbloom_rate))
        shown.add_row(str(row.bits_per_item), *cells, *own)
    fitted = output.Fitted(shown, *reversed(hashes))
    return Group(fitted, Text(f"\n{_NOTE}", "dim"))


def _style(hashes: int, row: Row) -> str:
    return "bold green" if hashes == row.tbloom_hashes else ""


def _short(rate: float) -> str:
    """Two digits: ``0.0035``, ``5.7e-4``."""
    return f"{rate:.2g}" if rate >= _PLAIN_FROM else f"{rate:.1e}".replace("e-0", "e-")
