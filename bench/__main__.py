"""Compares tbloom with what users choose today: ``make bench``. Takes half an hour and 20 GB of disk on an idle machine.

Prints tables, and writes all figures to build/bench.json. If not ``--quick``, it puts each table in its place in the
pages, and leaves all else there as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.serving import Server, fresh
from bench.tables import Table, filled

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("benchmarks.md", "scaling.md")]
JSON = ROOT / "build" / "bench.json"
PACKAGES = (
    *("tbloom", "redis", "hiredis", "scrapy", "scrapy-redis"),
    *("scrapy-redis-bloomfilter", "rbloom", "numpy"),
)
#: The amounts of each section: in full, and with --quick.
SECTIONS: dict[str, dict[str, tuple[Any, Any]]] = {
    "race": {"capacity": (1_000_000, 50_000), "rounds": (11, 2), "items": (2000, 500)},
    "adding": {"capacity": (1_000_000, 50_000), "rounds": (7, 2), "items": (2000, 500)},
    "lines": {"lines": (1_000_000, 50_000)},
    "asyncio": {"capacity": (1_000_000, 50_000), "rounds": (7, 2), "items": (4000, 1000)},
    "written": {"capacity": (200_000, 20_000), "rounds": (5, 1), "items": (2000, 500)},
    "links": {"seconds": (12, 1), "every": (1, 20)},
    "stall": {"pages": (1000, 100), "rounds": (2, 1)},
    "crawls": {
        "pages": (3000, 300),
        "rounds": (3, 1),
        "requests": (30_000, 2000),
        "names": ((), ("500 once", "a middleware downloads", "a pipeline raises")),
    },
    "footprint": {"items": (97_300, 12_180), "questions": (400_000, 20_000)},
    "sizing": {
        "days": ({10**3: 8, 10**5: 8, 10**7: 2}, {10**3: 4}),
        "questions": (1_000_000, 100_000),
    },
    "exact": {
        "sizes": ([100_000, 1_000_000], [20_000]),
        "stock": (100_000, 20_000),
        "rounds": (7, 2),
        "items": (2000, 500),
    },
    "distinct": {"space": (10**7, 10**6), "a_day": (100_000, 10_000), "rounds": (9, 2)},
    "local": {"capacity": (1_000_000, 100_000), "items": (100_000, 20_000), "rounds": (3, 2)},
    "pages": {
        "sizes": ([10_000, 100_000, 1_000_000], [1000, 5000]),
        "gets": (10_000, 1000),
        "rounds": (7, 2),
    },
    "startup": {"rounds": (21, 3)},
    "scaling": {},
}
#: The modules of the sections that have another name.
MODULES = {"asyncio": "together"}


def main() -> None:
    """Measures the sections, and writes their figures as soon as each has ended."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two, for development")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections")
    arguments = parser.parse_args()
    with fresh() as server:
        about = _about(server)
        print(*about.values(), sep="\n")
        found: dict[str, Any] = {"quick": arguments.quick, **about}
        parts = {} if arguments.only else {"versions": about["versions"]}
        for name in arguments.only or SECTIONS:
            for table in _measure(server, name, quick=arguments.quick):
                print(f"\n{table.name}\n{table.markdown()}", flush=True)
                found[table.name] = table.records()
                parts[table.name] = table.markdown()
            parts[table.name] += f"\n\n*{about['when']}, {about['machine']}*"
            JSON.parent.mkdir(exist_ok=True)
            JSON.write_text(json.dumps(found, indent=1) + "\n")
            for page in [] if arguments.quick else PAGES:
                page.write_text(filled(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
    print(f"\nfigures: {JSON}")


def _measure(server: Server, name: str, *, quick: bool) -> list[Table]:
    amounts = {key: both[quick] for key, both in SECTIONS[name].items()}
    module = import_module(f"bench.{MODULES.get(name, name)}")
    tables: list[Table] = module.measure(server, **amounts)
    return tables


def _about(server: Server) -> dict[str, str]:
    """When and on what it is measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = [server.version, f"RedisBloom {server.redisbloom}"]
    versions += [f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in PACKAGES)]
    return {
        "when": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores",
        "load": f"load {os.getloadavg()[0]:.1f}",
        "versions": f"{', '.join(versions)}.",
    }


if __name__ == "__main__":
    main()
