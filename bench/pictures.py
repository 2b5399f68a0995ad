"""Draw pictures for light and for dark pages: how a filter forgets, and charts of docs/benchmarks.json.

``python -m bench --fill`` draws them all, as does a section of the bench once its figures are stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.fleet import CLASS, DONE, SCHEDULED, SCRAPY_REDIS, WITH_QUEUE
from bench.tables import Table

DOCS = Path(__file__).parents[1] / "docs"
#: The ways to crawl in the chart of the fleet, and the rows of its table.
CRAWLS = {
    SCRAPY_REDIS: SCRAPY_REDIS,
    "scrapy-redis-bloomfilter": "scrapy-redis-bloomfilter",
    f"tbloom as {CLASS}": CLASS + WITH_QUEUE,
    f"**tbloom, {SCHEDULED}**": SCHEDULED,
    f"**tbloom, {DONE}**": DONE,
}
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
SLICES = 7
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


def by_batch(axes: Axes, _: Colors, table: Table) -> None:
    """Show how many items a second each way adds, by the number of items a call."""
    rate = next(title for title in table.columns if title.endswith(": items/s"))
    points = [row for row in table.records() if row[rate] is not None]
    for name in dict.fromkeys(row[""] for row in points):
        line = [(row["items a call"], row[rate]) for row in points if row[""] == name]
        axes.plot(*zip(*line, strict=True), "o-", label=_plain(name))
    sizes = sorted({row["items a call"] for row in points})
    axes.set(xscale="log", yscale="log", xlabel="items a call", ylabel="items a second")
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.minorticks_off()


def by_distance(axes: Axes, _: Colors, table: Table) -> None:
    """Show how many pages a second two crawlers fetch, by the distance to Redis."""
    titles = [title.removeprefix("pages/s ") for title in table.columns][1:]
    for name, way in CRAWLS.items():
        axes.plot(titles, [*table.row(way).values()][1:], "o-", label=_plain(name))
    axes.set(ylabel="pages a second", ylim=(0, None))


def by_way(axes: Axes, colors: Colors, table: Table) -> None:
    """Show the time of the server for a page of each way."""
    times = [table.row(way)["server time per page (us)"] for way in CRAWLS.values()]
    bars = axes.barh([_plain(name) for name in CRAWLS], times, color=colors.newest)
    axes.bar_label(bars, [f"{time:,.0f} us" for time in times], padding=4)
    axes.invert_yaxis()
    axes.set(xticks=[], xlim=(0, 1.25 * max(times)))
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(length=0)


def _plain(name: str) -> str:
    """Return a name without Markdown."""
    return name.replace("`", "").replace("*", "")


class Chart(NamedTuple):
    """A chart of a table: its function, its height in inches, and its text for readers who can't see it."""

    draw: Callable[[Axes, Colors, Table], None]
    table: str
    height: float
    alt: str


#: By the name of the file.
CHARTS = {
    "chart-fleet": Chart(by_way, "fleet", 1.9, "Server time of a page, for each way to crawl"),
    "chart-away": Chart(by_distance, "fleet-away", 4.2, "Pages a second, by distance to Redis"),
    "chart-batches": Chart(by_batch, "race-batches", 4.4, "Items a second, by items a call"),
}
#: The width in inches. A phone shows a picture 3.6 inches wide, so the text is still large enough.
WIDTH = 5.0


def markdown(name: str, tables: Mapping[str, Table]) -> str:
    """Return the chart for a page in docs; nothing before its table is measured."""
    if not tables[CHARTS[name].table].rows:
        return ""
    return f"""
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{name}-dark.svg">
  <img src="{name}.svg" alt="{CHARTS[name].alt}">
</picture>
"""


def facts(table: Table) -> str:
    """Return the figures of a chart, which its file has as description: so a test sees that it is up to date."""
    return json.dumps([[*table.columns], *table.rows])


def draw(tables: Mapping[str, Table]) -> None:
    """Draw all pictures; a chart only if its table has been measured."""
    save("window", 2.6, "", window)
    for name, chart in CHARTS.items():
        table = tables[chart.table]
        if table.rows:
            save(name, chart.height, facts(table), partial(chart.draw, table=table))


def save(
    name: str, height: float, description: str, picture: Callable[[Axes, Colors], None]
) -> None:
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
        metadata = {"Date": None, "Description": description}
        figure.savefig(DOCS / f"{name}{end}", metadata=metadata, transparent=True)
        plt.close(figure)
