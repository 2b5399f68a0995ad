"""``tbloom completion``: what a shell completes with the script that it prints."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import missing
from test_cli import refused, tbloom

from tbloom.cli import COMMANDS

#: Completes the last of its words as bash does when a user presses Tab, and prints what it found.
COMPLETE = """
eval "$(cat)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
_shtab_tbloom tbloom "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str, folder: Path, script: str = "") -> list[str]:
    """What bash offers for the last word; ``''`` is a word that is yet to be typed."""
    script = script or tbloom("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *shlex.split(line)],
        input=script, capture_output=True, text=True, timeout=30, check=True, cwd=folder,
    )  # fmt: skip
    return sorted(word.strip() for word in done.stdout.splitlines())


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
