"""What holds for every command: examples, completion, output that can't be written, 80 columns, the server; and the figures of
``tbloom demo``. (Wrong servers and names: recorded/refused.txt.)"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.cli import COMMANDS
from tbloom.demo.localredis import open_redis
from tbloom.distinct import DistinctCounter
from tbloom.pages import PageStore
from tests.helpers.commands import TBLOOM, VERBS, WORDS, completed, refused, screen, tbloom

_EXACT = "kind name shards items dead buckets bytes warnings"
#: Command lines that print a table, on the server and in the folder of the fixture ``place``; the fields that stay in their --json.
TABLES = {
    "list": _EXACT,
    "info news": "name granularity tz capacity promised_error_rate bits hashes shards grow slices claims warnings lost_at items "
    "bytes error_rate label start end expires parts fill_ratio",
    "info exact": _EXACT,
    "plan": "granularity slices capacity error_rate bits hashes shards slice_bytes window_bytes maxmemory_bytes waiting_pages "
    "lost_per_slice_at_most set_bytes",
    "count show urls": "name mapping granularity count slices members mapping_bytes buckets warnings bytes label chunks",
    "count list": "mapping name granularity slices tz count",
    "pages stats {pages}": "path granularity tz slices index_bytes pages records segments bytes label start end expires",
}


@pytest.fixture
def place(own_url: str, tmp_path: Path) -> dict[str, str]:
    """A server with a filter, an exact one and a counter; the path of a page store."""
    with (
        redis.Redis.from_url(own_url) as client,
        TimeBloom(client, "news", capacity=10**6) as news,
        DistinctCounter(client, "urls", granularity="d", slices=30) as urls,
        PageStore(tmp_path / "pages", "15min", 30) as store,
    ):
        news.add_many(map(str, range(20)))
        ExactFilter(client, "exact").add("a")
        urls.add("a")
        store.put("https://example.com/", b"a page")
    return {"TBLOOM_URL": own_url, "pages": str(tmp_path / "pages")}


def words_of(line: str, place: dict[str, str]) -> list[str]:
    return [word.format(**place) for word in line.split()]


def test_a_shell_is_offered_commands_options_and_files() -> None:
    assert ["plain,check"] == completed("tbloom che")
    assert {"plain,--seen", "plain,--url", "plain,--help"} <= {*completed("tbloom check --")}
    assert {f"plain,{name}" for name in COMMANDS} <= {*completed("tbloom ")}
    for name in ("count", "pages"):
        verbs = {f"plain,{verb}" for command, verb in VERBS if command == name}
        assert verbs <= {*completed(f"tbloom {name} ")}
    assert ["file,"] == completed("tbloom check news ")


@pytest.mark.parametrize("words", [[], ["queue"], ["pages", "verify"]])
def test_a_help_without_descriptions_says_why(words: list[str]) -> None:
    python = [sys.executable, "-OO", "-m", "tbloom"]
    shown = subprocess.check_output([*python, *words, "--help"], text=True)
    assert "python -OO has left out what commands do" in " ".join(shown.split())
    assert "-OO" not in subprocess.check_output([*TBLOOM, *words, "--help"], text=True)


#: Those whose examples other tests run: of a fleet, of a project's folder, and of a server that goes on for ever.
ELSEWHERE = [
    "demo",
    "doctor",
    "metrics",
    "server",
    "watch",
    "push",
    "queue",
    "failed",
    "retry",
    "drop",
]


def test_each_example_of_the_help_is_recorded() -> None:
    """But for the files that the shell reads and writes. The list of commands has the first sentence of each help."""
    recorded = (Path(__file__).parent / "recorded" / "examples.txt").read_text(encoding="utf-8")
    listed = tbloom("--help").stdout
    for words in WORDS:
        text = tbloom(*words, "--help", COLUMNS="80").stdout
        assert max(map(len, text.splitlines())) <= 80
        [example] = re.findall(r"Example: tbloom (.*(?:\n  \S.*)*)", text)
        line = re.sub(r" [<>] \S+", "", " ".join(example.split()))
        found = re.search(rf"^[$&] {re.escape(line)}$", recorded, re.MULTILINE)
        assert found or words[0] in ELSEWHERE, line
        if not words[1:]:
            assert f"  {words[0]:8} {text.splitlines()[2].strip()}\n" in listed


@pytest.mark.check
@pytest.mark.parametrize(
    "line",
    ["list", "export news -", "--help", "plan --json", "pages get {pages} https://example.com/"],
)
def test_output_that_can_t_be_written_is_an_error(line: str, place: dict[str, str]) -> None:
    """On a full disk, or where the shell has closed it, and Python says nothing of it at its end; a reader that has ended is
    none: click#625."""
    command = shlex.join([*TBLOOM, *words_of(line, place)])
    shell = f"{command} >&-; echo $?; {command} >/dev/full; echo $?; {command} | :"
    done = subprocess.run(
        ["sh", "-c", f"({shell}) 2>&1"],
        capture_output=True, text=True, check=True,
        # Without a buffer, Python 3.13's gzip complains of its own half-made object, too.
        env={**os.environ, **place, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    closed, one, full, other = done.stdout.splitlines()
    assert ("tbloom: standard output is closed", "2", "2") == (closed, one, other)
    assert re.fullmatch("tbloom: standard output.*: No space left on device", full)


#: Says whether each closed stream is the null device after a command.
_STREAMS = """
import os, sys
from tbloom.cli import main
is_closed = [stream is None for stream in (sys.stdin, sys.stderr)]
main(["list"])
null = os.stat(os.devnull).st_rdev
print([os.fstat(number).st_rdev == null for number, is_so in zip((0, 2), is_closed) if is_so])
"""


@pytest.mark.check
def test_a_command_works_without_standard_error_or_input(
    place: dict[str, str], tmp_path: Path
) -> None:
    """pipx#1620. As a daemon's, or cron's, with 2>&-; all commands: test_recorded.py. No file or connection gets the number of the closed
    stream, into which libraries and child processes would write."""
    lines = tmp_path / "lines"
    lines.write_text("1\nnew\n")

    def printed(words: list[str], streams: str) -> str:
        command = f"{shlex.join(words)} {streams}; echo $?"
        env = {**os.environ, **place}
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=env).stdout  # fmt: skip

    check = [*TBLOOM, "check", "news"]
    assert "new\n0\n" == printed([*check, str(lines)], "2>&- <&-")
    assert ["1\n"] * 2 == [printed(check, to) for to in ("2>/dev/null <&-", "</dev/null 2>&-")]
    assert "[True, True]\n0\n" == printed([sys.executable, "-c", _STREAMS], "<&- 2>&-")[-15:]
    said = printed([*TBLOOM, "add", "news"], "<&- 2>&1")
    assert "tbloom: -: it is closed\n0 lines, 0 new\n1\n" == said


@pytest.mark.parametrize("line", TABLES)
def test_tables_fit_into_80_columns_and_lose_nothing(line: str, place: dict[str, str]) -> None:
    """With --json, they are JSON with all of their fields."""
    words, where = words_of(line, place), {"TBLOOM_URL": place["TBLOOM_URL"]}
    lines, wide = (screen(*words, width=width, **where) for width in (80, 300))
    assert max(map(len, lines)) <= 80
    assert Counter("".join("".join(wide).split())) == Counter("".join("".join(lines).split()))
    fields = set[str]()
    json.loads(tbloom(*words, "--json", **where).stdout, object_hook=fields.update)
    assert {*TABLES[line].split()} <= fields


def test_the_server_is_given_once(place: dict[str, str]) -> None:
    """By --url, or the environment: TBLOOM_URL before REDIS_URL; an empty variable counts as none. (cli#3630: in quotes.)"""
    url, elsewhere = place["TBLOOM_URL"], "redis://127.0.0.1:1/0"
    assert tbloom("info", "news", "--url", url, TBLOOM_URL=elsewhere).returncode == 0
    assert tbloom("info", "news", TBLOOM_URL=url, REDIS_URL=elsewhere).returncode == 0
    assert tbloom("info", "news", TBLOOM_URL="", REDIS_URL=url).returncode == 0
    assert tbloom("count", "list", TBLOOM_URL=url).returncode == 0
    assert tbloom("info", "news", TBLOOM_URL=url.replace("redis:", "valkey:")).returncode == 0
    refused(tbloom("info", "news", TBLOOM_URL=elsewhere), "127.0.0.1:1", "(TBLOOM_URL names")
    refused(tbloom("list", TBLOOM_URL="", REDIS_URL="http://x"), "tbloom: REDIS_URL: expected")
    quoted = tbloom("list", TBLOOM_URL="", REDIS_URL="'redis://:secret@127.0.0.1'")
    assert "secret" not in refused(quoted, "REDIS_URL: expected a URL without quotes")
    port = place["TBLOOM_URL"].rpartition(":")[2].partition("/")[0]
    for number, why in (port, "no filter 'x:tbloom' or 'x' on {} ("), ("1", "tbloom: {}: Error"):
        named = f"REDIS_HOST is 127.0.0.1, REDIS_PORT is {number}"
        words = "queue", "x", "-s", "REDIS_HOST=127.0.0.1", "-s", f"REDIS_PORT={number}"
        refused(tbloom(*words), why.format(named))
    # The secrets of the environment are not in the help.
    said = tbloom("info", "--help", TBLOOM_URL="redis://:secret@127.0.0.1").stdout
    assert ("redis://localhost:6379/0" in said, "secret" in said) == (True, False)


@pytest.mark.check
@pytest.mark.timeout(300)
def test_the_demo_keeps_its_promises(url: str, client: redis.Redis) -> None:
    """The example of its help: crawlers share all pages, and the second run fetches none. It leaves no key."""
    [example] = re.findall("Example: tbloom demo (.*)", tbloom("demo", "--help").stdout)
    done = tbloom("demo", *example.split(), REDIS_URL=url)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(re.findall(r"^(\S+(?: \S+)*) +([\d.]+ +[\d.]+)$", done.stdout, re.MULTILINE))
    shares = [rows[f"crawler {number}"].split() for number in (1, 2, 3, 4)]
    assert 300 == sum(int(first) for first, _ in shares)
    assert ["300", "0"] == rows["together"].split()
    assert ["0", "0"] == rows["of them twice"].split()
    assert client.keys("*tbloom-demo*") == []


def test_the_demo_starts_the_server_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server on PATH, it starts Valkey on a socket, and leaves no file."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("PATH", "")
    with open_redis() as (url, what), redis.Redis.from_url(url) as client:
        assert re.fullmatch(r"Valkey 9\.[\d.]+, started for this run", what)
        folder = Path(client.config_get("dir")["dir"])
        assert folder.exists()
    assert not folder.exists()
