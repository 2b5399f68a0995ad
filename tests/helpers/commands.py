"""The command line, run as a user does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

TBLOOM = [sys.executable, "-c", "import sys; from tbloom.cli import main; sys.exit(main())"]


def tbloom(
    *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TBLOOM, *arguments], env={**os.environ, "COLUMNS": "120", **environment}, input=stdin,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """It ended in one line on stderr, with these words, and exit code 2."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [] == [word for word in words if word not in done.stderr], done.stderr


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
