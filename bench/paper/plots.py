"""The plots of docs/paper.md."""

from __future__ import annotations

from pathlib import Path

from bench.paper.crawls import Plan


def write(plan: Plan, path: Path) -> None:
    """Draw how many pages each pair of crawls has in common."""
    import matplotlib as mpl  # noqa: PLC0415 - tests of the figures run without it
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tbloom"})
    overlaps = plan.overlaps
    names = [f"{plan.noun} {n + 1}" for n in range(len(overlaps))]
    plt.figure(figsize=(6, 4))
    plt.imshow(overlaps, cmap="Blues")
    plt.xticks(range(len(names)), names)
    plt.yticks(range(len(names)), names)
    for y, row in enumerate(overlaps):
        for x, pages in enumerate(row):
            color = "white" if pages > 60 else "black"
            plt.text(x, y, str(pages), ha="center", va="center", color=color)
    plt.tight_layout()
    plt.savefig(path, metadata={"Date": None}, transparent=True)
    plt.close()
