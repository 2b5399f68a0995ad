"""The runner of the tests (``helpers/forks.py``), which takes the place of a library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Each number is a test: 3 fails, 5 kills its process.
SUITE = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_number(number):
    with open("ran", "a") as ran:
        print(number, file=ran)
    assert number != 3
    if number == 5:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.check
def test_each_test_runs_once_whatever_ends_a_fork(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    words = ["-p", "tests.helpers.forks", "--forks=3", "-q", "-c", os.devnull, "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "."],
        cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [*range(20)] == sorted(map(int, (tmp_path / "ran").read_text().split()))
    assert "2 failed, 18 passed" in done.stdout
    assert "ended with exit code -9" in done.stdout
