"""Applies small mutants to a copy of the code, one at a time, and prints those that the fast tests miss.

`make mutants` runs all of them, `make mutants ARGS="commit prolong"` those with one of these words in their
ids. `mutants.txt` lists them. (mutmut and cosmic-ray make mutants of Python only; half of ours are of Lua.)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.txt")
COPIED = ("tbloom", "lua", "tests", "pyproject.toml", "setup.cfg", "README.md")
AT_ONCE = 2
#: A mutant that makes a test hang is killed by these limits (s): for one test, and for all of a mutant's.
TEST_TIMEOUT, TIMEOUT = 30, 300


@dataclass
class Mutant:
    """One entry of the list."""

    id: str
    file: str
    meaning: str = ""
    old: str = ""
    new: str = ""
    tests: list[str] = field(default_factory=list)
    #: Why no test kills it; empty: a test has to.
    excuse: str = ""


def read_list(text: str) -> Iterator[Mutant]:
    """The entries of the list; its head says how they are written."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        mutant = Mutant(*lines[0].split())
        texts: dict[str, list[str]] = {mark: [] for mark in " -+>?"}
        for line in lines[1:]:
            texts[line[0]].append(line[2:])
        mutant.meaning, mutant.excuse = " ".join(texts[" "]), " ".join(texts["?"])
        mutant.old, mutant.new = "\n".join(texts["-"]), "\n".join(texts["+"])
        mutant.tests = " ".join(texts[">"]).split()
        yield mutant


def faults(mutants: list[Mutant]) -> Iterator[str]:
    """What is wrong with the list."""
    for id, times in Counter(mutant.id for mutant in mutants).items():
        if times > 1:
            yield f"{id}: {times} entries"
    for mutant in mutants:
        if not (mutant.meaning and mutant.tests and mutant.old != mutant.new):
            yield f"{mutant.id}: needs a meaning, a change and tests"
        path = ROOT / mutant.file
        times = path.read_text(encoding="utf-8").count(mutant.old) if path.is_file() else 0
        if not mutant.old or times != 1:
            yield f"{mutant.id}: {mutant.file} has {times} times {mutant.old!r}, not once"
        for test in mutant.tests:
            path, _, name = test.partition("::")
            code = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
            if not code or (name and f"def {name.partition('[')[0]}(" not in code):
                yield f"{mutant.id}: there is no {test}"


def copy_tree(copy: Path) -> None:
    """Copies what the tests need into a directory."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)


def run_tests(copy: Path, tests: list[str]) -> tuple[int, str]:
    """Pytest's exit code, and its last lines."""
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT}"]
    # Without bytecode files: a mutant may have the size and the second of the file before it.
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    env["TBLOOM_SIMULATION_SECONDS"] = str(TIMEOUT // 2)
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "time-out"
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


def judge(mutant: Mutant, healthy: set[tuple[str, ...]]) -> str:
    """``killed``, ``survived``, or ``error`` with what pytest printed; ``healthy``: tests that pass without a mutant."""
    with tempfile.TemporaryDirectory(prefix="tbloom-mutants-") as folder:
        copy, tests = Path(folder), tuple(mutant.tests)
        copy_tree(copy)
        # In the same order: a test may need what the one before it has left.
        if tests not in healthy:
            code, output = run_tests(copy, mutant.tests)
            if code:
                return f"error: the tests fail without the mutant\n{output}"
            healthy.add(tests)
        path = copy / mutant.file
        code_of = path.read_text(encoding="utf-8")
        path.write_text(code_of.replace(mutant.old, mutant.new), encoding="utf-8")
        code, output = run_tests(copy, mutant.tests)
    return {0: "survived", 1: "killed"}.get(code, f"error: pytest ended with {code}\n{output}")


def main(words: list[str]) -> int:
    """Prints a line for each mutant and a summary; 0 if all that survive are explained."""
    mutants = list(read_list(LIST.read_text(encoding="utf-8")))
    if problems := list(faults(mutants)):
        print("\n".join(problems))
        return 2
    mutants = [one for one in mutants if not words or any(word in one.id for word in words)]
    counts, unexplained = Counter[str](), 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = pool.map(partial(judge, healthy=set()), mutants)
        for mutant, verdict in zip(mutants, verdicts, strict=True):
            kind, _, details = verdict.partition(":")
            counts[kind] += 1
            print(f"{kind:9} {mutant.id:30} {mutant.meaning}{details}", flush=True)
            if kind == "survived" and mutant.excuse:
                print(f"{'':9} Explained: {mutant.excuse}")
            elif kind != "killed":
                unexplained += 1
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{len(mutants)} mutants: {found}; {unexplained} without an explanation")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
