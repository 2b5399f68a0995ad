"""Compare tbloom with what users choose today: ``make bench``. It takes about an hour on an idle machine, without --full.

Print tables, put them into docs/benchmarks.json, and fill the pages from there (bench/results.py).
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
#: The sections, each a module, with the arguments of its ``measure`` for --quick. The defaults are for a full run.
SECTIONS: dict[str, dict[str, Any]] = {
    "instructions": {"capacity": 5000, "sizes": [1, 100], "capacities": [5000]},
    "race": {"capacity": 50_000, "rounds": 2, "items": 500, "batches": 20_000},
    "tasks": {"capacity": 50_000, "rounds": 2, "items": 1000},
    "written": {"capacity": 20_000, "rounds": 1, "items": 500},
    "crawls": {"pages": 300, "rounds": 1},
    "fleet": {
        "ways": ["scrapy-redis", '`"scheduled"`', '`"done"`'],
        "folder": "java.base/java/util/concurrent/locks/",
        "crawlers": 2,
        "rounds": 1,
    },
    "sharing": {
        "pages": 400,
        "fleets": [2],
        "sites": [((0.05, 0.1), ["scrapy-redis", '`"done"`'], 1)],
    },
    "kept": {"pages": 50_000, "some": 5_000},
    "footprint": {"items": 12_180, "questions": 20_000},
    "sizing": {"days": {10**3: 4}, "questions": 100_000},
    "distinct": {"space": 10**6, "rounds": 2},
    "local": {"capacity": 100_000, "items": 20_000, "rounds": 2},
    "pages": {
        "sizes": [1000, 5000],
        "gets": 1000,
        "rounds": 2,
        "windows": [10_000],
        "imported": 1000,
    },
    "replay": {
        "folder": "java.base/java/util/concurrent/",
        "packages": ["openjdk-17-doc"],
        "links": 2 * 10**5,
    },
    "soak": {"minutes": 0.2, "crawlers": 4},
    "paper": {"in_set": 10**6, "asked": 100_000, "raced": 500},
    "largest": {"items": 30_000},
}
#: The arguments for --full. Without it, these sections run only if they are named.
FULL: dict[str, dict[str, Any]] = {
    "replay": {"links": 10**8, "slice_seconds": 60},
    "soak": {"minutes": 60},
    "paper": {},
    "largest": {},
}
#: Seconds for which the machine is watched before and after a section, and how busy it may be.
WATCHED, BUSY = 2.0, 0.05


def main() -> None:
    """Measure the sections. Store the figures of each as soon as it has ended."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small amounts; only print")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="only these sections")
    parser.add_argument("--full", action="store_true", help="also what takes hours")
    parser.add_argument("--fill", action="store_true", help="only fill the pages")
    arguments = parser.parse_args()
    if arguments.fill:
        results.fill()
        return
    with fresh() as server:
        installed = [server.version, f"RedisBloom {server.redisbloom}"]
        installed += [f"Python {platform.python_version()}"]
        installed += [f"{package} {version(package)}" for package in PACKAGES]
        print(machine(), *installed, sep="\n")
        begun = time.monotonic()
        chosen = [name for name in SECTIONS if arguments.full or name not in FULL]
        for name in arguments.only or chosen:
            idle, at = is_idle(), time.monotonic()
            full = FULL.get(name, {}) if arguments.full else {}
            amounts = SECTIONS[name] if arguments.quick else full
            tables: list[Table] = import_module(f"bench.{name}").measure(server, **amounts)
            idle = idle and is_idle()
            for table in tables:
                print(f"\n{table.name}\n{table.markdown()}")
            print(f"\n{name}: {minutes_since(at)} minutes", flush=True)
            if not arguments.quick:
                command = f"python -m bench {'--full ' if full else ''}--only {name}"
                date = f"{datetime.now(UTC):%Y-%m-%d}"
                results.store(tables, command=command, date=date, machine=machine(), idle=idle)
        print(f"\nAll: {minutes_since(begun)} minutes")
        if not (arguments.quick or arguments.only):
            versions = Table("versions", {}, [])
            results.store([versions], machine=machine(), note=f"{', '.join(installed)}.")


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
