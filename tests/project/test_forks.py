"""The runner of the tests, which takes the place of a library (see its module)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Each number is a test: 3 fails, 5 kills its process, 8 is interrupted by pytest-timeout, 9 warns.
SUITE = """
import os, signal, time, warnings
import pytest

@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    print("module ends")

@pytest.mark.parametrize("number", range(40))
@pytest.mark.timeout(2)
def test_number(number, tmp_path, capfd):
    (tmp_path / "written").touch(exist_ok=False)
    os.write(1, b"%d" % number)
    assert str(number) == capfd.readouterr().out
    with open("ran", "a") as ran:
        ran.write(f"{number} {os.getpid()}\\n")
    assert number != 3
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 8:
        time.sleep(60)
    if number == 9:
        warnings.warn("beware", UserWarning)
"""


def _run(folder: Path, *words: str) -> tuple[str, list[int], set[str]]:
    """Return what pytest prints, the numbers of the tests that ran, and in which processes."""
    ran = folder / "ran"
    ran.write_text("", encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    root = Path(__file__).parents[2]
    words = (f"--rootdir={folder}", f"--config-file={folder}/none.ini", "-q", "--tb=line", *words)
    (folder / "none.ini").write_text(f"[pytest]\npythonpath={root}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.helpers.forks", *words, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(root)},
        check=False,
    )
    lines = [line.split() for line in ran.read_text(encoding="utf-8").splitlines()]
    return done.stdout + done.stderr, [int(line[0]) for line in lines], {line[1] for line in lines}


def test_each_test_runs_once_in_some_fork_whatever_ends_a_fork(tmp_path: Path) -> None:
    said, ran, processes = _run(tmp_path, "--forks=3")
    assert [*range(40)] == sorted(ran)
    assert 4 == len(processes)  # one was killed
    assert "3 failed, 37 passed, " in said, said
    for words in ("test_number[5]", "ended with exit code -9", "Timeout", "beware"):
        assert words in said, said
    said, ran, _ = _run(tmp_path, "--forks=3", "--lf")
    assert [3, 5, 8] == sorted(ran)
