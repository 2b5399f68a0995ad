"""Sessions in a shell: each file of the folder ``recorded`` has commands, and what they print.

A line that begins with ``$`` is a command, ``&`` another one that prints the same, ``<`` what they read (``{1..9}`` in it
stands for nine lines, ``{a,b}`` for two), ``!`` what they print on standard error, ``=`` their exit code if that is not 0; ``x`` is what
refuses them, on standard error and with exit code 2. Other lines are their output, in which ``...`` stands for anything.
``OTHER`` in a command is the URL of another database. ``@`` sets the server's clock; ``>`` is Python, for what has no command.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.pages import PageStore
from tests.helpers.commands import tbloom_bytes
from tests.helpers.contents import keys_of

FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
SESSIONS = sorted((Path(__file__).parent / "recorded").glob("*.txt"))


@dataclass
class Step:
    mark: str
    #: The command, with others that print the same; or Python, or a time.
    given: list[str]
    stdin: str = ""
    #: Whether there are lines of standard input, be they empty.
    reads: bool = False
    expected: str = ""


def steps(text: str) -> list[Step]:
    """Comments are left out."""
    found: list[Step] = []
    for line in text.splitlines():
        mark, rest = line[:1], line[2:]
        if line[:2] in ("$ ", "@ ", "> "):
            found.append(Step(mark, [rest]))
        elif line[:2] == "& ":
            found[-1].given.append(rest)
        elif line == "<" or line[:2] == "< ":
            found[-1].stdin += expanded(rest)
            found[-1].reads = True
        elif line and line[:2] != "# ":
            found[-1].expected += f"! {rest}\n= 2\n" if line[:2] == "x " else f"{line}\n"
    return found


def expanded(line: str) -> str:
    """The lines that it stands for."""
    if match := re.fullmatch(r"\{(\d+)\.\.(\d+)\}", line):
        return "".join(f"{n}\n" for n in range(int(match[1]), int(match[2]) + 1))
    if match := re.fullmatch(r"\{(.*)\}", line):
        line = match[1].replace(",", "\n")
    return f"{line}\n"


def answer(command: str, stdin: str, closed: str) -> str:
    """What the command prints, in the form of the sessions, with a stream closed."""
    done = tbloom_bytes(*shlex.split(command), stdin=stdin.encode(), closed=closed)
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
@pytest.mark.parametrize(
    ("path", "closed"),
    [
        # The examples have all commands that end by themselves.
        pytest.param(
            path,
            closed,
            marks=[pytest.mark.check] * bool(closed and path.stem != "examples"),
            id=path.stem + closed,
        )
        for closed in ("", "sys.stderr", "sys.stdin")
        for path in SESSIONS
    ],
)
def test_a_session_prints_what_was_recorded(
    path: Path,
    closed: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an empty folder, on an empty server. A command that is refused (it prints an error only) changes nothing.

    With standard error closed, as of a daemon, only what goes there is missing; with standard input, nothing where it is not read.
    """
    text = path.read_text(encoding="utf-8")
    clockwork = (
        request.getfixturevalue("clockwork") if re.search("^@ ", text, re.MULTILINE) else None
    )
    url = clockwork.server.url if clockwork else request.getfixturevalue("own_url")
    monkeypatch.setenv("TBLOOM_URL", url)
    monkeypatch.chdir(tmp_path)
    other = f"{url.removesuffix('/0')}/1"
    with redis.Redis.from_url(url) as client:
        names = {"client": client, "Path": Path, "TimeBloom": TimeBloom, "PageStore": PageStore}
        names |= {"ExactFilter": ExactFilter, "DistinctCounter": DistinctCounter}
        for step in steps(text):
            for given in step.given:
                if step.mark == "@":
                    clockwork.set(given)
                elif step.mark == ">":
                    # The name of the file says which line has failed.
                    exec(compile(given, given, "exec"), names)  # noqa: S102 - our own sessions
                else:
                    before = stored(client)
                    shut, expected = closed, step.expected
                    if closed == "sys.stdin" and step.reads:
                        shut = ""
                    if shut == "sys.stderr":
                        expected = re.sub("^!.*\n", "", expected, flags=re.MULTILINE)
                    got = answer(given.replace("OTHER", other), step.stdin, shut)
                    got = got.replace(url, "URL").replace(str(tmp_path), "FOLDER")
                    is_right = OutputChecker().check_output(expected, got, FLAGS)
                    assert is_right, f"$ {given}\n{got}"
                    is_refused = re.fullmatch("(!.*\n)*= 2\n", got)
                    assert before == stored(client) or not is_refused, given
