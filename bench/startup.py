"""The time until a process has started: what it imports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.serving import Server
from bench.tables import Table

REDIS = "`import redis`"
COMMANDS = {
    REDIS: ["python", "-c", "import redis"],
    "`import tbloom`": ["python", "-c", "import tbloom"],
    "`from tbloom import LocalBloom`": ["python", "-c", "from tbloom import LocalBloom"],
    "`from tbloom import TimeBloom`": ["python", "-c", "from tbloom import TimeBloom"],
    "`tbloom --help`": ["tbloom", "--help"],
}


def measure(_server: Server, *, rounds: int) -> list[Table]:
    """Medians of interleaved rounds, from start to end of the process."""
    folder = Path(sys.executable).parent
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, (program, *words) in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([folder / program, *words], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    # In the first round Python compiles, and keeps what it has compiled.
    medians = {name: median(times[1:]) for name, times in seconds.items()}
    rows = [[name, spent, spent / medians[REDIS]] for name, spent in medians.items()]
    return [Table("startup", {"": "", "s": ".3f", f"x {REDIS}": ".2f"}, rows)]
