"""The error rate of one filter, by bits per item and number of hashes."""

from __future__ import annotations

import math
from typing import Any

from tbloom.bloom import sizing
from tbloom.cli.kit import output

_BITS = range(2, 33)
_HASHES = range(1, 9)
_NOTE = (
    "The rate of one full filter, by its bits per item and number of hashes (k), as the classic formula has it. "
    "*: tbloom's number of hashes for this size; the last column is the rate that it has then, in its blocks. "
    "best: the k of the lowest classic rate. Over a window the slices' rates add up: each of 7 slices may have a seventh."
)


def classic_rate(items: float, bits: int, hashes: int) -> float:
    """The rate of a classic Bloom filter: (1-e^(-kn/m))^k."""
    return float((-math.expm1(-hashes * items / bits)) ** hashes)


def rows() -> list[dict[str, Any]]:
    """The table: for each number of bits per item, the classic rates for 1 to 8 hashes, the number of hashes with the
    lowest one, and tbloom's number of hashes with the rate of its blocks."""
    return [
        {
            "bits_per_item": bits,
            "rates": [classic_rate(1, bits, hashes) for hashes in _HASHES],
            "best_hashes": min(range(1, bits + 1), key=lambda k: classic_rate(1, bits, k)),
            "tbloom_hashes": (hashes := _tbloom_hashes(bits)),
            "tbloom_rate": _tbloom_rate(bits, hashes),
        }
        for bits in _BITS
    ]


def _tbloom_hashes(bits: int) -> int:
    """The number of hashes that tbloom takes for the rate that it has with them; the lowest such rate."""

    def missed(hashes: int) -> tuple[int, float]:
        rate = _tbloom_rate(bits, hashes)
        return abs(sizing.hashes_for(rate) - hashes), rate

    return min(range(1, sizing.MAX_HASHES + 1), key=missed)


def _tbloom_rate(bits: int, hashes: int) -> float:
    return sizing.rate_of_load(sizing.block_step(hashes) * sizing.COLUMNS / bits, hashes)


def text(rows: list[dict[str, Any]]) -> str:
    """The table, with three digits as the sources have it; on 80 columns, its last columns are in a second one."""
    shown = []
    for row in rows:
        rates = {f"k={k}": _three(rate) for k, rate in zip(_HASHES, row["rates"], strict=True)}
        if (chosen := f"k={row['tbloom_hashes']}") in rates:
            rates[chosen] = f"*{rates[chosen]}"
        shown.append(
            {
                "bits": str(row["bits_per_item"]),
                **rates,
                "best": str(row["best_hashes"]),
                "tbloom": str(row["tbloom_hashes"]),
                "rate": _three(row["tbloom_rate"]),
            }
        )
    return "\n".join([output.table(shown), "", output.sentence(_NOTE, dim=True)])


def _three(rate: float) -> str:
    """A rate with three digits, zeros included: ``0.400``, ``1.23e-06``."""
    return f"{rate:#.3g}"
