"""The command line: what all commands have in common, and list, info, plan, add and check."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.cli import COMMANDS
from tests.helpers.commands import TBLOOM, refused, tbloom

each_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def filled(url: str, name: str) -> Any:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add_many(f"item {i}" for i in range(250))
        yield seen


@each_command
def test_help_says_what_it_is_for_with_an_example(command: str) -> None:
    """The example is a command line that the parser takes, of this command."""
    done = tbloom(command, "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert f"Example: {COMMANDS[command].example}" in text
    assert COMMANDS[command].help[1:] in text
    assert shlex.split(COMMANDS[command].example)[:2] == ["tbloom", command]


def test_no_command_is_refused() -> None:
    refused(tbloom(), "COMMAND")
    refused(tbloom("nosuch"), "nosuch")


#: What each command that works with a server is given after the URL, in a form that is right.
AFTER_URL: dict[str, list[str]] = {
    "list": [],
    "info": ["news"],
    "add": ["news"],
    "check": ["news"],
    "metrics": ["news"],
    "compare": ["news", "--with-set", "news:dupefilter"],
    "import": ["news", "--from-lines", "-"],
    "watch": ["news"],
    "report": ["news"],
    "export": ["news", "news.tbloom"],
    "restore": ["news.tbloom"],
}


def test_each_command_with_a_server_is_tested_for_wrong_urls() -> None:
    assert AFTER_URL.keys() == COMMANDS.keys() - {"plan", "demo", "completion", "count", "pages"}


@pytest.mark.parametrize("command", AFTER_URL)
def test_wrong_urls_are_refused(command: str) -> None:
    """One that is none, and one where nobody answers, without the password that it has."""
    refused(tbloom(command, "localhost", *AFTER_URL[command]), "url", "'localhost'")
    refused(tbloom(command, "redis://localhost/news", *AFTER_URL[command]), "url", "a database")
    done = tbloom(command, "redis://:secret@127.0.0.1:1/0", *AFTER_URL[command])
    refused(
        done, "news.tbloom" if command == "restore" else "127.0.0.1:1"
    )  # it reads its file first
    assert "secret" not in done.stderr


@pytest.mark.parametrize("command", sorted(AFTER_URL.keys() - {"list", "restore"}))
def test_unknown_filters_are_refused(command: str, url: str, name: str) -> None:
    """Nothing is made by a name with a slip in it."""
    refused(tbloom(command, url, name, *AFTER_URL[command][1:]), name, "tbloom list")
    assert name not in tbloom("list", url).stdout


def test_a_key_of_somebody_else_s_is_no_filter(url: str, client: redis.Redis, name: str) -> None:
    """Its name is in the message; the other filters are listed all the same."""
    client.set(f"{{{name}}}:config", "mine", ex=60)
    refused(tbloom("info", url, name), "mine")
    done = tbloom("list", url)
    assert done.returncode == 1
    assert name in done.stderr
    client.delete(f"{{{name}}}:config")


def test_list_shows_the_filters(url: str, name: str) -> None:
    """Each once, also those with several shards, and with names that look like a shard's."""
    long = f"{name}-{'long' * 50}"
    for suffix, shards in (("", 1), (":3", 1), (":3.1", 1), ("-many", 5), (long[len(name) :], 1)):
        with TimeBloom.from_url(url, name + suffix, capacity=1000, shards=shards) as seen:
            seen.add_many(map(str, range(100)))
    listed = {info["name"]: info for info in json.loads(tbloom("list", url, "--json").stdout)}
    ours = {key: info for key, info in listed.items() if name in key}
    assert set(ours) == {name, f"{name}:3", f"{name}:3.1", f"{name}-many", long}
    assert {(info["items"], info["capacity"]) for info in ours.values()} == {(100, 1000)}
    lines = tbloom("list", url).stdout.splitlines()
    assert {line.split()[0] for line in lines if name in line} == set(ours)


def test_info_shows_slices_sums_and_parameters(url: str, filled: TimeBloom) -> None:
    """For people and for machines, the same figures."""
    told = json.loads(tbloom("info", url, filled.name, "--json").stdout)
    info = filled.info()
    assert (told["items"], told["bytes"], told["hashes"]) == (250, info.bytes, info.hashes)
    assert [s["label"] for s in told["slices"]] == [s.label for s in info.slices]
    assert told["slices"][-1]["expires"][:16] == info.slices[-1].expires.isoformat()[:16]
    text = tbloom("info", url, filled.name).stdout
    assert info.slices[-1].label in text
    assert "250" in text
    assert "25 %" in text


def test_info_warns_of_a_slice_over_its_capacity(url: str, filled: TimeBloom) -> None:
    assert "warning" not in tbloom("info", url, filled.name).stdout
    filled.add_many(f"more {i}" for i in range(2000))
    assert "2.2 times its capacity" in tbloom("info", url, filled.name).stdout


def test_plan_is_what_the_filter_will_be(url: str, name: str) -> None:
    """Bits, hashes, shards and memory, as a filter with these parameters has them."""
    like = ["--capacity", "1e5", "--error-rate", "1e-3", "--granularity", "h", "--slices", "24"]
    planned = json.loads(tbloom("plan", *like, "--json").stdout)
    with TimeBloom.from_url(
        url, name, capacity=100_000, error_rate=1e-3, granularity="h", slices=24
    ) as seen:
        seen.add("one")
        info = seen.info()
    assert [planned["bits"], planned["hashes"], planned["shards"]] == [
        info.bits,
        info.hashes,
        info.shards,
    ]
    # The key has a name, and an entry in Redis' table.
    assert planned["slice_bytes"] <= info.bytes <= planned["slice_bytes"] + 300
    assert planned["window_bytes"] == 24 * planned["slice_bytes"]
    assert 0 < planned["lost_per_day"] <= planned["lost_per_day_at_most"]
    assert planned["lost_per_day_at_most"] == pytest.approx(24 * 1e5 * 1e-3)


def test_plan_answers_the_reverse_question() -> None:
    """What fits into so much memory: the capacity; and for a capacity, the error rate."""
    for size, most in (("64MB", 64 << 20), ("64GB", 64 << 30)):
        fits = json.loads(tbloom("plan", "--memory", size, "--json").stdout)
        assert 0.8 * most < fits["window_bytes"] <= most
        items = str(fits["capacity"] + 100)
        more = json.loads(tbloom("plan", "--capacity", items, "--json").stdout)
        assert more["window_bytes"] > most
        assert more["error_rate"] == fits["error_rate"] == 1e-4
    most = 64 << 20
    given = ["--memory", "64MB", "--capacity", "1e6", "--json"]
    rated = json.loads(tbloom("plan", *given).stdout)
    assert rated["capacity"] == 1_000_000
    assert 0 < rated["error_rate"] < 1e-12
    tight = json.loads(tbloom("plan", *given[:-1], "--slices", "40", "--json").stdout)
    assert 1e-3 < tight["error_rate"] < 0.3
    assert tight["window_bytes"] <= most
    like = ["--capacity", "1e6", "--error-rate", str(tight["error_rate"]), "--slices", "40"]
    assert json.loads(tbloom("plan", *like, "--json").stdout) == tight


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--capacity", "many"], ["--capacity", "'many'"]),
        (["--capacity", "0"], ["--capacity", "'0'"]),
        (["--capacity", "1e400"], ["--capacity", "1e400"]),
        (["--capacity", "1e12"], ["--capacity", "bits"]),
        (["--error-rate", "1.5"], ["error_rate", "1.5"]),
        (["--granularity", "fortnight"], ["granularity", "fortnight"]),
        (["--memory", "lots"], ["--memory", "lots"]),
        (["--memory", "10"], ["--memory", "10 B"]),
        (["--memory", "1GB", "--capacity", "10", "--error-rate", "0.1"], ["--memory"]),
    ],
)
def test_plan_refuses_what_can_t_be(arguments: list[str], words: list[str]) -> None:
    refused(tbloom("plan", *arguments), *words)


def test_add_prints_the_new_lines(url: str, filled: TimeBloom) -> None:
    """Each once, in order; and they are in the filter then."""
    lines = "item 1\nnew b\nnew a\n\nnew b\r\nitem 2\n"
    done = tbloom("add", url, filled.name, stdin=lines)
    assert (done.returncode, done.stdout) == (0, "new b\nnew a\n"), done.stderr
    assert "5 lines, 2 new" in done.stderr
    again = tbloom("add", url, filled.name, "--quiet", stdin=lines)
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "")
    assert filled.contains_many(["new a", "new b"]) == [True, True]


def test_check_changes_nothing(url: str, filled: TimeBloom, tmp_path: Any) -> None:
    """Of several files, the new lines, or those seen."""
    (tmp_path / "one").write_bytes(b"item 3\nnew\n")
    (tmp_path / "two").write_bytes(b"\xff\xfe\nitem 4")
    files = [str(tmp_path / name) for name in ("one", "two")]
    for _ in range(2):
        done = subprocess.run(
            [*TBLOOM, "check", url, filled.name, *files], capture_output=True, check=True
        )
        assert done.stdout == b"new\n\xff\xfe\n"
    seen = tbloom("check", url, filled.name, "--seen", files[0], "-", stdin="item 5\n")
    assert seen.stdout == "item 3\nitem 5\n"
    assert filled.info().items == 250


def test_a_missing_file_is_refused_before_anything_is_added(
    url: str, filled: TimeBloom, tmp_path: Any
) -> None:
    (tmp_path / "one").write_text("new\n")
    refused(tbloom("add", url, filled.name, str(tmp_path / "one"), "/no/such"), "/no/such")
    assert "new" not in filled


def test_add_makes_a_filter_where_it_is_told_to(url: str, name: str) -> None:
    """With the parameters that are given; where it is there already, they must be the same."""
    done = tbloom("add", url, name, "--create", "--capacity", "5e3", "--slices", "3", stdin="a\n")
    assert (done.returncode, done.stdout) == (0, "a\n"), done.stderr
    with TimeBloom.from_url(url, name, capacity=5000, slices=3) as seen:
        assert "a" in seen
    assert tbloom("add", url, name, "--create", stdin="a\nb\n").stdout == "b\n"
    refused(tbloom("add", url, name, "--create", "--slices", "4", stdin="c\n"), "slices")
    refused(tbloom("add", url, name, "--slices", "3", stdin="c\n"), "--create")


def test_add_prints_what_it_added_before_the_filter_was_full(url: str, name: str) -> None:
    """Nothing that is remembered from now on goes unprinted."""
    lines = "".join(f"item {i}\n" for i in range(5000))
    like = ["--create", "--no-grow", "--capacity", "1000", "--quiet"]
    done = tbloom("add", url, name, *like, stdin=lines)
    assert done.returncode == 2
    assert "full" in done.stderr
    with TimeBloom.from_url(url, name, capacity=1000, grow=False) as seen:
        printed = done.stdout.splitlines()
        assert len(printed) == seen.info().items == 1000
        assert all(seen.contains_many(printed))


@pytest.fixture
def waiting(url: str, filled: TimeBloom) -> Any:
    """A command whose standard input says nothing more, but stays open."""
    running = subprocess.Popen(
        [*TBLOOM, "add", url, filled.name, "--quiet"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield running
    running.kill()
    running.communicate()


def test_lines_are_answered_as_they_come(waiting: Any) -> None:
    """``tail -f urls.txt | tbloom add ...``"""
    for line in ("new a\n", "new b\n"):
        waiting.stdin.write(line)
        waiting.stdin.flush()
        assert waiting.stdout.readline() == line


def test_ctrl_c_ends_a_command_that_waits(waiting: Any) -> None:
    waiting.stdin.write("new\n")
    waiting.stdin.flush()
    assert waiting.stdout.readline() == "new\n"
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(timeout=60) == 130
    assert waiting.stderr.read() == "tbloom: interrupted\n"


def test_info_fits_into_80_columns(url: str, filled: TimeBloom) -> None:
    """Labels and dates are whole, and a slice has one line."""
    filled.add_many(map(str, range(2000)))
    program = "import sys; from tbloom.cli import main, show; sys.exit(main())"
    reader, writer = os.openpty()
    command = [sys.executable, "-c", program, "info", url, filled.name]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    done = subprocess.run(command, stdout=writer, env=environment, timeout=60, check=True)
    os.close(writer)
    assert done.returncode == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", os.read(reader, 1 << 16).decode())
    os.close(reader)
    current = filled.info().slices[-1]
    [line] = [line for line in text.splitlines() if line.startswith(current.label)]
    assert f"{current.start:%Y-%m-%d}" in line
    assert "2,250" in line
    assert max(map(len, text.splitlines())) <= 80


def test_ctrl_c_leaves_no_line_added_and_unprinted(url: str, name: str) -> None:
    """What was added before the interruption was printed; nothing else was added."""
    running = subprocess.Popen(
        [*TBLOOM, "add", url, name, "--create", "--quiet"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdin
    assert running.stdout
    assert running.stderr
    # As many as a call asks for, and more than a pipe holds.
    writer = threading.Thread(target=_write, args=(running.stdin, range(1_000_000)))
    writer.start()
    first = running.stdout.readline()
    running.send_signal(signal.SIGINT)
    printed = [first, *running.stdout]
    assert running.wait() == 130
    assert running.stderr.read() == "tbloom: interrupted\n"
    writer.join()
    with TimeBloom.from_url(url, name) as seen:
        assert seen.info().items == len(printed) < 1_000_000


def _write(pipe: IO[str], numbers: Iterable[int]) -> None:
    with suppress(BrokenPipeError), pipe:
        pipe.writelines(f"item {i}\n" for i in numbers)


def test_a_reader_that_leaves_is_no_error(url: str, name: str) -> None:
    """``tbloom add ... | head -1``"""
    command = shlex.join([*TBLOOM, "add", url, name, "--create", "--quiet"])
    done = subprocess.run(
        ["sh", "-c", f"seq 200000 | {command} | head -1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("arguments", [["plan"], ["plan", "--json"]])
def test_output_that_can_not_be_written(arguments: list[str]) -> None:
    """Also where Python writes only at its end: a full disk is an error, a reader that has left is none."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(stdout: int | IO[bytes]) -> tuple[int, list[bytes]]:
        done = subprocess.run(
            [*TBLOOM, *arguments], env=buffered, stdout=stdout, stderr=subprocess.PIPE,
            timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr.splitlines()

    with Path("/dev/full").open("wb") as full:
        code, [line] = run(full)
    assert (code, b"No space left" in line) == (2, True)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        assert run(pipe) == (1, [])
