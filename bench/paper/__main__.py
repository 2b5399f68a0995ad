"""Measures again what the papers behind tbloom measured: ``make paper``.

Puts the figures and plots into docs/paper.md, and leaves the words there as they are.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import serving
from bench.paper import crawls, full, memory, plots, racing, rates
from bench.tables import Table, amount, filled

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
#: Items of the largest filter, and of the largest set; questions; requests in the queue; URLs of the race.
FULL = 10**7, 10**7, 1_000_000, 100_000, 3000
QUICK = 10**6, 10**6, 100_000, 10_000, 500


def measure(*, quick: bool) -> dict[str, Any]:
    """All figures, from a server of its own."""
    in_filter, in_set, asked, requests, raced = QUICK if quick else FULL
    begun = time.monotonic()
    with serving.fresh() as server:
        how = {"quick": quick, "server": server.version}
        found = {
            "about": how,
            "hours": crawls.measure(server, "hour", slices=2, crawls=4),
            "days": crawls.measure(server, "day", slices=3, crawls=6),
            "full": rates.measure_window(server.client, crawls.PAGES, 1 << crawls.BIT, asked),
            "race": racing.race(server.url, raced),
            "overfilled": rates.measure_window(server.client, 100_000, 845_000, asked),
            "best": [*rates.measure_best(server.client, in_filter, asked)],
            "memory": memory.measure(server, in_set, requests),
        }
    how["minutes"] = round((time.monotonic() - begun) / 60)
    how["when"] = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    return found


def tables(found: dict[str, Any]) -> list[Table]:
    """The tables of docs/paper.md."""
    days, race, rate, used = (found[name] for name in ("days", "race", "overfilled", "memory"))
    kept = [
        [f"day {n}", days["overlaps"][n - 1][n - 1], ", ".join(f"day {day}" for day in kept)]
        for n, kept in enumerate(days["kept"], 1)
    ]
    ways = {"the paper's code": race["paper"], "`TimeBloom.add`": race["tbloom"]}
    raced = [[name, race["urls"], new, new - race["urls"]] for name, new in ways.items()]
    window = [[name, rate[name], found["full"][name]] for name in ("measured", "any", "all")]
    figures = ("items", "bits", "classic", "any", "measured")
    best = [[of[name] for name in figures] for of in found["best"]]
    sizes: list[list[Any]] = []
    for size in used["sizes"]:
        queue = size["items"] / memory.ITEMS_PER_WAITING * used["request"]
        note = "measured" if size["measured"] else "computed"
        texts = [amount(taken, 1024) for taken in (size["set"], size["window"], queue)]
        sizes.append([size["items"], note, *texts, size["set"] / size["window"]])
    rates_of = dict.fromkeys(("classic rate", "in tbloom's blocks", "measured"), ".4f")
    answers = dict.fromkeys(("URLs", 'answers "new"', "too many"), ",d")
    return [
        Table("kept", {"": "", "pages": "d", "slices on the server at its end": ""}, kept),
        Table("raced", {"": "", **answers}, raced),
        Table("rates", {"": "", "overfilled": ".3g", "the daily crawls'": ".3g"}, window),
        Table("best", {"items": ",d", "bits": ",d", **rates_of}, best),
        Table(
            "memory",
            {"items": ",d", "": "", "set": "", "window": "", "queue": "", "set / window": ".0f"},
            sizes,
        ),
    ]


def about(found: dict[str, Any]) -> str:
    """When and how it was measured."""
    of, hour, day = found["about"], found["hours"]["period"], found["days"]["period"]
    return (
        f"Measured by `make paper{' ARGS=--quick' if of['quick'] else ''}` on {of['when']}, in {of['minutes']} minutes, "
        f'on {of["server"]}. Slices are short: an "hour" takes {hour} s, a "day" {day} s.'
    )


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="make paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller amounts: two minutes")
    parser.add_argument("--full", action="store_true", help="only the 600 million; hours")
    parser.add_argument("--items", type=float, default=6e8, help="of --full (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print the figures, write nothing")
    arguments = parser.parse_args()
    if arguments.full:
        # So that it ends its server too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        table = full.measure(int(arguments.items))
        print(json.dumps(table.records()) if arguments.json else table.text())
        if not arguments.json:
            _write({table.name: table.markdown()})
        return
    found = measure(quick=arguments.quick)
    if arguments.json:
        print(json.dumps(found))
        return
    parts = {table.name: table.markdown() for table in tables(found)}
    parts["about"] = about(found)
    _write(parts)
    for name in ("hours", "days"):
        plots.write(found[name], PAGE.with_name(f"paper-{name}.svg"))


def _write(parts: dict[str, str]) -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
