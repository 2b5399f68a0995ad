"""Draws what `revisit.py` gains: `python examples/revisit_plot.py docs/revisit.svg` (needs matplotlib)."""

import sys

import matplotlib as mpl
import revisit
from matplotlib import pyplot as plt

mpl.rcParams.update({"svg.hashsalt": "tbloom", "font.size": 11})
fixed = [revisit.simulate(days) for days in (2, 3, 4, 5, 6, 8, 10)]
paced = []
for pace in (0.25, 0.5, 1.0, 2.0, 4.0):
    revisit.PACE = pace
    paced.append(revisit.simulate())
figure, both = plt.subplots(1, 2, figsize=(8, 3.6))
for axes, name, title in zip(both, ("fresh", "seen"), ("fresh pages (%)", "changes seen (%)")):
    for ways, label, style in (
        (paced, "revisit, at five paces", "s-"),
        (fixed, "every 2, 3 ... 10 days", "o-"),
    ):
        values = [100 * getattr(figures, name) for figures in ways]
        axes.plot([figures.fetches for figures in ways], values, style, label=label)
    axes.set_xlabel("fetches of a page, per day")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
both[0].legend(loc="lower right")
plt.tight_layout()
plt.savefig(sys.argv[1], metadata={"Date": None})
