"""The command line, run in the test's own process or in a new one, as a user runs it."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tbloom.cli import main
from tbloom.cli.commands import registry
from tbloom.cli.kit import subcommands

TBLOOM = [sys.executable, "-m", "tbloom"]
_PIPE_BYTES = 1 << 16


def _verbs(command: str) -> list[str]:
    parser = registry.parsers()[1][command]
    registry.load(command).add_arguments(parser)
    return sorted(subcommands.parsers(parser))


#: The commands with sub-commands, with each of these.
VERBS = [(command, verb) for command in ("count", "pages") for verb in _verbs(command)]


def tbloom(
    *arguments: object, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, which saves the 0.3 s that a new one takes to start."""
    done = tbloom_bytes(*arguments, stdin=stdin.encode(), **environment)
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def tbloom_bytes(
    *arguments: object, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """The same with bytes; standard input is a pipe."""
    assert len(stdin) <= _PIPE_BYTES
    words = [str(argument) for argument in arguments]
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(stdin)
    outputs = io.BytesIO(), io.BytesIO()
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": "120", **environment}))
        stack.enter_context(patch("sys.stdin", stack.enter_context(os.fdopen(reader))))
        for name, output in zip(("sys.stdout", "sys.stderr"), outputs, strict=True):
            text = io.TextIOWrapper(output, "utf-8", "backslashreplace", write_through=True)
            stack.callback(text.detach)
            stack.enter_context(patch(name, text))
        try:
            code = main(words)
        except SystemExit as error:  # argparse's
            code = int(str(error.code or 0))
    return subprocess.CompletedProcess(words, code, *(output.getvalue() for output in outputs))


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in a process of its own."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" not in options:
        streams["stdin"] = subprocess.DEVNULL
    command = [*TBLOOM, *map(str, arguments)]
    return subprocess.run(command, check=False, **{**streams, **options})


def started(*arguments: object, **options: Any) -> subprocess.Popen[Any]:
    """Starts a command in a process of its own, with pipes to all its streams."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*TBLOOM, *map(str, arguments)], **{**streams, **options})


def refused(done: subprocess.CompletedProcess[str], *words: str) -> str:
    """Checks that a command ended with exit code 2 and one line on stderr with these words, and returns the line."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [] == [word for word in words if word not in done.stderr], done.stderr
    return done.stderr


#: Completes the last of its words as bash does when a user presses Tab, and prints what it found.
COMPLETE = """
eval "$(cat)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
_shtab_tbloom tbloom "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str, folder: Path) -> list[str]:
    """What bash offers for the last word; ``''`` is an empty word."""
    script = tbloom("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *shlex.split(line)],
        input=script, capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return sorted(word.strip() for word in done.stdout.splitlines())


def screen(*arguments: object, width: int = 80) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    done = tbloom(*arguments, COLUMNS=str(width), FORCE_COLOR="1", TERM="xterm")
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()


def without_stdout(*arguments: object) -> tuple[int, str]:
    """Runs a command whose standard output the shell has closed: its exit code and its stderr."""
    shell = ["sh", "-c", '"$@" >&-', "sh", *TBLOOM, *map(str, arguments)]
    done = subprocess.run(
        shell, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


def unwritable(*arguments: object) -> tuple[tuple[int, str], tuple[int, str]]:
    """Exit code and stderr of a command whose output is a full disk, and of one whose reader has ended."""
    # Without a buffer, Python would not write only at its end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        on_disk = process(*arguments, stdout=full, env=buffered)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        in_pipe = process(*arguments, stdout=pipe, env=buffered)
    return (
        (on_disk.returncode, on_disk.stderr.decode()),
        (in_pipe.returncode, in_pipe.stderr.decode()),
    )
