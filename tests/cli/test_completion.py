"""``tbloom completion``: the completions that a shell offers with its script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tbloom.cli.commands.registry import COMMANDS
from tests.helpers.commands import VERBS, completed, refused, tbloom
from tests.helpers.making import missing


def test_bash_completes_every_command(tmp_path: Path) -> None:
    """Also commands whose modules are not loaded yet."""
    offered = completed("tbloom ''", tmp_path)
    assert set(COMMANDS) <= set(offered)
    assert completed("tbloom che", tmp_path) == ["check"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("plan --cap", ["--capacity"]),
        ("check news ur", ["urls", "urls.txt"]),
        ("count add --url redis://localhost urls ur", ["urls", "urls.txt"]),
        ("pages ls ur", ["urls"]),
        ("pages put urls https://example.com/ ur", ["urls", "urls.txt"]),
    ],
)
def test_bash_completes_options_files_and_folders(
    line: str, offered: list[str], tmp_path: Path
) -> None:
    (tmp_path / "urls.txt").touch()
    (tmp_path / "urls").mkdir()
    assert completed(f"tbloom {line}", tmp_path) == offered


def test_bash_completes_verbs(tmp_path: Path) -> None:
    for command in ("count", "pages"):
        offered = completed(f"tbloom {command} ''", tmp_path)
        assert {verb for other, verb in VERBS if other == command} <= set(offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(shell: str, tmp_path: Path) -> None:
    done = tbloom("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert [] == [name for name in COMMANDS if name not in done.stdout]
    (tmp_path / "script").write_text(done.stdout, encoding="utf-8")
    if not shutil.which(shell):
        missing(f"The shell {shell}")
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_other_shells_are_refused() -> None:
    refused(tbloom("completion", "tcsh"), "SHELL", "'tcsh'", "bash", "zsh", "fish")
