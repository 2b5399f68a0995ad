"""``tbloom completion``: what a shell completes with the script that it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tbloom.cli import COMMANDS
from tests.helpers.commands import completed, refused, tbloom
from tests.helpers.making import missing


def test_bash_completes_every_command(tmp_path: Path) -> None:
    """Also those whose modules are not loaded until they are called."""
    offered = completed("tbloom ''", tmp_path)
    assert set(COMMANDS) <= set(offered)
    assert completed("tbloom che", tmp_path) == ["check"]


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_the_options_of_every_command(command: str, tmp_path: Path) -> None:
    """Those that its help has."""
    text = tbloom(command, "--help").stdout
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.MULTILINE))
    assert "--help" in options
    assert options <= set(completed(f"tbloom {command} --", tmp_path))


def test_bash_completes_an_option_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").touch()
    assert completed("tbloom plan --cap", tmp_path) == ["--capacity"]
    assert completed("tbloom check redis://localhost news ur", tmp_path) == ["urls.txt"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path) -> None:
    done = tbloom("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert [] == [name for name in COMMANDS if name not in done.stdout]
    (tmp_path / "script").write_text(done.stdout, encoding="utf-8")
    if not shutil.which(shell):
        missing(f"The shell {shell}")
    subprocess.run([shell, "-n", tmp_path / "script"], timeout=30, check=True)


def test_other_shells_are_refused() -> None:
    refused(tbloom("completion", "tcsh"), "SHELL", "'tcsh'", "bash", "zsh", "fish")
