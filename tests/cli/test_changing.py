"""``tbloom clear`` and ``tbloom reconfigure`` at a terminal. (The rest: recorded/changing.txt.)"""

from __future__ import annotations

import os
import pty
import socket
from collections.abc import Iterator

import pytest

from tbloom import TimeBloom
from tests.helpers.commands import process, refused, tbloom


@pytest.fixture
def filled(url: str, name: str) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add_many(map(str, range(250)))
        yield seen


def _answered(answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose standard input is a terminal, on which a user answers."""
    ours, terminal = pty.openpty()
    with os.fdopen(ours, "wb", 0) as user, os.fdopen(terminal, "rb") as stdin:
        user.write(answer.encode())
        done = process(*arguments, stdin=stdin)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "asked", "not_done", "then"),
    [
        ("clear --url {} {}", "the 250 items", "deleted", "no filter"),
        (
            "reconfigure --url {} {} --slices 2",
            "the oldest 5 slices",
            "changed",
            "2 slices of a day",
        ),
    ],
)
def test_what_is_forgotten_is_asked_about(
    url: str, filled: TimeBloom, *, command: str, asked: str, not_done: str, then: str
) -> None:
    """Without an answer, nothing changes."""
    words = command.format(url, filled.name).split()
    question = f"Forget {asked} of '{filled.name}' on {url}? [y/N]: "
    for no in ("\n", "n\n"):
        assert _answered(no, *words) == (1, f"{question}tbloom: nothing was {not_done}\n")
    assert 250 == filled.info().items
    code, said = _answered("y\n", *words)
    assert (0, True) == (code, said.startswith(question))
    done = tbloom("info", "--url", url, filled.name)
    assert then in done.stdout + done.stderr


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_server_that_does_not_answer_is_refused_with_a_remedy(scheme: str) -> None:
    """It takes connections, and hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        refused(tbloom("list", "--url", url), "--url", "TBLOOM_URL")
