"""The error rate of one filter, by bits per item and number of hashes."""

from __future__ import annotations

import math
from typing import NamedTuple

from tbloom.bloom import sizing
from tbloom.cli.kit import output

_BITS = range(2, 33)
_HASHES = range(1, 9)
_PLAIN_FROM = 1e-3
_NOTE = (
    "The rate of one full filter, by its bits per item and number of hashes (k), as the classic formula has it. "
    "*: tbloom's number of hashes for this size; the last column is the rate that it has then, in its blocks. "
    "best: the k of the lowest classic rate. Over a window the slices' rates add up: each of 7 slices may have a seventh."
)


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


def classic_rate(items: float, bits: int, hashes: int) -> float:
    """The rate of a classic Bloom filter: (1-e^(-kn/m))^k."""
    return float((-math.expm1(-hashes * items / bits)) ** hashes)


def classic_hashes(bits: int, capacity: int) -> int:
    """The number of hashes with the lowest rate in a classic Bloom filter: (m/n) ln 2, one of its two whole neighbours."""
    low = max(1, math.floor(bits / capacity * math.log(2)))
    return min((low, low + 1), key=lambda hashes: classic_rate(capacity, bits, hashes))


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


def text(rows: list[Row]) -> str:
    """The table, for 80 columns."""
    hashes = [f"k={number}" for number in _HASHES]
    shown = [
        {
            "bits": str(row.bits_per_item),
            **{
                heading: f"{'*' * (k == row.tbloom_hashes)}{_short(rate)}"
                for heading, k, rate in zip(hashes, _HASHES, row.rates, strict=True)
            },
            "best": str(row.best_hashes),
            "tbloom": str(row.tbloom_hashes),
            "rate": _short(row.tbloom_rate),
        }
        for row in rows
    ]
    return "\n".join(
        [output.table(shown, less=hashes[::-1], gap=1), "", output.sentence(_NOTE, dim=True)]
    )


def _short(rate: float) -> str:
    """Two digits: ``0.0035``, ``5.7e-4``."""
    return f"{rate:.2g}" if rate >= _PLAIN_FROM else f"{rate:.1e}".replace("e-0", "e-")
