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


def test_clear_asks_first(url: str, filled: TimeBloom) -> None:
    """The question has the number of items; without a terminal, --yes is needed."""
    clear = ["clear", "--url", url, filled.name]
    refused(tbloom(*clear, stdin="y\n"), "--yes")
    question = f"Forget the 250 items of '{filled.name}' on {url}? [y/N]: "
    assert _answered("\n", *clear) == (1, f"{question}tbloom: nothing was deleted\n")
    assert filled.info().items == 250
    assert _answered("y\n", *clear) == (0, f"{question}Cleared '{filled.name}'\n")
    assert filled.info().items == 0


def test_a_shorter_window_is_asked_about(url: str, filled: TimeBloom) -> None:
    """What only the older slices hold would be forgotten."""
    change = ["reconfigure", "--url", url, filled.name, "--slices", "2"]
    assert "--yes" in tbloom(*change).stderr
    question = f"Forget the oldest 5 slices of '{filled.name}' on {url}? [y/N]: "
    assert _answered("n\n", *change) == (1, f"{question}tbloom: nothing was changed\n")
    assert 7 == len(filled.info().slices)
    assert 0 == tbloom(*change, "--yes").returncode
    with TimeBloom.from_url(url, filled.name, capacity=1000, slices=2) as seen:
        assert ("1" in seen, len(seen.info().slices)) == (True, 2)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_server_that_does_not_answer_is_refused_with_a_remedy(scheme: str) -> None:
    """It takes connections, and hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        refused(tbloom("list", "--url", url), "--url", "TBLOOM_URL")
