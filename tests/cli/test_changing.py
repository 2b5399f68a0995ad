"""``tbloom clear`` and ``tbloom reconfigure``."""

from __future__ import annotations

import os
import pty
import socket
from collections.abc import Iterator

import pytest

from tbloom import ExactFilter, TimeBloom
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


def test_clear_works_for_every_kind_that_is_listed(url: str, name: str) -> None:
    with ExactFilter.from_url(url, name) as exact:
        exact.add("a")
        assert tbloom("clear", "--url", url, name, "--yes").stderr == f"Cleared '{name}'\n"
        assert "a" not in exact
        exact.clear()
    with TimeBloom.from_url(url, name, granularity=None) as seen:
        seen.add("a")
        assert tbloom("clear", "--url", url, name, "--yes").returncode == 0
        assert "a" not in seen


def test_reconfigure_shows_the_parameters_and_changes_them(url: str, filled: TimeBloom) -> None:
    """What was seen stays seen; parameters that are not given stay, and the size follows."""
    change = ["reconfigure", "--url", url, filled.name]
    done = tbloom(*change, "--capacity", "5k", "--slices", "9", "--no-grow")
    assert done.returncode == 0, done.stderr
    rows = {tuple(line.rsplit(None, 2)) for line in done.stdout.splitlines()}
    expected = {("capacity", "1,000", "5,000"), ("slices", "7", "9"), ("grow", "yes", "no")}
    assert expected < rows
    with TimeBloom.from_url(url, filled.name, capacity=5000, slices=9, grow=False) as seen:
        assert ("1" in seen, seen.info().items) == (True, 250)
    assert tbloom(*change, "--bits", "2^20", "--hashes", "9").returncode == 0
    # A size that was given stays.
    assert tbloom(*change, "--grow").returncode == 0
    like = {"capacity": 5000, "slices": 9, "bits": 1 << 20, "hashes": 9, "error_rate": 1e-4}
    with TimeBloom.from_url(url, filled.name, **like) as seen:
        assert "1" in seen


@pytest.mark.parametrize("hashes", [None, 9])
def test_reconfigure_goes_from_no_capacity_to_one_and_back(
    url: str, name: str, hashes: int | None
) -> None:
    """The size follows each time, from a given number of hashes too."""
    change = ["reconfigure", "--url", url, name, "--slices", "14", "--capacity"]
    with TimeBloom.from_url(url, name, hashes=hashes) as seen:
        seen.add("a")
    for capacity in (5_000_000, None, 20_000):
        assert tbloom(*change, str(capacity).lower()).returncode == 0
        with TimeBloom.from_url(url, name, slices=14, capacity=capacity, hashes=hashes) as seen:
            assert "a" in seen


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


def test_reconfigure_names_what_can_not_change(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, granularity="15min") as seen:
        seen.add("a")
    change = ["reconfigure", "--url", url, name]
    refused(tbloom(*change), "--capacity")
    for option in (["--granularity", "d"], ["--granularity", "none"], ["--tz", "Asia/Tokyo"]):
        refused(tbloom(*change, *option), f"{option[0]}: it can't change", "another name")
    refused(tbloom(*change, "--capacity", "1G"), "shards", "it can't change")
    assert tbloom(*change, "--granularity", "900s", "--slices", "9").returncode == 0


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_server_that_does_not_answer_is_refused_with_a_remedy(scheme: str) -> None:
    """It takes connections, and hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        refused(tbloom("list", "--url", url), "--url", "TBLOOM_URL")
