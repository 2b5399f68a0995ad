"""``tbloom watch``: rates, lines for programs, frames for terminals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tbloom import TimeBloom
from tbloom.cli.commands.watch import Rates
from tbloom.cli.kit import formats
from tests.helpers.commands import TBLOOM, refused, started, tbloom
from tests.helpers.localredis import LocalRedis, find_binary
from tests.helpers.making import missing

LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ([\d,]+) items  (-|[\d,.]+) items/s  [\d.]+ [KM]?B  error rate \S+\n"
)


def _rates(*ticks: tuple[float, dict[str, int]], keep: int = 60) -> Rates:
    rates = Rates(keep)
    for at, counts in ticks:
        rates.tick(at, counts)
    return rates


def test_a_rate_needs_two_looks() -> None:
    assert _rates().now is None
    assert _rates((0.0, {"a": 5})).now is None
    rates = _rates((10.0, {"a": 5}), (12.0, {"a": 25}))
    assert (rates.now, rates.mean, rates.seconds) == (10, 10, 2)


def test_a_slice_that_begins_counts_and_one_that_leaves_does_not() -> None:
    """At midnight, a full slice leaves the window, and one with 30 items begins."""
    before, after = {"1": 1000, "2": 70}, {"2": 100, "3": 30}
    assert _rates((0.0, before), (1.0, after)).now == 60


def test_a_longer_window_adds_no_items() -> None:
    assert _rates((0.0, {"2": 70}), (1.0, {"1": 1000, "2": 71})).now == 1


def test_a_cleared_filter_counts_from_zero() -> None:
    assert _rates((0.0, {"1": 100, "2": 70}), (1.0, {"1": 0, "2": 8})).now == 8


def test_old_ticks_are_forgotten() -> None:
    """The mean is weighted by time."""
    looks = [(0.0, 0), (1.0, 1000), (2.0, 1010), (5.0, 1100)]
    rates = _rates(*[(at, {"a": items}) for at, items in looks], keep=2)
    assert rates.each == [10, 30]
    assert (rates.mean, rates.seconds) == (25, 4)


def test_two_looks_at_the_same_moment_are_one() -> None:
    assert _rates((1.0, {"a": 5}), (1.0, {"a": 9})).each == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.4, "4 s"), (119.4, "119 s"), (119.6, "2 min"), (600, "10 min"), (9000, "2 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


@contextmanager
def _watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    running = started("watch", *arguments, stdin=subprocess.DEVNULL, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_a_line_for_each_look(url: str, name: str) -> None:
    """New items are in the lines, and in the rates. Ctrl-C is the normal end."""
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("one")
        with _watching("--url", url, name, "--every", "0.1") as running:
            assert running.stdout
            assert _items(running.stdout.readline()) == (1, None)
            seen.add_many(map(str, range(500)))
            while (shown := _items(running.stdout.readline())) == (1, 0):
                pass
            assert shown[0] == 501
            assert shown[1]
            running.send_signal(signal.SIGINT)
            rest, errors = running.communicate()
    assert {_items(line) for line in rest.splitlines(keepends=True)} <= {(501, 0)}
    assert (running.returncode, errors) == (0, "")


def _items(line: str) -> tuple[int, float | None]:
    match = LINE.fullmatch(line)
    assert match, line
    rate = None if match[2] == "-" else float(match[2].replace(",", ""))
    return int(match[1].replace(",", "")), rate


def test_once_is_one_line(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("a")
    done = tbloom("watch", "--url", url, name, "--once")
    assert (done.returncode, _items(done.stdout), done.stderr) == (0, (1, None), "")


@pytest.mark.parametrize("seconds", ["0", "-1", "often", "nan", "1e9"])
def test_wrong_pauses_are_refused(seconds: str) -> None:
    refused(
        tbloom("watch", "--url", "redis://localhost", "news", f"--every={seconds}"),
        "--every",
        seconds,
    )


def test_watch_goes_on_after_an_outage() -> None:
    """The server ends, comes back empty, and gets a filter of this name again."""
    binary = find_binary()
    if binary is None:
        missing("A redis-server")
    with LocalRedis(binary) as server:
        _fill(server.url, 3)
        with _watching("--url", server.url, "news", "--every", "0.1") as running:
            assert running.stdout
            assert running.stderr
            assert _items(running.stdout.readline()) == (3, None)
            server.stop()
            assert "trying again" in running.stderr.readline()
            with LocalRedis(binary, port=server.port):
                while "no filter 'news'" not in running.stderr.readline():
                    assert running.poll() is None
                _fill(server.url, 5)
                while _items(line := running.stdout.readline())[0] == 3:
                    assert line
                assert _items(line)[0] == 5


def _fill(url: str, items: int) -> None:
    with TimeBloom.from_url(url, "news", capacity=1000) as seen:
        seen.add_many(map(str, range(items)))


def test_frames_on_a_terminal(url: str, name: str) -> None:
    """Name, slices, rates and a sparkline; after Ctrl-C the last frame is whole."""
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add_many(map(str, range(500)))
        label = seen.info().slices[-1].label
    ours, terminal = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in {"CI", "NO_COLOR"}}
    running = subprocess.Popen(
        [*TBLOOM, "watch", "--url", url, name, "--every", "0.1"],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
    )  # fmt: skip
    os.close(terminal)
    shown = ""
    while "▁▁" not in shown:
        shown += os.read(ours, 1 << 16).decode(errors="replace")
    assert [] == [word for word in (name, label, "0.0 items/s") if word not in shown]
    running.send_signal(signal.SIGINT)
    with suppress(OSError):  # the end of the terminal's output
        while more := os.read(ours, 1 << 16):
            shown += more.decode(errors="replace")
    os.close(ours)
    assert running.wait() == 0
    assert "\nwindow" in re.sub(r"\x1b\[[\d;]*m", "", shown[shown.rindex("Ctrl-C ends") :])
