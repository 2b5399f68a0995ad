"""Compares tbloom with what users choose today: ``make bench``. Takes half an hour and 20 GB of disk on an idle machine.

    python bench/run.py [--quick] [--only SECTION ...] [--json FILE] [--page FILE]

Prints tables, and writes all figures as JSON and, if not ``--quick``, docs/benchmarks.md with its plots.
``--only`` replaces these sections of the last run. If that run's JSON is not there, it replaces their parts of the page.
``--from FILE`` writes the page from the figures of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import goals
import page
import redis
import tables
from adding import adding
from capacities import capacities, hashes, longest_call
from distinct import distinct
from exact import exact
from footprint import footprint
from importing import imports
from linkrace import link_race
from links import link_stream
from local import local
from machine import machine
from pages import pages
from pottery import InefficientAccessWarning
from race import race
from serving import fresh, redisbloom_version
from startup import startup
from steps import steps
from together import together

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGES = (
    *("tbloom", "hiredis", "mmh3", "scrapy", "scrapy-redis"),
    *("scrapy-redis-bloomfilter", "pottery", "walrus"),
    *("rbloom", "numpy"),
    *("lmdb", "isal"),
)
#: Amounts: (in full, with --quick).
AMOUNTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "adding": (
        {"capacity": 1_000_000, "rounds": 7, "items": 2000, "everywhere": True},
        {"capacity": 50_000, "rounds": 2, "items": 500, "everywhere": False},
    ),
    "asyncio": (
        {"capacity": 1_000_000, "rounds": 7, "items": 4000},
        {"capacity": 50_000, "rounds": 2, "items": 1000},
    ),
    "steps": (
        {"capacity": 1_000_000, "rounds": 7, "items": 2000},
        {"capacity": 50_000, "rounds": 2, "items": 500},
    ),
    "race": (
        {"capacity": 1_000_000, "rounds": 11, "items": 2000},
        {"capacity": 50_000, "rounds": 2, "items": 500},
    ),
    "footprint": (
        {"items": 97_300, "questions": 1_000_000, "seconds": 5},
        {"items": 12_180, "questions": 20_000, "seconds": 1},
    ),
    "capacities": (
        {"sizes": [10**n for n in range(4, 9)], "rounds": 7, "items": 1500},
        {"sizes": [10**n for n in range(4, 7)], "rounds": 3, "items": 1000},
    ),
    "hashes": (
        {"numbers": range(8, 19), "capacity": 1_000_000, "rounds": 5, "items": 2000},
        {"numbers": range(8, 19, 3), "capacity": 100_000, "rounds": 2, "items": 500},
    ),
    "longest": ({"items": 5000, "times": 40}, {"items": 5000, "times": 10}),
    "imports": ({"items": 1_000_000}, {"items": 100_000}),
    "exact": (
        {
            "sizes": [100_000, 1_000_000],
            "stock": 100_000,
            "rounds": 7,
            "items": 2000,
            "dead_items": 500_000,
        },
        {"sizes": [20_000], "stock": 20_000, "rounds": 3, "items": 1000, "dead_items": 20_000},
    ),
    "distinct": (
        {
            "space": 10_000_000,
            "members": 1_000_000,
            "rounds": 9,
            "singles": 50,
            "a_day": 100_000,
            "daily_rounds": 5,
        },
        {
            "space": 1_000_000,
            "members": 60_000,
            "rounds": 3,
            "singles": 20,
            "a_day": 10_000,
            "daily_rounds": 2,
        },
    ),
    "pages": (
        {
            "sizes": [10**n for n in range(4, 7)],
            "gets": 10_000,
            "rounds": 7,
            "looked_through": 10**5,
            "cached": 5000,
            "cached_rounds": 5,
            "sliced_pages": 5000,
        },
        {
            "sizes": [1000, 10_000],
            "gets": 1000,
            "rounds": 3,
            "looked_through": 1000,
            "cached": 600,
            "cached_rounds": 2,
            "sliced_pages": 500,
        },
    ),
    "linkrace": ({"rounds": 3, "every": 1}, {"rounds": 1, "every": 20}),
    "local": (
        {"capacity": 1_000_000, "items": 100_000, "rounds": 3},
        {"capacity": 100_000, "items": 20_000, "rounds": 2},
    ),
    "startup": ({"rounds": 21}, {"rounds": 3}),
    "links": (
        {"delays": [0, 0.0005, 0.005], "seconds": 12},
        {"delays": [0, 0.0005, 0.005], "seconds": 1.5},
    ),
}

SECTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "adding": adding,
    "asyncio": together,
    "steps": steps,
    "race": race,
    "footprint": footprint,
    "capacities": capacities,
    "hashes": hashes,
    "longest": longest_call,
    "imports": imports,
    "exact": exact,
    "distinct": distinct,
    "local": local,
    "pages": pages,
    "linkrace": link_race,
    "startup": startup,
    "links": link_stream,
}


def main() -> None:
    arguments = _arguments()
    if arguments.former:
        found = json.loads(arguments.former.read_text())
    else:
        found = former = {}
        if arguments.only and arguments.json.is_file():
            former = json.loads(arguments.json.read_text())
        # Kept after each section, in case a later one fails.
        for measured in measure(arguments.only or list(AMOUNTS), quick=arguments.quick):
            found = with_former(measured, former) if former else measured
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
        print(f"\nfigures: {arguments.json}")
    if arguments.page or not found["quick"]:
        path, in_full = arguments.page or DOCS / "benchmarks.md", found.keys() >= AMOUNTS.keys()
        for written in page.write(found, path, in_full=in_full):
            print(f"written: {written}")


def measure(sections: list[str], *, quick: bool) -> Iterator[dict[str, Any]]:
    """The figures of these sections, each printed and yielded with the ones before as soon as it is measured."""
    start = time.monotonic()
    with fresh() as (server, client):
        found: dict[str, Any] = {"quick": quick, "about": about(client)}
        print(tables.about(found))
        for name in sections:
            found[name] = SECTIONS[name](server, client, **AMOUNTS[name][quick])
            for table in tables.of(name, found):
                print(f"\n{table.text()}", flush=True)
            yield found
    print(f"\n{goals.table(found).text()}")
    found["about"]["seconds"] = round(time.monotonic() - start)
    found["about"]["load_after"] = os.getloadavg()[0]
    print(f"\n{found['about']['seconds']} seconds", end="")
    yield found


def with_former(found: dict[str, Any], former: dict[str, Any]) -> dict[str, Any]:
    """These sections, and the others of a former run of the same kind."""
    if former["quick"] != found["quick"]:
        return found
    about, when = former["about"], found["about"]["when"][:10]
    if about["machine"] != found["about"]["machine"]:
        when += f", on {found['about']['machine']}"
    again = dict.fromkeys(found.keys() & AMOUNTS.keys(), when)
    about = {**about, "again": {**about.get("again", {}), **again}}
    return {**former, **found, "about": about}


def about(client: redis.Redis) -> dict[str, Any]:
    """The machine, and the versions of everything."""
    versions = {name: version(name) for name in PACKAGES}
    versions["redis-py"] = redis.__version__
    server = client.info("server")
    versions[f"{server.get('server_name', 'redis')}-server"] = server["redis_version"]
    versions["RedisBloom"] = redisbloom_version(client)
    versions["Python"] = platform.python_version()
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": machine(),
        "load_before": os.getloadavg()[0],
        "versions": versions,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a minute or two, for development")
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        choices=AMOUNTS,
        metavar="SECTION",
        help=", ".join(AMOUNTS),
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--page", type=Path, help="write the page there, also after --quick")
    parser.add_argument("--from", dest="former", type=Path, help="a former run's JSON")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.simplefilter("ignore", InefficientAccessWarning)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
