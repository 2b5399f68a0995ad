"""``tbloom clear`` and ``migrate``: at a terminal, with two servers, and of crawls that change over to tbloom. (The
rest: recorded/changing.txt, migrate.txt.)"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from termios import TIOCSCTTY
from typing import Any

import pytest
import redis
import scrapy.squeues

from tbloom import TimeBloom
from tbloom.pages import PageStore
from tests.helpers.commands import refused, started, tbloom, tbloom_asking
from tests.helpers.schedulers import DONE

DATA = Path(__file__).parents[1] / "data"


def _interrupted(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command that asks on its terminal, where a user types Ctrl-C."""
    ours, terminal = pty.openpty()
    own: Any = {"start_new_session": True, "preexec_fn": partial(fcntl.ioctl, 0, TIOCSCTTY)}
    with os.fdopen(ours, "wb", 0) as user, os.fdopen(terminal, "rb") as stdin:
        running, said = started(*arguments, stdin=stdin, **own), b""
        while not said.endswith(b"[y/N]: ") and (more := running.stderr.read(1)):
            said += more
        user.write(b"\x03")
        said += running.communicate()[1]
    return running.returncode, said.decode()


def test_what_is_forgotten_is_asked_about(url: str, filled: TimeBloom) -> None:
    """Without an answer (Ctrl-D), or after Ctrl-C, nothing changes."""
    words = ["clear", "--url", url, filled.name]
    question = f"Forget the 250 items of '{filled.name}' on {url}? [y/N]: "
    for no in ("\n", "n\n", "\x04"):
        done = tbloom_asking(no, *words)
        assert (1, f"{question}tbloom: nothing was deleted\n") == (done.returncode, done.stderr)
    assert (130, f"{question}tbloom: interrupted\n") == _interrupted(*words)
    assert 250 == filled.info().items
    done = tbloom_asking("y\n", *words)
    assert (0, True) == (done.returncode, done.stderr.startswith(question))
    done = tbloom("info", "--url", url, filled.name)
    assert "no filter" in done.stderr


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param("add {0} {1} > {2}", rb"bytes .*100%", marks=pytest.mark.check),
        ("pages rebuild {2}.pages", rb"bytes .*100%"),
        ("add {0} {1} --quiet > {2}", b""),
        pytest.param("add {0} {1}", b"", marks=pytest.mark.check),
    ],
)
def test_a_long_command_shows_a_progress_bar_on_a_terminal(
    url: str, filled: TimeBloom, tmp_path: Path, command: str, shown: bytes
) -> None:
    """With rate and time left; not where its answers are printed on the same terminal, and not with --quiet."""
    with PageStore(tmp_path / "out.pages") as store:
        for number in range(20):
            store.put(f"https://example.com/{number}", b"a page")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {n:05}\n" for n in range(20_000)))
    line = command.format(filled.name, lines, tmp_path / "out")
    ours, terminal = pty.openpty()
    main = "from tbloom.cli import main; from tbloom.cli.kit import progress; progress._SHOWN_AFTER = 0; main()"
    shell = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(main)} {line}"
    with os.fdopen(ours, "rb", 0) as user:
        done = subprocess.Popen(
            ["sh", "-c", shell], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
            env={**os.environ, "TBLOOM_URL": url, "TERM": "xterm"},
        )  # fmt: skip
        os.close(terminal)
        said = b""
        with suppress(OSError):  # its end
            while data := user.read(1 << 16):
                said += data
        assert done.wait() == 0, said
    assert bool(shown) is (b"%" in said), said[-300:]
    assert re.search(shown, said, re.DOTALL), said[-300:]


@pytest.mark.parametrize(
    "scheme", ["redis", pytest.param("redis+cluster", marks=pytest.mark.check)]
)
def test_a_server_that_does_not_answer_is_named(scheme: str) -> None:
    """It takes connections, and hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        refused(tbloom("list", "--url", url), "--url", "TBLOOM_URL")


def migrated(url: str, name: str, *source: object) -> tuple[dict[str, int], str]:
    """Make a filter of a crawl; return what was counted, and said."""
    words = "--create", "--capacity", "1000", *source, "--json"
    done = tbloom("migrate", "--url", url, name, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_crawl_moves_over(crawl: Any, url: str, name: str, client: redis.Redis) -> None:
    """Of scrapy-redis: a crawl of 40 pages is interrupted, changed over by one command, and continued. Each page is fetched once,
    also what waits in the old crawl's queue. The source stays as it is. (With a JOBDIR: below.)"""
    key, pages = f"{name}:dupefilter", [str(i) for i in range(40)]
    old: dict[str, Any] = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "SCHEDULER_DUPEFILTER_KEY": key,
        "MAX_IDLE_TIME_BEFORE_CLOSE": 1,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    }
    new = {
        "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter",
        "REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter",
    }
    halt = {"CLOSESPIDER_PAGECOUNT": 15, "CONCURRENT_REQUESTS": 1}
    first = crawl("pages", {**old, **halt}, pages)["fetched"]
    left = client.smembers(key)
    migrated(url, name, "--from-set", key)
    second = crawl("pages", {**old, **new}, pages)["fetched"]
    assert {*first} < {*pages}
    assert sorted(first + second) == sorted(pages)
    assert left
    assert left == client.smembers(key)
    client.delete(key)


def test_a_requests_seen_that_two_releases_wrote(url: str, name: str) -> None:
    """scrapy#7943: three lines of Scrapy 2.13, then three records of 2.19."""
    file = DATA / "lines-then-records.seen"
    counts, _ = migrated(url, name, "--from-seen", file)
    assert counts == {"read": 6, "new": 6, "seen": 0, "lines": 3, "records": 3, "waiting": 0}
    with TimeBloom.open(url, name) as seen:
        written = file.read_bytes()
        assert seen.contains(bytes.fromhex(written[41:81].decode()))
        assert seen.contains(written[-20:])


#: What Scrapy's scheduler may keep its queue in.
DISK_QUEUES = [
    "PickleLifo", *(pytest.param(kind, marks=pytest.mark.check) for kind in ("PickleFifo", "MarshalLifo", "MarshalFifo"))
]  # fmt: skip


@pytest.mark.parametrize("kind", [*DISK_QUEUES, "SQLite"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_the_next_crawl_fetches_what_waits_in_a_jobdir(
    crawl: Any, url: str, name: str, tmp_path: Path, *, kind: str, goes_on: bool
) -> None:
    """It is counted, and not imported: each page is fetched once, with the JOBDIR and without it. The JOBDIR stays as it is."""
    queue = f"scrapy.squeues.{'PickleFifoSQLite' if kind == 'SQLite' else f'{kind}Disk'}Queue"
    if not hasattr(scrapy.squeues, queue.rpartition(".")[2]):
        pytest.skip("this Scrapy has no queue in SQLite")
    pages = [str(i) for i in range(40)]
    queues = dict.fromkeys(("SCHEDULER_DISK_QUEUE", "SCHEDULER_START_DISK_QUEUE"), queue)
    jobdir, halt = {"JOBDIR": str(tmp_path), **queues}, {"CLOSESPIDER_PAGECOUNT": 15}
    first = crawl("pages", {**jobdir, **halt, "CONCURRENT_REQUESTS": 2}, pages)["fetched"]
    before = contents(tmp_path)
    waiting = 40 - len(first)
    counts, said = migrated(url, name, "--from-seen", tmp_path)
    assert 40 == counts.pop("lines") + counts.pop("records")
    assert {"read": len(first), "new": len(first), "seen": 0, "waiting": waiting} == counts
    assert f"holds {waiting} requests. They are not imported: crawl with this JOBDIR" in said
    assert before == contents(tmp_path)
    second = crawl("pages", {**DONE, **(jobdir if goes_on else {})}, pages)["fetched"]
    assert waiting > 0
    assert sorted(first + second) == sorted(pages)
    assert [] == crawl("pages", DONE, pages)["fetched"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_retry_that_waits_in_a_jobdir_is_not_imported(
    crawl: Any, url: str, name: str, tmp_path: Path, *, goes_on: bool
) -> None:
    """It has ``dont_filter``; its fingerprint stands in requests.seen all the same. With the JOBDIR, a link to its page is
    fetched as well: there it looks like a retry of a request that is not filtered."""
    pages = [f"{'cut/once' if i % 2 else ''}{i}" for i in range(20)]
    jobdir = {"JOBDIR": str(tmp_path), "RETRY_ENABLED": True}
    halt = {"CLOSESPIDER_PAGECOUNT": 3, "CONCURRENT_REQUESTS": 1}
    first = crawl("pages", {**jobdir, **halt}, pages)["fetched"]
    counts, _ = migrated(url, name, "--from-seen", tmp_path)
    assert (len(first), 20 - len(first)) == (counts["read"], counts["waiting"])
    again = {**DONE, "RETRY_ENABLED": True, **(jobdir if goes_on else {})}
    second = crawl("pages", again, pages)["fetched"]
    twice = Counter(first + second) - Counter(pages)
    assert {*first, *second} == {*pages}
    assert goes_on or not twice
    assert all(page.startswith("cut/once") for page in twice)
    assert [] == crawl("pages", again, pages)["fetched"]


@pytest.mark.parametrize("named", ["", "requests.seen"])
def test_what_waits_in_a_killed_crawl_s_jobdir_is_lost(
    crawl: Any, url: str, name: str, tmp_path: Path, *, named: str
) -> None:
    """Without its active.json, Scrapy opens no queue before a request enters it. With all imported, "done" drops what it reads."""
    halt = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1}
    jobdir = {"JOBDIR": str(tmp_path)}
    first = crawl("pages", {**jobdir, **halt}, [*"abcdefgh"])["fetched"]
    if not named:
        (tmp_path / "requests.queue" / "active.json").unlink()  # as if it was killed
    _, said = migrated(url, name, "--from-seen", tmp_path / named)
    assert f"holds {8 - len(first)} requests" in said
    assert ("TBLOOM_MARK = 'scheduled'" if named else "was killed: only links lead to them") in said
    last = crawl("pages", {**DONE, **jobdir}, first)
    assert ([], "finished") == (last["fetched"], last["finish_reason"])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_jobdir_with_untold_waiting_requests_is_refused(
    crawl: Any, url: str, name: str, tmp_path: Path
) -> None:
    """Its fingerprints are those of another class, or its queue is damaged. To import all of its file is left to the user."""
    own = {
        "JOBDIR": str(tmp_path),
        "REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter",
    }
    crawl("pages", {**own, "CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1}, [*"abcdefgh"])
    command = "migrate", "--url", url, name, "--create", "--from-seen"
    refused(tbloom(*command, tmp_path), "lacks", "run this in the project's folder")
    for file in (tmp_path / "requests.queue").rglob("0s"):
        for broken in [file] if file.is_file() else file.glob("q*"):
            broken.write_bytes(broken.read_bytes()[:-1])
    refused(tbloom(*command, tmp_path), "expected a whole queue", "in place of its folder")
    assert tbloom("info", "--url", url, name).returncode != 0
    done = tbloom(*command, tmp_path / "requests.seen")
    assert (0, True) == (done.returncode, "What waits there counts as seen" in done.stderr)


def test_a_replica_that_takes_no_writes_is_named(own: redis.Redis, own_url: str, name: str) -> None:
    with TimeBloom.from_url(own_url, name) as seen:
        seen.add("a")
    own.replicaof("127.0.0.1", 1)
    try:
        done = tbloom("clear", "--yes", "--url", own_url, name)
    finally:
        own.replicaof("NO", "ONE")
    refused(done, f"{own_url} is a replica", "let --url, or TBLOOM_URL, name its master")
