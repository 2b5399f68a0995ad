"""``tbloom pages``: a page store on the command line. (The rest: recorded/pages.txt.)"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tbloom.pages import PageStore
from tbloom.pages.members import GZIP_MAGIC
from tests.helpers.commands import refused as refused_with
from tests.helpers.commands import started, tbloom_bytes
from tests.helpers.foreignwarcs import MEMBERS, record, response
from tests.helpers.pagestores import NOON, bodies, files, flip, url

URL = "https://example.com/"
AT = datetime(2019, 6, 3, 12, 30, 15, 250000, timezone.utc)
#: Characters that must not reach a terminal.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@dataclass
class Done:
    """The result of a command."""

    code: int
    out: bytes
    err: str


def run(*arguments: object, stdin: bytes = b"") -> Done:
    """``tbloom pages`` in this process."""
    done = tbloom_bytes("pages", *arguments, stdin=stdin)
    return Done(done.returncode, done.stdout, done.stderr.decode())


def refused(done: Done, *words: str) -> None:
    """The command ended with exit code 2 and one line on stderr, with these words."""
    refused_with(subprocess.CompletedProcess([], done.code, done.out.decode(), done.err), *words)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a new store."""
    return tmp_path / "pages"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store with three pages, one of which has a key, and with a replaced page."""
    with PageStore(path) as store:
        store.put(URL, b"old")
        store.put(URL, b"<p>one\n", headers={"Content-Type": "text/html"}, at=AT)
        store.put(f"{URL}two", b"", status=404, at=AT)
        store.put(f"{URL}search", b"\x00\xff\r\n", key=b"\x01three", at=AT)
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["https://example.com/\x1b[2J"], ["URL: ", r"\x1b[2J"]),
        (["https://example.com/\udcff"], ["URL: ", r"/\udcff'"]),
        ([URL, "--header", "A: b\nC: d"], ["--header: ", "without line breaks"]),
    ],
)
def test_put_refuses_what_no_shell_can_show(
    filled: Path, arguments: list[str], said: list[str]
) -> None:
    before = run("ls", filled, "--json").out
    refused(run("put", filled, *arguments), *said)
    assert before == run("ls", filled, "--json").out


def test_control_characters_of_urls_and_keys_are_not_printed(path: Path) -> None:
    """Such as escapes of eight bits, or text from right to left; the printed addresses work all the same."""
    addresses: list[tuple[str, str | bytes | None]] = [
        (f"{URL}\x9b2J", None),
        (f"{URL}\u202efdp.exe", None),
        (f"{URL}é/日本", None),
        (URL, "\x1b[2J"),
        (URL, f"{URL}\r\x1b[2J"),
        (URL, b"\xff\xfe"),
        (URL, "--json"),
        (URL, "key:00"),
        (URL, f"{URL}a page"),
        (URL, f"{URL}session"),
    ]
    with PageStore(path) as store:
        for number, (url, key) in enumerate(addresses):
            store.put(url, b"%d" % number, key=key)
    listed = run("ls", path).out.decode().splitlines()
    assert [f"{URL}é/日本", f"{URL}session"] == [one for one in listed if one[:4] != "key:"]
    bodies = [run("get", path, one).out for one in listed]
    assert [b"%d" % number for number in range(len(addresses))] == bodies
    for form in ([], ["--long"], ["--json"]):
        text = run("ls", path, *form).out.decode()
        assert (len(addresses), None) == (len(text.splitlines()), CONTROL.search(text))


def test_damage_is_found_and_named(filled: Path) -> None:
    """``verify`` prints a line for each problem; ``ls`` prints a warning, and the other pages; exit code 1."""
    with PageStore(filled) as store:
        store.put(f"{URL}large", random.Random(1).randbytes(20_000))
    assert Done(0, b"", "4 pages, 5 records: 0 problems\n") == run("verify", filled)
    assert Done(0, b"", "") == run("verify", filled, "--quiet")
    [segment] = files(filled)
    flip(segment, segment.stat().st_size - 10_000)
    done = run("verify", filled)
    [line] = done.out.decode().splitlines()
    place = re.match(rf"{segment}: the record at (\d+) is damaged: ", line)
    assert place
    last = place[1]
    assert (1, "4 pages, 5 records: 1 problem") == (done.code, done.err.splitlines()[-1])
    found = json.loads(run("verify", filled, "--json").out)
    assert {"pages": 4, "records": 5, "problems": [line]} == found
    done = run("ls", filled, "--long")
    assert (1, 3) == (done.code, len(done.out.splitlines()))
    assert re.fullmatch(rf"tbloom: {segment}: the record at {last} is damaged.*\n", done.err)
    done = run("ls", filled)
    assert (0, 4) == (done.code, len(done.out.splitlines()))
    refused(run("get", filled, f"{URL}large"), f"damaged at {last}", "tbloom pages rebuild")
    assert Done(0, b"<p>one\n", "") == run("get", filled, URL)
    flip(segment, segment.read_bytes().rindex(GZIP_MAGIC))
    done = run("rebuild", filled)
    assert (1, True) == (done.code, "bytes are no record" in done.err)


def test_beside_a_writer_others_read_and_do_not_write(filled: Path) -> None:
    """The writer is this process."""
    with PageStore(filled) as store:
        store.put(f"{URL}now", b"now")
        assert Done(0, b"now", "") == run("get", filled, f"{URL}now")
        assert 4 == len(run("ls", filled).out.splitlines())
        assert run("verify", filled).code == 0
        assert json.loads(run("stats", filled, "--json").out)["pages"] == 4
        for words in (["put", filled, URL], ["delete", filled, URL], ["rebuild", filled]):
            done = run(*words)
            refused(done, str(filled), f"is being written by process {os.getpid()}; close it there")
        store.put(f"{URL}now", b"later")
    assert Done(0, b"later", "") == run("get", filled, f"{URL}now")


def test_ls_prints_pages_as_it_finds_them(path: Path) -> None:
    """``tbloom pages ls PATH | head -1``: a reader that ends is no error."""
    with PageStore(path) as store:
        for number in range(1000):  # more than a pipe holds
            store.put(f"{URL}{number:0200}", b"")
    with started("pages", "ls", path, bufsize=0) as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.read(len(URL)) == URL.encode()
        running.stdout.close()
        assert running.wait() == 1
        assert running.stderr.read() == b""


# Import and export.

PAGES = [response(url(n), b"page %d" % n) for n in range(3)]
HAS = {url(n): b"page %d" % n for n in range(3)}


def bodies_of(path: Path) -> dict[str, bytes]:
    """All pages of a store."""
    with PageStore(path, readonly=True) as store:
        return bodies(store)


@pytest.fixture
def hourly(path: Path) -> Path:
    """Five pages, an hour apart; the last one has a key."""
    with PageStore(path) as store:
        for n in range(5):
            at, key = NOON + timedelta(hours=n), b"\x01" if n == 4 else None
            store.put(url(n), b"page %d" % n, at=at, key=key)
    return path


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """A WARC file with three pages, a request, and a damaged end."""
    file = tmp_path / "crawl.warc.gz"
    request = record("request", url(0), b"GET / HTTP/1.1\r\n\r\n")
    file.write_bytes(MEMBERS.packed([*PAGES, request, PAGES[0], b"garbage"]))
    return file


def test_import_counts_and_names_damage(path: Path, crawl: Path) -> None:
    """And bodies that are too long. Exit code 1, and a second time nothing changes."""
    place = gzip.decompress(crawl.read_bytes()).rindex(PAGES[0])
    damage = f"{crawl}: at {place} of its content: no record follows where it should end; what follows was not read\n"
    short = run("import", path, crawl, "--max-body", "5")
    assert "0 pages stored, 0 already there; skipped: 3 longer than max_body" in short.err
    for counts in ("3 pages stored, 0 already there", "0 pages stored, 3 already there"):
        done = run("import", path, crawl)
        assert (1, damage) == (done.code, done.out.decode())
        assert f"{counts}; skipped: 1 request, 1 damaged\n" in done.err
        assert HAS == bodies_of(path)


def test_import_from_several_sources(path: Path, tmp_path: Path) -> None:
    """WARC files, one of them on standard input; another store; into a store with a window."""
    (tmp_path / "1.warc").write_bytes(PAGES[1])
    with PageStore(tmp_path / "other") as other:
        other.put(url("other"), b"other")
    options = ["--codec", "zstd", "--granularity", "d", "--slices", 3]
    words = ["import", path, "-", tmp_path / "1.warc", *options, tmp_path / "other"]
    done = run(*words, stdin=PAGES[0])
    assert (0, b"") == (done.code, done.out)
    assert done.err.endswith("1 page stored, 0 already there; skipped: 2 outside the window\n")
    assert {url("other"): b"other"} == bodies_of(path)
    assert {".zst"} == {file.suffix for file in path.glob("*.warc*")}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], range(5)),
        ([url(1), "key:01"], [1, 4]),
        (["--since", "2019-06-10T13:00:00Z", "--until", "2019-06-10T15:00:00Z"], [1, 2]),
        (["--since", "2019-06-10", "--until", "2019-06-11"], range(5)),
    ],
)
def test_exported_pages_can_be_imported(
    hourly: Path, tmp_path: Path, words: list[str], expected: list[int]
) -> None:
    done = run("export", hourly, "-o", tmp_path / "some.warc.zst", *words)
    assert (0, b"") == (done.code, done.out)
    assert done.err.endswith(f"{len(expected)} pages written\n")
    assert run("import", tmp_path / "new", tmp_path / "some.warc.zst").code == 0
    with PageStore(hourly) as store, PageStore(tmp_path / "new") as new:
        assert [page for page in store.pages() if int(page.url[-1]) in expected] == [*new.pages()]
