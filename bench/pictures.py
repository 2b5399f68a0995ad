"""Draw the pictures of README.md for light and for dark pages: how a filter forgets, and what four ways take: ``python -m bench.pictures``.

That of the memory is measured first: of four ways to remember what was seen, if a crawl finds new URLs every day. A set forgets
nothing, the others forget after seven days. For the filter, a day takes ten seconds. The others don't wait: what would have
expired is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import redis

from bench.contenders import SLICES, raw, set_many
from bench.contest import fingerprints
from bench.serving import Server, fresh
from tbloom import TimeBloom
from tbloom.engine.flow import chunks

DOCS = Path(__file__).parents[1] / "docs"
#: The width in inches. A phone shows a picture 3.6 inches wide, so the text is still large enough.
WIDTH = 5.0
DAYS, NEW_A_DAY, DAY_SECONDS = 28, 50_000, 10
#: The URLs of one SADD, or of one pipeline.
_CHUNK = 5000
#: The ways. Daily sets have 16 raw bytes of each fingerprint, a set and keys its 40 digits.
SET, KEYS = "a set, for ever", f"SET NX EX, {SLICES} days"
DAILY, FILTER = f"{SLICES} daily sets", f"tbloom, {SLICES} days"
#: The color of each.
LINES = {SET: 1, KEYS: 3, DAILY: 2, FILTER: 0}
Axes = Any


class Colors(NamedTuple):
    """The colors of a picture."""

    text: str
    faint: str
    #: Of the lines in a chart.
    lines: tuple[str, ...]
    #: Of a slice, of the newest slice, and of a URL in it.
    slice_: str
    newest: str
    url: str


#: For GitHub's light and dark pages, by the end of a file's name.
COLORS = {
    ".svg": Colors(
        "#24292f",
        "#6e7781",
        ("#0550ae", "#b35900", "#1a7f37", "#8250df", "#6e7781", "#a40e26"),
        *("#b6d7f9", "#54a3f0", "#953800"),
    ),
    "-dark.svg": Colors(
        "#e6edf3",
        "#8b949e",
        ("#58a6ff", "#f0883e", "#56d364", "#bc8cff", "#8b949e", "#ff7b72"),
        *("#1c4a80", "#2f81f7", "#ffb77c"),
    ),
}
#: The day that a row of the picture shows, the day in whose slice the URL is, and the answer.
ROWS = ((3, 3, "/a is new"), (6, 3, "/a was seen"), (9, 3, "/a was seen"), (10, 10, "/a is new"))


def window(axes: Axes, colors: Colors) -> None:
    """Show the slices that a filter has on some days, and the answers for one URL."""
    from matplotlib import patches  # noqa: PLC0415 - tests run without it

    def box(day: float, y: float, kind: str) -> None:
        fill = {"gone": "none", "newest": colors.newest}.get(kind, colors.slice_)
        edge, line = (colors.faint, ":") if kind == "gone" else (fill, "-")
        style = {"boxstyle": "round,pad=0.06", "facecolor": fill, "edgecolor": edge}
        axes.add_patch(
            patches.FancyBboxPatch((day - 0.32, y - 0.28), 0.64, 0.56, linestyle=line, **style)
        )

    left, last = -1.5, ROWS[-1][0]
    axes.text(left, 0, "slice", va="center", color=colors.faint)
    for day in range(1, last + 1):
        axes.text(day, 0, f"{day}", ha="center", va="center", color=colors.faint)
    for y, (today, added, answer) in enumerate(ROWS, 1):
        axes.text(left, y, f"day {today}", va="center", weight="bold")
        axes.text(last + 0.7, y, answer, va="center", color=colors.url, weight="bold")
        for day in range(1, today + 1):
            kind = "newest" if day == today else "live" if day > today - SLICES else "gone"
            box(day, y, kind)
        axes.plot([added], [y], "o", color=colors.url, markersize=7)
    for day, kind, meaning in (
        (1, "newest", "today"),
        (3.4, "live", "6 days before"),
        (8, "gone", "forgotten"),
        (11.7, "dot", "/a"),
    ):
        if kind != "dot":
            box(day, len(ROWS) + 1.2, kind)
        axes.text(day + 0.5, len(ROWS) + 1.2, meaning, va="center", color=colors.faint)
    axes.plot([11.7], [len(ROWS) + 1.2], "o", color=colors.url, markersize=7)
    axes.set_xlim(left, last + 4)
    axes.set_ylim(len(ROWS) + 1.7, -0.5)
    axes.axis("off")


def measure_memory(server: Server) -> dict[str, list[float]]:
    """Return the memory (MB) that each way takes at the end of each day."""
    days = [fingerprints(f"day {day}", NEW_A_DAY) for day in range(DAYS)]
    found = {name: list[float]() for name in LINES}
    for name in (SET, KEYS, DAILY):
        for number, new in enumerate(days):
            _add(server.client, name, number, new)
            if name != SET and number >= SLICES:
                old = days[number - SLICES] if name == KEYS else [f"day {number - SLICES}"]
                for some in chunks(old, _CHUNK):
                    server.client.delete(*some)
            found[name].append(server.bytes_of_data() / 1e6)
        server.empty()
    period = f"{DAY_SECONDS}s"
    with TimeBloom.from_url(server.url, "news", granularity=period, slices=SLICES) as seen:
        for new in days:
            seconds, micros = server.client.time()
            time.sleep(DAY_SECONDS - (seconds + micros / 1e6) % DAY_SECONDS)
            key = seen.keys()[-1]
            seen.add_many(new)
            assert key == seen.keys()[-1], "a day was too short for this machine"
            found[FILTER].append(server.bytes_of_keys() / 1e6)
    return found


def _add(client: redis.Redis, name: str, day: int, urls: Sequence[str]) -> None:
    """Add a day's URLs."""
    for some in chunks(urls, _CHUNK):
        if name == KEYS:
            set_many(client, some)
        elif name == DAILY:
            client.sadd(f"day {day}", *map(raw, some))
        else:
            client.sadd("set", *some)


def memory(axes: Axes, colors: Colors, found: dict[str, list[float]]) -> None:
    """Draw a line for each way."""
    for name, memory in found.items():
        last = f"{memory[-1]:.{1 if memory[-1] < 10 else 0}f} MB"
        color = colors.lines[LINES[name]]
        axes.plot(range(1, DAYS + 1), memory, color=color, label=f"{name}: {last}")
    axes.set(xlabel=f"days, with {NEW_A_DAY:,} new URLs each", ylabel="memory (MB)")
    axes.set(xlim=(1, DAYS), ylim=(0, None))


def save(name: str, height: float, picture: Callable[[Axes, Colors], None]) -> None:
    """Draw a picture for light and for dark pages."""
    import matplotlib as mpl  # noqa: PLC0415 - tests run without it
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"svg.hashsalt": "tbloom", "svg.fonttype": "none", "font.size": 11})
    mpl.rcParams.update({"font.family": "sans-serif"})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    named = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    for end, colors in COLORS.items():
        mpl.rcParams.update(dict.fromkeys(named, colors.text))
        mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=colors.lines)
        figure, axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")
        picture(axes, colors)
        if (legend := axes.get_legend_handles_labels())[0]:
            figure.legend(*legend, loc="outside lower left", frameon=False)
        metadata = {"Date": None}
        figure.savefig(DOCS / f"{name}{end}", metadata=metadata, transparent=True)
        plt.close(figure)


if __name__ == "__main__":
    save("window", 2.6, window)
    with fresh() as its_server:
        measured = measure_memory(its_server)
    for number, figures in enumerate(zip(*measured.values(), strict=True), 1):
        print(f"day {number}:", *(f"{each:.2f} MB" for each in figures))
    save("memory", 4.4, partial(memory, found=measured))
