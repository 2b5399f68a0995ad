"""Measure and draw the README's picture, docs/memory.svg and docs/memory-dark.svg: ``python -m bench.memory_plot``.

It shows the memory of a Redis set and of a filter of seven days, if a crawl finds new URLs every day. A day takes five
seconds here.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.contest import fingerprints
from bench.serving import Server, fresh
from tbloom import TimeBloom

DOCS = Path(__file__).parents[1] / "docs"
DAYS, NEW_A_DAY, DAY_SECONDS = 28, 50_000, 5
#: The colors of text and axes, of the set and of the filter, for GitHub's light and dark pages.
COLORS = {
    "memory.svg": ("#24292f", "#b35900", "#0550ae"),
    "memory-dark.svg": ("#e6edf3", "#f0883e", "#58a6ff"),
}


def measure(server: Server) -> list[tuple[float, float]]:
    """Return the memory of the set and of the filter (MB) at the end of each day."""
    days = [fingerprints(f"day {day}", NEW_A_DAY) for day in range(DAYS)]
    of_set, of_filter = list[float](), list[float]()
    for new in days:
        for start in range(0, len(new), 500):
            server.client.sadd("set", *new[start : start + 500])
        of_set.append(server.bytes_of_data() / 1e6)
    server.empty()
    with TimeBloom.from_url(server.url, "news", granularity=f"{DAY_SECONDS}s") as seen:
        for new in days:
            seconds, micros = server.client.time()
            time.sleep(DAY_SECONDS - (seconds + micros / 1e6) % DAY_SECONDS)
            seen.add_many(new)
            of_filter.append(server.bytes_of_keys() / 1e6)
    return [*zip(of_set, of_filter, strict=True)]


def draw(days: list[tuple[float, float]]) -> None:
    """Draw both pictures."""
    numbers = range(1, len(days) + 1)
    for name, (text, of_set, of_filter) in COLORS.items():
        named = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        mpl.rcParams.update(
            {"font.family": "sans-serif", "font.size": 11, **dict.fromkeys(named, text)}
        )
        mpl.rcParams.update({"svg.hashsalt": "tbloom", "svg.fonttype": "none"})
        figure, axes = plt.subplots(figsize=(7, 3))
        axes.plot(numbers, [pair[0] for pair in days], color=of_set, label="a Redis set")
        axes.plot(numbers, [pair[1] for pair in days], color=of_filter, label="tbloom, 7 days")
        axes.set_xlabel(f"days, with {NEW_A_DAY:,} new URLs each")
        axes.set_ylabel("memory (MB)")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(DOCS / name, metadata={"Date": None}, transparent=True)
        plt.close(figure)


if __name__ == "__main__":
    with fresh() as server:
        days = measure(server)
    for number, (of_set, of_filter) in enumerate(days, 1):
        print(f"day {number}: set {of_set:.1f} MB, filter {of_filter:.2f} MB")
    draw(days)
