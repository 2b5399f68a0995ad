"""Sessions in a shell: each file of the folder ``recorded`` has commands, and what they print.

A line that begins with ``$`` is a command, ``<`` what it reads (``{1..9}`` in it stands for nine lines), ``!`` what it
prints on standard error, ``=`` its exit code if that is not 0; other lines are its output, in which ``...`` stands for
anything. ``@`` sets the server's clock; ``>`` is Python, for what has no command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import DistinctCounter, ExactFilter, TimeBloom
from tbloom.pages import PageStore
from tests.helpers.commands import tbloom_bytes
from tests.helpers.contents import keys_of

FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
SESSIONS = sorted((Path(__file__).parent / "recorded").glob("*.txt"))


def steps(text: str) -> Iterator[tuple[str, str, str, str]]:
    """The mark, the text and the input of each step, and what is expected of it; comments are left out."""
    step: list[str] = []
    for line in text.splitlines():
        if line[:2] in ("$ ", "@ ", "> "):
            if step:
                yield (*step,)  # type: ignore[misc]
            step = [line[0], line[2:], "", ""]
        elif line == "<" or line.startswith("< "):
            step[2] += expanded(line[2:])
        elif line and not line.startswith("# "):
            step[3] += f"{line}\n"
    yield (*step,)  # type: ignore[misc]


def expanded(line: str) -> str:
    """The lines that it stands for."""
    match = re.search(r"\{(\d+)\.\.(\d+)\}", line)
    if not match:
        return f"{line}\n"
    numbers = range(int(match[1]), int(match[2]) + 1)
    return "".join(f"{line[: match.start()]}{n}{line[match.end() :]}\n" for n in numbers)


def answer(command: str, stdin: str) -> str:
    """What the command prints, in the form of the sessions."""
    done = tbloom_bytes(*shlex.split(command), stdin=stdin.encode())
    said = "".join(f"! {line}\n" for line in done.stderr.decode().splitlines())
    code = f"= {done.returncode}\n" if done.returncode else ""
    out = done.stdout.decode(errors="backslashreplace")
    return "".join(f"{line}\n" for line in out.splitlines() if line) + said + code


def stored(client: redis.Redis) -> tuple[Any, ...]:
    """All that the server (but for kept answers, and heartbeats) and the files of this folder hold."""
    keys = [key for key in keys_of(client) if not key.endswith(b":sessions")]
    is_hash = {key: client.type(key) == b"hash" for key in keys}
    values = {key: client.hgetall(key) if is_hash[key] else client.dump(key) for key in is_hash}
    files = [path for path in Path().rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return values, {path: path.read_bytes() for path in files}


@pytest.mark.usefixtures("away_from_midnight")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_a_session_prints_what_was_recorded(
    path: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, on an empty server. A command that is refused (its exit code is 2) changes nothing."""
    text = path.read_text(encoding="utf-8")
    clockwork = (
        request.getfixturevalue("clockwork") if re.search("^@ ", text, re.MULTILINE) else None
    )
    url = clockwork.server.url if clockwork else request.getfixturevalue("own_url")
    monkeypatch.setenv("TBLOOM_URL", url)
    monkeypatch.chdir(tmp_path)
    with redis.Redis.from_url(url) as client:
        names = {"client": client, "Path": Path, "TimeBloom": TimeBloom, "PageStore": PageStore}
        names |= {"ExactFilter": ExactFilter, "DistinctCounter": DistinctCounter}
        for mark, given, stdin, expected in steps(text):
            if mark == "@":
                clockwork.set(given)
            elif mark == ">":
                exec(given, names)  # noqa: S102 - our own sessions
            else:
                before = stored(client)
                got = answer(given, stdin).replace(url, "URL").replace(str(tmp_path), "FOLDER")
                assert OutputChecker().check_output(expected, got, FLAGS), f"$ {given}\n{got}"
                assert before == stored(client) or not got.endswith("= 2\n"), given
