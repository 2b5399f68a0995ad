"""Draws what `revisit.py` saves: `python examples/revisit_plot.py docs/revisit.svg` (needs matplotlib)."""

import sys

import matplotlib as mpl
from matplotlib import pyplot as plt
from revisit import DAYS, PAGES, SITES, simulate

mpl.rcParams.update({"svg.hashsalt": "tbloom", "font.size": 11})
plt.figure(figsize=(6.5, 4))
fixed = [simulate(SITES["many rates"], days) for days in range(1, 7)]
plt.plot(
    [mean for _, mean, _ in fixed], [n for n, *_ in fixed], "o-", label="every 1, 2, ... 6 days"
)
for marker, (name, site) in zip("sD", SITES.items()):
    fetches, mean, _ = simulate(site)
    plt.plot(mean, fetches, marker, markersize=9, label=f"revisit: {name}")
plt.xlabel("mean days from a change to its fetch")
plt.ylabel(f"fetches of {PAGES} pages in {DAYS} days")
plt.ylim(bottom=0)
plt.legend()
plt.grid(alpha=0.3)
plt.tight_layout()
plt.savefig(sys.argv[1], metadata={"Date": None})
