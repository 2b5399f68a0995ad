"""Compare tbloom with what users choose today: ``make bench``. On two idle cores it takes about 25 minutes.

Measure all sections, then write all tables at once into docs/benchmarks.json, and fill the pages from there (bench/results.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import results
from bench.serving import fresh
from bench.tables import Table

PACKAGES = (
    *("tbloom", "redis", "hiredis", "scrapy", "scrapy-redis"),
    *("scrapy-redis-bloomfilter", "rbloom", "numpy"),
)
#: The sections, each a module, with the arguments of its ``measure`` for --quick.
SECTIONS: dict[str, dict[str, Any]] = {
    "rivals": {"items": 3_000, "names": ["larkspur", "walrus", "tbloom"]},
    "instructions": {"capacity": 5000},
    "calls": {"capacity": 50_000, "rounds": 2, "items": 500, "batches": 20_000},
    "footprint": {"items": 12_180, "questions": 20_000},
    "fleet": {
        "java": {
            "ways": ["scrapy-redis", '`"scheduled"`', '`"done"`'],
            "folder": "java.base/java/util/concurrent/locks/",
            "crawlers": 2,
        },
        "start": {
            "pages": 400,
            "crawlers": 2,
            "sites": [((0.05, 0.1), ["scrapy-redis", '`"done"`'], 1)],
        },
        "one": {"pages": 300, "rounds": 1},
        "seen": {"lists": 1, "each": 50, "rounds": 1},
        "maps": {"urls": 200, "rounds": 1},
        "waits": {"pages": 200},
        "fleets": {"fleets": [(2, 200), (4, 200)], "taken": 200, "polls": 20},
        "ends": {"away": [0], "rounds": 1},
    },
    "local": {"capacity": 100_000, "items": 20_000, "rounds": 2},
    "pages": {
        "sizes": [1000, 5000],
        "gets": 1000,
        "rounds": 2,
        "windows": [10_000],
    },
    "distinct": {"space": 10**6, "rounds": 2},
}
#: Seconds for which the machine is watched before and after a section, and how busy it may be.
WATCHED, BUSY = 2.0, 0.05


def main() -> None:
    """Measure the sections. Store the figures of all of them, not of a part."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small amounts; only print")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections; only print")
    parser.add_argument("--fill", action="store_true", help="only fill the pages")
    arguments = parser.parse_args()
    if arguments.fill:
        results.fill()
        return
    tables, busy = list[Table](), list[str]()
    with fresh() as server:
        installed = [server.version, f"RedisBloom {server.redisbloom}"]
        installed += [f"Python {platform.python_version()}"]
        installed += [f"{package} {version(package)}" for package in PACKAGES]
        print(machine(), *installed, sep="\n")
        begun = time.monotonic()
        for name in arguments.only or SECTIONS:
            idle, at = is_idle(), time.monotonic()
            amounts = SECTIONS[name] if arguments.quick else {}
            found: list[Table] = import_module(f"bench.{name}").measure(server, **amounts)
            for table in found:
                print(f"\n{table.name}\n{table.markdown()}")
            print(f"\n{name}: {minutes_since(at)} minutes", flush=True)
            tables += found
            if False in (idle, is_idle()):
                busy.append(name)
        took = minutes_since(begun)
    print(f"\nAll: {took} minutes; other programs ran beside {', '.join(busy) or 'nothing'}")
    if not (arguments.quick or arguments.only):
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        beside = f" while other programs ran ({', '.join(busy)})" if busy else ""
        about = f"*{date}, {machine()}, {took} minutes{beside}.* {', '.join(installed)}."
        results.store(tables, about)


def minutes_since(begun: float) -> str:
    """Return the minutes since a time of the monotonic clock, with one decimal."""
    return f"{(time.monotonic() - begun) / 60:.1f}"


def machine() -> str:
    """Return the machine, such as ``AMD EPYC, 2 cores``."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def is_idle() -> bool | None:
    """Return whether nothing else runs on this machine, or None if the system does not tell."""
    if sys.platform != "linux":
        return None

    def spent() -> tuple[int, int]:
        first = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(word) for word in first.split()[1:]]
        return sum(ticks), ticks[3] + ticks[4]

    before = spent()
    time.sleep(WATCHED)
    total, idle = (after - begin for after, begin in zip(spent(), before, strict=True))
    return idle > (1 - BUSY) * total


if __name__ == "__main__":
    main()
