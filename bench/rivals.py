"""Direct rivals: the Bloom filters of Python on Redis, each in an environment with pinned packages (bench/rival.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import rival
from bench.progress import shown
from bench.serving import FOLDER, Server
from bench.tables import Table

#: The packages of each environment. Some need a redis-py before 4.
PACKAGES = {
    "old": ("feapder==1.9.3", "larkspur==0.2.4", "bitarray==3.12.3", "packaging==26.4"),
    "new": (
        *("walrus==0.9.8", "pottery==3.0.1", "valbloom==1.0.1", "redis-bloom-filter==1.0.1"),
        *("pyfilters==0.1.5", "scrapy-redis-bloomfilter==0.8.1", "scrapy-redis==0.9.1"),
        *("scrapy==2.19.0", "redis==8.1.0", "hiredis==3.5.0"),
    ),
}
OURS = {"tbloom": "tbloom, 1 slice", "tbloom_week": "tbloom, 7 slices"}
COLUMNS = {
    "": "",
    'told "new" twice': ",d",
    "x the rate asked for": ".2f",
    "calls an add": ".1f",
    "commands an add": ".0f",
    "bytes an item": ".1f",
    "x `SADD`": ".2f",
    "items/s": ",.0f",
    "errors of 4,000 calls": ",d",
}
#: So many that scrapy-redis-bloomfilter, whose bits are a power of two, has those of the rate.
ITEMS = 18_000


def measure(
    server: Server, *, items: int = ITEMS, names: Sequence[str] = (*rival.RIVALS,)
) -> list[Table]:
    """Measure each rival, and tbloom, with so many items."""
    rows = [[_title(name), *_figures(server, name, items)] for name in shown(names, "rivals")]
    return [Table("rivals", COLUMNS, rows)]


def _figures(server: Server, name: str, items: int) -> list[Any]:
    python, script = _python(name), rival.__file__
    command = [str(python), "-W", "ignore", script, name, server.url, str(items)]
    root = Path(script).parents[1]
    path = {"PYTHONPATH": str(root)} if name in OURS else {}
    done = subprocess.run(
        command, cwd=FOLDER, env={**os.environ, **path}, stdout=subprocess.PIPE, check=True
    )
    server.empty()
    found = json.loads(done.stdout.splitlines()[-1])  # some print, too
    shares = found["twice"], found["wrong"] / rival.RATE, found["calls"], found["commands"]
    return [*shares, found["bytes"], found["x"], found["per_s"], found["errors"]]


def _title(name: str) -> str:
    return OURS.get(name) or _pin(name).replace("==", " ")


def _pin(name: str) -> str:
    """Return the rival's package, with its version."""
    package = name.replace("_", "-")
    pins = [pin for pins in PACKAGES.values() for pin in pins]
    return next(pin for pin in pins if pin.partition("==")[0] == package)


def _python(name: str) -> Path:
    """Return the Python of the environment that has this rival. Make it once."""
    own = Path(sys.executable)
    if name in OURS:
        return own
    [(kind, pins)] = [each for each in PACKAGES.items() if _pin(name) in each[1]]
    folder, made = FOLDER / f"rivals-{kind}", FOLDER / f"rivals-{kind}.txt"
    python = folder / "bin/python"
    if not made.exists() or made.read_text() != "\n".join(pins):
        FOLDER.mkdir(exist_ok=True)
        uv = str(own.with_name("uv"))
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        subprocess.run(
            [uv, "venv", "--quiet", "--clear", "--python", version, str(folder)], check=True
        )
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*install, *pins], check=True)
        made.write_text("\n".join(pins))
    return python
