"""Measure again what the papers behind tbloom measured: ``make paper``.

Put the figures into docs/benchmarks.json, fill docs/paper.md from there, and draw its plots.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import UTC, datetime

from bench import results, serving
from bench.paper import crawls, full, memory, plots, racing, rates
from bench.tables import Table

PAGE = results.ROOT / "docs" / "paper.md"
#: Items of the largest set, items that are asked for, and URLs of the race.
FULL = 10**7, 1_000_000, 3000
QUICK = 10**6, 100_000, 500


def measure(*, quick: bool) -> tuple[str, dict[str, crawls.Plan], list[Table]]:
    """Measure on a new server. Return when and how, the crawls by the hour and by the day, and the tables."""
    in_set, asked, raced = QUICK if quick else FULL
    begun = time.monotonic()
    with serving.fresh() as server:
        plans = {
            "hours": crawls.measure(server, "hour", slices=2, crawls=4),
            "days": crawls.measure(server, "day", slices=3, crawls=6),
        }
        tables = [
            crawls.kept(plans["days"]),
            racing.measure(server.url, raced),
            rates.measure(server.client, crawls.PAGES, 1 << crawls.BIT, asked),
            memory.measure(server, in_set),
        ]
        version = server.version
    about = (
        f"Measured by `make paper{' ARGS=--quick' if quick else ''}` on {datetime.now(UTC):%Y-%m-%d}, "
        f"in {round((time.monotonic() - begun) / 60)} minutes, on {version}. Slices are short: "
        f'an "hour" takes {plans["hours"].period} s, a "day" {plans["days"].period} s.'
    )
    return about, plans, tables


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="make paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts: two minutes")
    parser.add_argument("--full", action="store_true", help="only the 600 million items; hours")
    parser.add_argument("--items", type=float, default=6e8, help="of --full (%(default)g)")
    arguments = parser.parse_args()
    command = "python -m bench.paper"
    if arguments.full:
        # An exception, so that its server ends too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        results.store([full.measure(int(arguments.items))], command=f"{command} --full")
    else:
        about, plans, tables = measure(quick=arguments.quick)
        results.store(tables, command=command)
        results.store([Table("about", {}, [])], command=command, note=about)
        for noun, plan in plans.items():
            plots.write(plan, PAGE.with_name(f"paper-{noun}.svg"))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
