"""The page of the paper, and its plots."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tbloom.bloom import sizing
from tbloom.cli.kit import formats
from tbloom.cli.kit.charts import Bar, chart, matrix
from tbloom.paper.memory import ITEMS_PER_WAITING, SLICES
from tbloom.paper.rates import HASHES
from tbloom.paper.template import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tbloom.paper.crawls import Crawls
    from tbloom.paper.figures import Figures
    from tbloom.paper.memory import Size

_WIDTH, _LABELS = 440, 130


def files(figures: Figures, about: dict[str, Any]) -> dict[str, str]:
    """The page and its plots, by file name."""
    return {
        "paper-hours.svg": _overlaps(figures.hours),
        "paper-days.svg": _overlaps(figures.days),
        "paper-rate.svg": _rate(figures),
        "paper-memory.svg": _memory(figures),
        "paper.md": _text(figures, about),
    }


def _overlaps(crawls: Crawls) -> str:
    names = [f"{crawls.plan.noun} {n}" for n in range(1, crawls.plan.crawls + 1)]
    note = f"a window of {crawls.plan.slices} slices; with itself: the pages of the crawl"
    return matrix("Pages in common", note, names, crawls.overlaps, width=_WIDTH)


def _rate(figures: Figures) -> str:
    found = figures.overfilled
    bars = [
        Bar("measured", found.measured, f"{found.measured:.4f}"),
        Bar("tbloom: any slice", found.union, f"{found.union:.4f}"),
        Bar("paper: all slices", found.product, _power(found.product)),
    ]
    title = f"The error rate of {found.slices} overfilled slices"
    return chart(title, "logarithmic scale", [("", bars)], log=True, width=_WIDTH, labels=_LABELS)


def _memory(figures: Figures) -> str:
    memory = figures.memory
    groups = []
    for size in memory.sizes:
        queue, window, in_set = memory.queue(size), memory.window(size), memory.set(size)
        bars = {
            "tbloom's window": window,
            "tbloom and queue": window + queue,
            "set": in_set,
            "set and queue": in_set + queue,
        }
        groups.append(
            (
                f"{_items(size.items)} items{', computed' if size.set is None else ''}",
                [Bar(label, used / 2**20, formats.size(used)) for label, used in bars.items()],
            )
        )
    note = "logarithmic scale; the queue is computed"
    return chart("Memory in Redis (MB)", note, groups, log=True, width=_WIDTH, labels=_LABELS)


def _text(figures: Figures, about: dict[str, Any]) -> str:
    hours, days, race, rate = figures.hours, figures.days, figures.race, figures.overfilled
    memory = figures.memory
    largest = [size for size in memory.sizes if size.set is not None][-1]
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    return PAGE.format(
        command="tbloom paper --quick" if about["quick"] else "tbloom paper",
        day=f"{datetime.now(timezone.utc):%Y-%m-%d}",
        about=f"{about['redis']}, {packages}, Python {platform.python_version()}",
        seconds=formats.duration(about["seconds"]),
        hour=hours.period_seconds,
        day_seconds=days.period_seconds,
        hours=_crawls(hours),
        days=_crawls(days),
        kept=_table(
            ("", "pages fetched", "slices on the server at its end"),
            (
                (f"day {n}", days.overlaps[n - 1][n - 1], ", ".join(f"day {day}" for day in kept))
                for n, kept in enumerate(days.kept, 1)
            ),
        ),
        strangers=f"{figures.full.asked:,}",
        false_positives=f"{figures.full.seen:,}",
        race=_table(
            ("", "URLs", 'answers "new"', "fetched more than once"),
            (
                (
                    "the paper's code",
                    f"{race.urls:,}",
                    f"{race.paper:,}",
                    f"{race.paper - race.urls:,}",
                ),
                (
                    "`TimeBloom.add`",
                    f"{race.urls:,}",
                    f"{race.tbloom:,}",
                    f"{race.tbloom - race.urls:,}",
                ),
            ),
        ),
        slices=rate.slices,
        per_slice=f"{rate.items:,}",
        bits_per_item=f"{rate.bits / rate.items:.2f}",
        enough=f"{_enough(rate.slices):.0f}",
        slice_rate=f"{rate.slice:.4f}",
        rates=_table(
            ("", "formula", "rate"),
            (
                (
                    "measured",
                    f"{rate.seen:,} of {rate.asked:,} unknown items",
                    f"{rate.measured:.4f}",
                ),
                ("in any slice", "1 - (1 - p)^L", f"{rate.union:.4f}"),
                ("the paper: in all slices", "p^L", _power(rate.product)),
            ),
        ),
        times=f"{round(rate.measured / rate.product, -2):,.0f}",
        hashes=HASHES,
        best=_table(
            ("items", "bits", "memory", "lowest classic rate", "in tbloom's blocks", "measured"),
            (
                (
                    _items(one.items),
                    f"{one.bits:,}",
                    formats.size(one.bits / 8),
                    f"{one.classic:.4f}",
                    f"{one.tbloom:.4f}",
                    f"{one.seen / one.asked:.4f}" if one.asked else "",
                )
                for one in figures.best
            ),
        ),
        window_slices=SLICES,
        largest=_items(largest.items),
        set_item=f"{memory.set_item:.0f}",
        window_item=f"{memory.window(largest) / largest.items:.1f}",
        request=f"{memory.request:.0f}",
        requests=f"{memory.requests:,}",
        waiting=ITEMS_PER_WAITING,
        memory=_table(
            (
                "items",
                "Redis set",
                "tbloom's window",
                "set / window",
                "queue",
                "all with the set",
                "all with tbloom",
            ),
            (_sizes(figures, size) for size in memory.sizes),
        ),
    )


def _sizes(figures: Figures, size: Size) -> tuple[str, ...]:
    memory = figures.memory
    in_set, window, queue = memory.set(size), memory.window(size), memory.queue(size)
    return (
        _items(size.items),
        formats.size(in_set) + _star(size.set),
        formats.size(window) + _star(size.window),
        f"{in_set / window:.0f}",
        formats.size(queue) + "*",
        formats.size(in_set + queue) + "*",
        formats.size(window + queue) + "*",
    )


def _star(measured: int | None) -> str:
    return "*" if measured is None else ""


def _enough(slices: int) -> float:
    """Bits per item of a slice whose window has 1e-4."""
    return sizing.choose(10**6, sizing.slice_rate(1e-4, slices), HASHES).bits / 10**6


def _crawls(crawls: Crawls) -> str:
    """What the crawls fetched again, in words."""
    noun, first = crawls.plan.noun, crawls.plan.slices
    return " ".join(
        f"{noun.capitalize()} {later + 1} fetched {_again(crawls, later)} again."
        for later in range(first, crawls.plan.crawls)
    )


def _again(crawls: Crawls, later: int) -> str:
    return " and ".join(
        f"{pages} pages of {crawls.plan.noun} {earlier + 1}"
        for earlier, pages in enumerate(crawls.overlaps[later][:later])
        if pages
    )


def _items(number: int) -> str:
    digits = f"{number:e}"
    mantissa, power = digits[0], int(digits.partition("e")[2])
    return f"10^{power}" if mantissa == "1" else f"{mantissa} * 10^{power}"


def _power(rate: float) -> str:
    return f"{rate:.1e}".replace("e-0", "e-")


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
