"""The command line, run in the test's own process or in a new one, as a user runs it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from unittest.mock import patch

from tbloom.cli import COMMANDS, command, main
from tests.helpers.forked import Forked

TBLOOM = [sys.executable, "-m", "tbloom"]
_PIPE_BYTES = 1 << 16


#: The commands with sub-commands, with each of these.
VERBS = [(name, verb) for name in ("count", "pages") for verb in sorted(command(name).commands)]

#: All commands, each with its sub-commands after it.
WORDS = sorted([*((name,) for name in COMMANDS), *VERBS])


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def tbloom(
    *arguments: object, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, which saves the 0.3 s that a new one takes to start."""
    return _decoded(tbloom_bytes(*arguments, stdin=stdin.encode(), **environment))


def tbloom_asking(answer: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The same for a command that asks on a terminal, where it is answered."""
    return _decoded(tbloom_bytes(*arguments, stdin=answer.encode(), asks=True))


def _decoded(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def tbloom_bytes(
    *arguments: object,
    stdin: bytes = b"",
    asks: bool = False,
    is_terminal: bool = False,
    closed: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[bytes]:
    """The same with bytes; standard input is a pipe, or a terminal where it ``asks``, and standard output is a terminal where
    ``is_terminal``; the stream ``closed`` (sys.stderr, sys.stdin) is None, as after ``2>&-`` and ``<&-``."""
    assert len(stdin) <= _PIPE_BYTES
    words = [str(argument) for argument in arguments]
    reader, writer = reversed(os.openpty()) if asks else os.pipe()
    outputs = io.BytesIO(), io.BytesIO()
    with ExitStack() as stack:
        user = stack.enter_context(os.fdopen(writer, "wb", 0))
        user.write(stdin)
        if not asks:
            user.close()
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": "120", **environment}))
        stack.enter_context(patch("sys.stdin", stack.enter_context(os.fdopen(reader))))
        for name, output in zip(("sys.stdout", "sys.stderr"), outputs, strict=True):
            kind = _Terminal if is_terminal and name == "sys.stdout" else io.TextIOWrapper
            text = kind(output, "utf-8", "backslashreplace", write_through=True)
            stack.callback(text.detach)
            stack.enter_context(patch(name, text))
        if closed:
            stack.enter_context(patch(closed, None))
        code = main(words)
    return subprocess.CompletedProcess(words, code, *(output.getvalue() for output in outputs))


def tbloom_in(
    folder: Path, *arguments: object, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, and in a process that has imported Scrapy already."""
    return Forked(_run_in, folder, arguments, stdin, environment).result()


def _run_in(
    folder: Path, arguments: tuple[object, ...], stdin: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    os.chdir(folder)
    # A project may be written anew within the second that a compiled module's time is exact to.
    sys.dont_write_bytecode = True
    return tbloom(*arguments, stdin=stdin, **environment)


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


class Serving:
    """A command that serves at a port of its own until a signal ends it, in a process that has imported what it needs already."""

    def __init__(self, *words: str) -> None:
        with TemporaryDirectory() as folder:
            said = Path(folder) / "said"
            os.mkfifo(said)
            self._running = Forked(_serve, said, [*words, "--port", "0"])
            self._said = said.open()
        [port] = re.findall(r"^Serving http://.+:(\d+)/", self._said.readline())
        self.port = int(port)

    def end(self, number: int = signal.SIGINT) -> tuple[int, list[str]]:
        """The exit code, and the further lines on stderr."""
        self._running.send_signal(number)
        return self._running.result(), self._said.read().splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.kill()
        self._said.close()


def _serve(said: Path, words: list[str]) -> int:
    with said.open("w") as pipe:
        os.dup2(pipe.fileno(), sys.stderr.fileno())
    sys.argv[1:] = words
    return main()


def refused(done: subprocess.CompletedProcess[str], *words: str) -> str:
    """Checks that a command ended with exit code 2 and one line on stderr with these words, and returns the line."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [] == [word for word in words if word not in done.stderr], done.stderr
    return done.stderr


def completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell is told to offer for the last word, each with its kind; a line that ends in a space has an empty word."""
    place = str(len(line.split()) - (not line.endswith(" ")))
    if shell == "fish":
        place = line.rpartition(" ")[2]
    words = {"COMP_WORDS": line, "COMP_CWORD": place, "_TBLOOM_COMPLETE": f"{shell}_complete"}
    return tbloom(**words).stdout.splitlines()


def screen(*arguments: object, width: int = 80, **environment: str) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    environment = {"COLUMNS": str(width), **environment}
    done = tbloom_bytes(*arguments, stdin=b"y\n", is_terminal=True, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()
