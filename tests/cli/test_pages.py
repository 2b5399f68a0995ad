"""``tbloom pages``: a page store on the command line."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tbloom.cli.kit.progress import Reporter
from tbloom.pages import PageStore, members, page, record, segments
from tests.helpers.commands import process, started, tbloom_bytes
from tests.helpers.commands import refused as refused_with

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


#: Correct arguments after PATH, for each verb.
AFTER_PATH: dict[str, list[str]] = {
    "put": [URL],
    "export": ["-o", "/dev/null"],
    "get": [URL],
    "ls": [],
    "delete": [URL],
    "verify": [],
    "rebuild": [],
    "stats": [],
}


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


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def flip(path: Path, offset: int) -> None:
    """Changes a bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def segment_of(path: Path) -> Path:
    """The store's only segment."""
    [segment] = path.glob("*.warc.gz")
    return segment


def offsets(path: Path) -> list[int]:
    """The offset of each record of the store's only segment."""
    segment = segment_of(path)
    return [found.offset for found in segments.records(segment, 0, segment.stat().st_size)]


def test_a_page_comes_back_byte_for_byte(path: Path) -> None:
    """From standard input to standard output."""
    body = bytes(range(256)) * 1000
    done = process("pages", "put", path, URL, input=body)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = process("pages", "get", path, URL)
    assert (done.returncode, done.stdout, done.stderr) == (0, body, b"")


def test_a_process_that_is_stopped_as_it_writes_loses_nothing(path: Path) -> None:
    """Also where Python has no buffer: the system then ends a write in the middle."""
    body = random.Random(1).randbytes(1 << 20)
    with PageStore(path) as store:
        store.put(URL, body)
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with started("pages", "get", path, URL, env=unbuffered) as running:
        assert running.stdout
        found = running.stdout.read(1000)  # a pipe holds less than the rest
        for _ in range(5):
            running.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, running.pid, os.WSTOPPED)
            running.send_signal(signal.SIGCONT)
            found += running.stdout.read(50_000)
        found += running.stdout.read()
    assert (0, True) == (running.returncode, body == found)


def test_put_stores_all_parts_of_a_page(path: Path, tmp_path: Path) -> None:
    """The bytes of headers are stored as typed."""
    (tmp_path / "body").write_bytes(b"gone\n")
    header = ["--header", "A: 1", "--header", "b:é", "--header", "A: ", "--header", "X: a: b"]
    done = run("put", path, URL, "--status", 410, *header, "--at", "2019-06-03T14:30:15.250+02:00",
               tmp_path / "body")  # fmt: skip
    assert Done(0, b"", "") == done
    with PageStore(path, readonly=True) as store:
        found = store.get(URL)
    headers = (("A", "1"), ("b", "é".encode().decode("latin-1")), ("A", ""), ("X", "a: b"))
    assert page.Page(URL, 410, headers, b"gone\n", AT) == found


@pytest.mark.parametrize("file", [[], ["-"]])
def test_put_reads_standard_input(path: Path, file: list[str]) -> None:
    """A second page replaces the first one."""
    for body in (b"old", b"new"):
        assert Done(0, b"", "") == run("put", path, URL, "--at", AT.isoformat(), *file, stdin=body)
    assert Done(0, b"new", "") == run("get", path, URL)


def test_put_creates_a_store(path: Path) -> None:
    """Without parameters, the stored ones are used; other parameters are refused."""
    like = ["--granularity", "d", "--slices", "7", "--tz", "Europe/Berlin"]
    for more in (like, [], like):
        assert Done(0, b"", "") == run("put", path, URL, *more)
    printed = json.loads(run("stats", path, "--json").out)
    assert ("d", "Europe/Berlin", 1) == (printed["granularity"], printed["tz"], printed["pages"])
    before = run("ls", path, "--json").out
    refused(run("put", path, URL, *like[:3], "8"), str(path), "slices is 7 there and 8")
    assert before == run("ls", path, "--json").out


WRONG: list[tuple[list[str], list[str]]] = [
    (["example.com"], ["URL: ", "'example.com'"]),
    (["ftp://example.com"], ["URL: ", "'ftp://example.com'"]),
    (["https://example.com/a b"], ["URL: ", "without spaces"]),
    (["https://example.com/\x1b[2J"], ["URL: ", r"\x1b[2J"]),
    (["\udcff\udcfe\x01"], ["URL: ", r"'\udcff\udcfe\x01'"]),
    (["https://example.com/\udcff"], ["URL: ", r"/\udcff'"]),
    ([""], ["URL: ", "''"]),
    ([URL, "--status", "x"], ["--status", "'x'"]),
    ([URL, "--status", "99"], ["--status: ", "99"]),
    ([URL, "--header", "none"], ["--header: ", "'Name: value'", "'none'"]),
    ([URL, "--header", ": none"], ["--header: ", "a name without colons"]),
    ([URL, "--header", "A: b\nC: d"], ["--header: ", "without line breaks"]),
    ([URL, "--at", "noon"], ["--at: ", "such as 2026-11-16T12:00:00Z", "'noon'"]),
    ([URL, "--at", "2019-06-03T12:00:00"], ["--at: ", "with its zone"]),
    ([URL, "--at", "0001-01-01T00:00:00Z"], ["--at: ", "between the years"]),
    (
        [URL, "--at", "9000-01-01T00:00:00Z", "--granularity", "d", "--slices", "3"],
        ["--at: ", "before the next slice"],
    ),
    ([URL, "--at", AT.isoformat(), "--granularity", "d", "--slices", "3"], ["--at: ", "window"]),
    ([URL, "--granularity", "d"], ["--slices: ", "granularity is given"]),
    ([URL, "--slices", "3"], ["--granularity: ", "slices is given"]),
    ([URL, "--tz", "UTC"], ["--granularity: ", "tz is given"]),
    ([URL, "--granularity", "fortnight", "--slices", "3"], ["--granularity: ", "'fortnight'"]),
    ([URL, "--granularity", "d", "--slices", "0"], ["--slices: ", "0"]),
    ([URL, "--granularity", "d", "--slices", "x"], ["--slices", "'x'"]),
    ([URL, "--granularity", "d", "--slices", "3", "--tz", "Nowhere"], ["--tz: ", "'Nowhere'"]),
    ([URL, "/no/such"], ["/no/such: No such file"]),
    ([URL, "/"], ["/: Is a directory"]),
    ([URL, "-", "more"], ["more"]),
    ([URL, "--nosuch"], ["--nosuch"]),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_put_refuses_wrong_arguments_and_changes_nothing(
    path: Path, arguments: list[str], said: list[str]
) -> None:
    """No store is created, not even its folder."""
    refused(run("put", path, *arguments), *said)
    assert not path.exists()
    with PageStore(path) as store:
        store.put(URL, b"mine")
    before = files(path)
    refused(run("put", path, *arguments))
    assert before == files(path)


def test_put_refuses_a_body_that_is_too_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not read the whole body."""
    monkeypatch.setattr(page, "MAX_BYTES", 1 << 16)
    refused(run("put", path, URL, "/dev/zero"), "FILE: ", "at most 65536 bytes")
    assert not path.exists()
    assert Done(0, b"", "") == run("put", path, URL, stdin=bytes(1 << 16))


def test_put_into_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    refused(run("put", tmp_path, URL), "PATH: ", "a new or empty folder", str(tmp_path))
    refused(run("put", tmp_path / "file", URL), "PATH: ", "a folder", "file'")
    assert before == files(tmp_path)


@pytest.mark.parametrize("verb", [verb for verb in AFTER_PATH if verb != "put"])
def test_only_put_creates_a_store(verb: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nosuch"):
        refused(run(verb, path, *AFTER_PATH[verb]), "PATH: ", "page store", str(path))
    assert [] == [*tmp_path.iterdir()]


def test_get_writes_status_line_and_headers_like_curl(path: Path) -> None:
    with PageStore(path) as store:
        store.put(URL, b"body", status=299, headers=[("A", "1"), ("b", "é"), ("A", "")])
        store.put(f"{URL}moved", b"", status=301)
    head = "HTTP/1.1 299\r\nA: 1\r\nb: é\r\nA: \r\n\r\n"
    assert Done(0, head.encode("latin-1") + b"body", "") == run("get", path, URL, "--headers")
    head = "HTTP/1.1 301 Moved Permanently\r\n\r\n"
    assert Done(0, head.encode(), "") == run("get", path, "--headers", f"{URL}moved")


def test_get_decodes_a_body(path: Path) -> None:
    """Headers stay as stored; a body that can't be decoded is not written."""
    body = gzip.compress(b"<p>one\n")
    with PageStore(path) as store:
        store.put(URL, body, headers={"Content-Encoding": "gzip"})
        store.put(f"{URL}br", body, headers={"Content-Encoding": "br"})
    assert Done(0, body, "") == run("get", path, URL)
    assert Done(0, b"<p>one\n", "") == run("get", path, URL, "--decoded")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    assert Done(0, head + b"<p>one\n", "") == run("get", path, "--headers", URL, "--decoded")
    target = path.with_name("page.html")
    refused(run("get", path, f"{URL}br", "--decoded", "-o", target), "Content-Encoding is 'br'")
    assert not target.exists()
    refused(run("get", path, URL, "--json", "--decoded"), "--decoded", "--json")


def test_get_writes_all_but_the_body_as_json(path: Path) -> None:
    """A line like those of ``ls --json``."""
    with PageStore(path) as store:
        store.put(
            URL, b"body", headers={"A": "é"}, at=AT, key=b"\xff", fields={"WARC-IP-Address": "::1"}
        )
    done = run("get", path, "key:ff", "--json")
    assert done == run("ls", path, "--json")
    assert json.loads(done.out) == {
        "url": URL,
        "key": "ff",
        "status": 200,
        "headers": [["A", "é"]],
        "at": "2019-06-03T12:30:15.250000+00:00",
        "bytes": 4,
        "fields": [["WARC-IP-Address", "::1"]],
    }
    refused(run("get", path, "key:ff", "--json", "--headers"), "--headers", "--json")


def test_get_writes_a_whole_file_or_none(filled: Path, tmp_path: Path) -> None:
    """An existing file keeps its mode."""
    target = tmp_path / "page.html"
    assert run("get", filled, f"{URL}none", "-o", target).code == 1
    assert not target.exists()
    assert Done(0, b"", "") == run("get", filled, URL, "-o", target)
    assert target.read_bytes() == b"<p>one\n"
    target.chmod(0o600)
    assert Done(0, b"", "") == run("get", filled, f"{URL}two", "--output", target)
    assert (b"", 0o600) == (target.read_bytes(), stat.S_IMODE(target.stat().st_mode))
    refused(run("get", filled, URL, "-o", tmp_path / "no" / "such"), "such: No such file")


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_a_missing_page_is_an_error(verb: str, filled: Path) -> None:
    """Exit code 1 for a missing page; 2 for an address that no page can have."""
    for address in (f"{URL}none", URL.upper(), "example.com", "\x1b[2J", "key:00"):
        done = run(verb, filled, address)
        assert Done(1, b"", f"tbloom: no page {address!r} in {str(filled)!r}\n") == done
    for address, expected in (("", "not empty"), ("key:", "not empty"), ("key:0", "hex digits")):
        refused(run(verb, filled, address), "URL: ", expected)
    refused(run(verb, filled, "\udcff"), "URL: ", r"'\udcff'")


def test_delete_forgets_a_page(filled: Path) -> None:
    """By the address that ``ls`` prints; the second time, the page is missing."""
    for left, address in ((2, URL), (1, b"\x01three")):
        word = address if isinstance(address, str) else f"key:{address.hex()}"
        assert Done(0, b"", "") == run("delete", filled, word)
        assert run("delete", filled, word).code == 1
        with PageStore(filled, readonly=True) as store:
            assert (left, False) == (len(store), address in store)


def test_ls_prints_the_address_of_each_page(filled: Path) -> None:
    """``tbloom pages ls PATH | xargs -n 1 tbloom pages get PATH``"""
    listed = process("pages", "ls", filled).stdout
    assert listed == f"{URL}\n{URL}two\nkey:017468726565\n".encode()
    words = subprocess.run(["xargs", "-n", "1"], input=listed, capture_output=True, check=True)
    got = [run("get", filled, word).out for word in words.stdout.decode().splitlines()]
    assert got == [b"<p>one\n", b"", b"\x00\xff\r\n"]


def test_ls_long_tells_time_status_size_url_and_key(filled: Path) -> None:
    assert run("ls", filled, "--long").out.decode().splitlines() == [
        f"2019-06-03T12:30:15Z 200          7 {URL}",
        f"2019-06-03T12:30:15Z 404          0 {URL}two",
        f"2019-06-03T12:30:15Z 200          4 {URL}search key:017468726565",
    ]
    refused(run("ls", filled, "--long", "--json"), "--long", "--json")


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


def test_an_empty_store_has_nothing(path: Path) -> None:
    with PageStore(path):
        pass
    assert Done(0, b"", "") == run("ls", path)
    assert Done(0, b"", "0 pages, 0 records: no problems\n") == run("verify", path)
    assert json.loads(run("stats", path, "--json").out)["pages"] == 0
    assert b"0 pages, kept for ever" in run("stats", path).out


def test_verify_counts_pages_and_records(filled: Path) -> None:
    """On standard error; nothing with --quiet."""
    printed = "Verifying ...\n3 pages, 4 records: no problems\n"
    assert Done(0, b"", printed) == run("verify", filled)
    assert Done(0, b"", "") == run("verify", filled, "--quiet")


def test_damage_is_found_and_named(filled: Path) -> None:
    """``verify`` prints a line for each problem; ``ls`` prints a warning, and the other pages; exit code 1."""
    with PageStore(filled) as store:
        store.put(f"{URL}large", random.Random(1).randbytes(20_000))
    segment, last = segment_of(filled), offsets(filled)[-1]
    flip(segment, last + 10_000)
    done = run("verify", filled)
    [line] = done.out.decode().splitlines()
    assert line.startswith(f"{segment}: the record at {last} is damaged: ")
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


def test_a_missing_segment_is_found_and_named(filled: Path) -> None:
    segment = segment_of(filled)
    segment.unlink()
    done = run("verify", filled, "--quiet")
    first, second = done.out.decode().splitlines()
    assert f"{segment}: is missing" == first
    assert "the index has 3 pages, and 0" in second
    assert (1, "") == (done.code, done.err)
    refused(run("put", filled, URL), str(segment), "tbloom pages rebuild")


def test_ls_names_unreadable_bytes_and_files(path: Path) -> None:
    """Bytes that are no record, a file that was cut off, and a missing file; exit code 1."""
    with PageStore(path, segment_bytes=1) as store:
        for name in "abcd":
            store.put(f"{URL}{name}", b"body")
    first, second, third, _ = sorted(path.glob("*.warc.gz"))
    flipped, cut = ([*segments.records(one, 0, one.stat().st_size)][1] for one in (first, second))
    flip(first, flipped.offset)
    os.truncate(second, cut.offset + 20)
    third.unlink()
    done = run("ls", path)
    assert (1, f"{URL}d\n".encode()) == (done.code, done.out)
    assert [
        f"tbloom: {first}: at {flipped.offset}, {flipped.length} bytes are no record",
        f"tbloom: {second}: has {cut.offset + 20} bytes, and the index knows of {cut.offset + cut.length}",
        f"tbloom: {second}: at {cut.offset}, 20 bytes are no record",
        f"tbloom: {third}: is missing",
    ] == done.err.splitlines()


def test_control_characters_of_a_damaged_file_are_not_printed(path: Path) -> None:
    """A record with a wrong digest, in a valid gzip member."""
    with PageStore(path) as store:
        store.put(URL, b"body")
    begin = offsets(path)[1]
    segment = segment_of(path)
    data = segment.read_bytes()
    block = record.block_of(data[begin:])
    spoilt = re.sub(rb"Payload-Digest: sha1:....", b"Payload-Digest: sha1:\x1b[2\x07", block)
    segment.write_bytes(data[:begin] + members.member("gzip", spoilt))
    run("rebuild", path)
    done = run("verify", path)
    assert (1, 1) == (done.code, len(done.out.splitlines()))
    assert None is CONTROL.search(done.out.decode() + done.err)


def test_rebuild_makes_the_index_from_the_files(filled: Path) -> None:
    """All pages are listed again; their number is printed on standard error."""
    before = run("ls", filled, "--json")
    [index] = filled.glob("index-*.sqlite")
    index.unlink()
    refused(run("ls", filled), "has no index", "'tbloom pages rebuild'")
    done = run("rebuild", filled)
    assert re.fullmatch(
        r"Rebuilding \.\.\.\n3 pages, 4 records in 1 segment; index .* KB\n", done.err
    )
    assert (0, b"") == (done.code, done.out)
    assert before == run("ls", filled, "--json")
    assert Done(0, b"", "") == run("rebuild", filled, "--quiet")


def test_rebuild_names_the_bytes_that_it_cuts_off(filled: Path) -> None:
    """An incomplete record, as after a crash."""
    segment = segment_of(filled)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-3])
    done = run("rebuild", filled, "--quiet")
    assert done.code == 0
    last = offsets(filled)[-1]
    first, second = done.err.splitlines()
    assert first.startswith(f"tbloom: {segment}: at ")
    assert f"tbloom: {segment}: they are cut off" == second
    assert whole.startswith(segment.read_bytes())
    assert last < segment.stat().st_size < len(whole)
    assert 2 == len(run("ls", filled).out.splitlines())


def test_stats_prints_the_figures(filled: Path) -> None:
    """The table and the JSON have the same figures."""
    with PageStore(filled, readonly=True) as store:
        info = store.stats()
    printed = json.loads(run("stats", filled, "--json").out)
    sums = {name: printed[name] for name in ("path", "pages", "records", "segments", "bytes")}
    assert sums == {
        "path": str(filled), "pages": 3, "records": 4, "segments": 1, "bytes": info.bytes,
    }  # fmt: skip
    assert printed["index_bytes"] == info.index_bytes
    first, _, last = run("stats", filled).out.decode().splitlines()
    assert first == f"{filled}: 3 pages, kept for ever"
    assert re.fullmatch(
        r"4 records in 1 segment, [\d.]+ KB; index [\d.]+ KB; in all [\d.]+ KB per page", last
    )


def test_stats_has_a_line_for_each_slice(path: Path) -> None:
    now = datetime.now(timezone.utc)
    with PageStore(path, "d", 30) as store:
        for days, number in ((2, 1), (1, 2), (0, 3)):
            for page in range(number):
                store.put(f"{URL}{days}/{page}", b"", at=now - timedelta(days))
        info = store.stats()
    lines = [line.split() for line in run("stats", path).out.decode().splitlines()]
    assert lines[0][1:] == ["6", "pages,", "kept", "in", "slices", "of", "'d'", "(UTC)"]
    assert lines[2] == ["slice", "expires", "pages", "records", "segments", "size"]
    expected = [
        [slice.label, f"{slice.expires:%Y-%m-%d}", f"{number}", f"{number}", "1"]
        for slice, number in zip(info.slices, (1, 2, 3), strict=True)
    ]
    assert expected == [line[:5] for line in lines[3:6]]
    assert lines[6][:4] == ["window", "6", "6", "3"]


def test_beside_a_writer_others_read_and_do_not_write(filled: Path) -> None:
    """The writer is this process."""
    with PageStore(filled) as store:
        store.put(f"{URL}now", b"now")
        assert Done(0, b"now", "") == run("get", filled, f"{URL}now")
        assert 4 == len(run("ls", filled).out.splitlines())
        assert run("verify", filled).code == 0
        assert json.loads(run("stats", filled, "--json").out)["pages"] == 4
        for verb in ("put", "delete", "rebuild"):
            done = run(verb, filled, *AFTER_PATH[verb])
            refused(done, str(filled), f"is being written by process {os.getpid()}; close it there")
            assert done.err.endswith("; close it there\n")
        store.put(f"{URL}now", b"later")
    assert Done(0, b"later", "") == run("get", filled, f"{URL}now")


@pytest.fixture
def large(path: Path) -> Path:
    """A store with more URLs than a pipe holds."""
    with PageStore(path) as store:
        for number in range(1000):
            store.put(f"{URL}{number:0200}", b"")
    return path


@contextmanager
def listing(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``ls``, which has printed its first page, and then waits for the reader."""
    running = started("pages", "ls", path, bufsize=0)
    try:
        assert running.stdout
        assert running.stdout.read(len(URL)) == URL.encode()
        yield running
    finally:
        running.kill()
        running.communicate()


def test_ls_prints_pages_as_it_finds_them(large: Path) -> None:
    """``tbloom pages ls PATH | head -1``: a reader that ends is no error."""
    with listing(large) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        assert running.wait() == 1
        assert running.stderr.read() == b""


def test_ctrl_c_ends_ls(large: Path) -> None:
    with listing(large) as running:
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert (130, b"tbloom: interrupted\n") == (running.returncode, err)
    assert len(out.splitlines()) < 1000


@pytest.mark.parametrize("verb", ["verify", "rebuild"])
def test_ctrl_c_ends_what_takes_long(
    verb: str, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is unchanged, and the command can be run again."""
    began = Reporter.count

    @contextmanager
    def count(self: Reporter, *arguments: Any) -> Iterator[Callable[..., None]]:
        with began(self, *arguments) as advance:

            def interrupted(*done: int) -> None:
                advance(*done)
                signal.raise_signal(signal.SIGINT)

            yield interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "count", count)
        done = run(verb, filled)
    assert Done(130, b"", f"{verb.capitalize()}ing ...\ntbloom: interrupted\n") == done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert Done(0, b"<p>one\n", "") == run("get", filled, URL)
    assert run(verb, filled).code == 0
    assert run("delete", filled, URL).code == 0


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``tbloom`` where a package is not installed."""
    program = f"import sys; sys.modules[{package!r}] = None; from tbloom.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["isal"])
def test_a_package_that_is_missing_is_named(package: str) -> None:
    """With the command that installs it."""
    done = without(package, "pages", "ls", "pages")
    refused_with(done, f"'pages' needs {package}: pip install 'tbloom[pages]'")
