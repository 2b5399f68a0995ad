"""Draw the picture of README.md for light and for dark pages: how a filter forgets: ``python -m bench.pictures``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from bench.contenders import SLICES

DOCS = Path(__file__).parents[1] / "docs"
#: Width and height in inches. A phone shows the picture 3.6 inches wide, so the text is still large enough.
SIZE = (5.0, 2.6)
Axes = Any


class Colors(NamedTuple):
    """The colors of a picture."""

    text: str
    faint: str
    #: Of a slice, of the newest slice, and of a URL in it.
    slice_: str
    newest: str
    url: str


#: For GitHub's light and dark pages, by the end of a file's name.
COLORS = {
    ".svg": Colors(
        "#24292f",
        "#6e7781",
        *("#b6d7f9", "#54a3f0", "#953800"),
    ),
    "-dark.svg": Colors(
        "#e6edf3",
        "#8b949e",
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


def main() -> None:
    """Draw the picture for light and for dark pages."""
    import matplotlib as mpl  # noqa: PLC0415 - tests run without it
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"svg.hashsalt": "tbloom", "svg.fonttype": "none", "font.size": 11})
    mpl.rcParams.update({"font.family": "sans-serif"})
    for end, colors in COLORS.items():
        mpl.rcParams["text.color"] = colors.text
        figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
        window(axes, colors)
        figure.savefig(DOCS / f"window{end}", metadata={"Date": None}, transparent=True)
        plt.close(figure)


if __name__ == "__main__":
    main()
