"""Apply mutants to a copy of the code, one at a time, and print those that the fast tests miss.

``make mutants ARGS="tbloom/exact lua/exact/count.lua:12"`` runs those whose names begin with one of these words,
``ARGS="--sample 60 --seed 1 lua"`` 60 of them, by chance but each time the same. An equivalent mutant, which behaves as the
code does, survives: so the run ends with a rate. (mutmut 3.8 has no Lua, changes no decorated function and no constant
outside of functions, and can't select tests whose parameters have brackets or spaces.)
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers import guard
from tests.mutants.generator import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
#: What a copy of the tree leaves out.
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
#: What is mutated if nothing is named: the core.
CORE = ("tbloom/engine", "tbloom/bloom", "tbloom/exact", "lua")
AT_ONCE = 2
#: Limits (s): for one test, for all tests of a mutant, and for all random schedules of the simulation.
TEST_SECONDS, SECONDS, SCHEDULE_SECONDS = 30, 600, 10

_FOUND, _PLAYED = (f"tests/simulation/test_{name}.py" for name in ("found", "played"))
_CONTRACT = "tests/contract"
#: The tests of each part of the code, those that find most first.
TESTS = {
    "tbloom/engine": ("tests/engine", _FOUND, _CONTRACT, "tests/bloom", "tests/exact", _PLAYED),
    "tbloom/bloom": (_FOUND, "tests/bloom", "tests/cli/test_recorded.py", _CONTRACT, _PLAYED),
    "tbloom/exact": (_FOUND, "tests/exact", "tests/bloom/test_config.py", _CONTRACT, _PLAYED),
    "tbloom/distinct": ("tests/distinct", _CONTRACT),
    "tbloom/local": ("tests/local",),
    "tbloom/pages": ("tests/pages",),
    "tbloom/scrapy": ("tests/scrapy", _CONTRACT),
    "tbloom/cli": ("tests/cli",),
    "tbloom/window.py": ("tests/test_window.py", _FOUND, "tests/bloom"),
    "lua/bloom": (_FOUND, "tests/bloom", _CONTRACT, _PLAYED),
    "lua/exact": (_FOUND, "tests/exact", _CONTRACT, _PLAYED),
    "lua/distinct": (_FOUND, "tests/distinct", _CONTRACT),
    "lua/shared": (_FOUND, "tests/exact", "tests/distinct", "tests/bloom", _CONTRACT, _PLAYED),
    "": ("tests",),
}

KILLED, TIMED_OUT, SURVIVED = "killed", "timed out", "survived"


def tests_of(file: str) -> tuple[str, ...]:
    """Return the tests that cover a file."""
    return next(tests for part, tests in TESTS.items() if file.startswith(part))


def chosen(prefixes: Sequence[str]) -> Iterator[Mutant]:
    """Return the mutants whose names begin with one of these, in a fixed order."""
    paths = [path for folder in ("tbloom", "lua") for path in (ROOT / folder).rglob("*.*")]
    files = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    for file in files:
        if not file.endswith((".py", ".lua")):
            continue
        if any(file.startswith(each) or each.startswith(f"{file}:") for each in prefixes):
            for mutant in mutants_of(ROOT, file):
                if mutant.name.startswith(tuple(prefixes)):
                    yield mutant


@dataclass
class Run:
    """The tests of a mutant, or of the code as it is, in a copy of the tree."""

    copy: Path
    mutant: Mutant | None
    tests: tuple[str, ...]
    started: float = field(default_factory=time.monotonic)
    process: subprocess.Popen[bytes] = field(init=False)
    #: Tests that come after those of the process.
    left: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.mutant:
            (self.copy / self.mutant.file).write_text(self.mutant.text, encoding="utf-8")
        self.temporary.mkdir()
        # Most mutants fail in the first tests, which are collected sooner than all.
        self._start(self.tests[:1])
        self.left = self.tests[1:]

    def _start(self, tests: Sequence[str]) -> None:
        options = ["-x", "-q", "-n0", "-m", "not check", f"--timeout={TEST_SECONDS}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", *tests],
                cwd=self.copy,
                env={
                    **os.environ,
                    "PYTHONPATH": str(self.copy),
                    # A mutant may have the size and the second of the file before it.
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TMPDIR": str(self.temporary),
                    "TBLOOM_SIMULATION_SEED": "1",
                    "TBLOOM_SIMULATION_SECONDS": str(SCHEDULE_SECONDS),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        guard.watch(self.process.pid)

    @property
    def temporary(self) -> Path:
        """Where the tests have their temporary files."""
        return self.copy / "tmp"

    @property
    def log(self) -> Path:
        """What pytest prints."""
        return self.copy / "log"

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.started

    def verdict(self) -> str:
        """Return what became of the mutant, or an empty string while its tests run."""
        code = self.process.poll()
        if code is None:
            return TIMED_OUT if self.seconds > SECONDS else ""
        if code == 0 and self.left:
            self._end_processes()
            self._start(self.left)
            self.left = ()
            return ""
        return KILLED if code else SURVIVED

    def end(self) -> None:
        """End what still runs, and restore the copy."""
        self._end_processes()
        shutil.rmtree(self.temporary, ignore_errors=True)
        if self.mutant:
            shutil.copy(ROOT / self.mutant.file, self.copy / self.mutant.file)

    def _end_processes(self) -> None:
        with suppress(ProcessLookupError):
            # The tests' servers have groups of their own: guards of the tests kill them.
            os.killpg(self.process.pid, signal.SIGKILL)
        guard.reap(self.process)


@contextmanager
def copies() -> Iterator[list[Path]]:
    """Make a copy of the tree for each run at a time."""
    with tempfile.TemporaryDirectory(prefix="tbloom-mutants-", ignore_cleanup_errors=True) as base:
        folders = [Path(base) / str(number) for number in range(AT_ONCE)]
        yield [shutil.copytree(ROOT, folder, ignore=LEFT_OUT) for folder in folders]


def run_all(
    free: list[Path],
    mutants: Iterable[tuple[Mutant | None, tuple[str, ...]]],
    report: Callable[[Run, str], None],
) -> None:
    """Run mutants with their tests, as many at once as there are copies. Report each verdict."""
    waiting, running = iter(mutants), list[Run]()
    free = [*free]
    try:
        while True:
            while free and (following := next(waiting, None)):
                running.append(Run(free.pop(), *following))
            if not running:
                return
            time.sleep(0.05)
            for run in [*running]:
                if verdict := run.verdict():
                    run.end()
                    running.remove(run)
                    free.append(run.copy)
                    report(run, verdict)
    finally:
        for run in running:
            run.end()


def main(words: Sequence[str]) -> int:
    """Print each mutant's verdict, the survivors, and the rate. Return 2 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(prog="run.py", description="Finds mutants that no test kills.")
    parser.add_argument("names", nargs="*", default=CORE, help="beginnings of mutants' names")
    parser.add_argument("--sample", type=int, help="how many of them to run, by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--list", action="store_true", help="print the names only")
    options = parser.parse_args(words)
    mutants = list(chosen(options.names))
    if options.sample is not None and options.sample < len(mutants):
        taken = random.Random(options.seed).sample(range(len(mutants)), options.sample)
        mutants = [mutants[number] for number in sorted(taken)]
    if options.list:
        print(*(mutant.name for mutant in mutants), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts, survivors = Counter[str](), list[Mutant]()
    healthy, broken = set[tuple[str, ...]](), list[str]()

    def report(run: Run, verdict: str) -> None:
        assert run.mutant
        counts[verdict] += 1
        print(f"{verdict:9} {run.seconds:4.0f} s  {run.mutant.name}", flush=True)
        if verdict == SURVIVED:
            survivors.append(run.mutant)
            healthy.add(run.tests)

    def report_health(run: Run, verdict: str) -> None:
        if verdict != SURVIVED:
            broken.append(run.log.read_text(encoding="utf-8", errors="replace")[-2000:])

    with copies() as free:
        pairs = [(mutant, tests_of(mutant.file)) for mutant in mutants]
        run_all(free, pairs, report)
        # Where a mutant has survived, all tests have passed.
        suites = {tests for _, tests in pairs} - healthy
        run_all(free, [(None, tests) for tests in sorted(suites)], report_health)
    if broken:
        print("Tests fail without a mutant:", *broken, sep="\n")
        return 2
    print("\nSurvivors:", *(mutant.name for mutant in survivors), sep="\n  ")
    found = counts[KILLED] + counts[TIMED_OUT]
    rate = f"{found / len(mutants):.1%}" if mutants else "none"
    print(f"{len(mutants)} mutants: {dict(counts)}; the tests find {rate}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
