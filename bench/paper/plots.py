"""The plots of docs/paper.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.paper.memory import ITEMS_PER_WAITING


def write(found: dict[str, Any], folder: Path) -> None:
    """Writes them as SVG. (matplotlib is imported here, so that all else runs without it.)"""
    import matplotlib as mpl  # noqa: PLC0415 - see above
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "tbloom", "figure.figsize": (6, 3.5)}
    )

    def save(name: str) -> None:
        plt.tight_layout()
        plt.savefig(folder / f"paper-{name}.svg", metadata={"Date": None}, transparent=True)
        plt.close()

    for name in ("hours", "days"):
        plan = found[name]
        overlaps = plan["overlaps"]
        names = [f"{plan['noun']} {n + 1}" for n in range(len(overlaps))]
        plt.imshow(overlaps, cmap="Blues")
        plt.xticks(range(len(names)), names)
        plt.yticks(range(len(names)), names)
        for y, row in enumerate(overlaps):
            for x, pages in enumerate(row):
                plt.text(x, y, str(pages), ha="center", va="center", color="white" if pages > 60 else "black")  # fmt: skip
        save(name)

    used = found["memory"]
    sizes = used["sizes"]
    items = [size["items"] for size in sizes]
    queue = [count / ITEMS_PER_WAITING * used["request"] for count in items]
    for name in ("set", "window"):
        alone = [size[name] for size in sizes]
        both = [size + waiting for size, waiting in zip(alone, queue, strict=True)]
        for label, of, style in ((name, alone, "-"), (f"{name} and queue", both, "--")):
            color = "tab:gray" if name == "set" else "teal"
            plt.loglog(items, [size / 1e6 for size in of], style, marker="o", color=color, label=label)  # fmt: skip
    plt.xlabel("items")
    plt.ylabel("MB in Redis")
    plt.legend()
    save("memory")
