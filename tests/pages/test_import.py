"""WARC files of other tools go into a store; archives of four writers, changed at random: an import ends, stores or names what it
finds, and stays small."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import os
import random
import re
import shutil
import struct
import subprocess
import threading
import tracemalloc
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from io import BytesIO, FileIO
from pathlib import Path
from typing import BinaryIO

import pytest

from tbloom.pages import PagesImported, PageStore, export_warc, import_warc
from tbloom.pages.members import zstd
from tests.helpers import website
from tests.helpers.making import Child, missing
from tests.helpers.pagestores import CODECS, bodies, files, got, url

AT = datetime(2019, 6, 3, 4, 5, 6, tzinfo=UTC)
INFO = "<urn:uuid:11111111-2222-3333-4444-555555555555>"
DATE = "2019-06-03T04:05:06Z"
HEAD = b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n"


def record(kind: str, target: str, block: bytes, length: int | None = None, **fields: str) -> bytes:
    """A record with these further fields, whose names have _ for -."""
    known = {
        "WARC-Type": kind,
        "WARC-Record-ID": INFO,
        "WARC-Target-URI": target,
        "WARC-Date": DATE,
        "Content-Length": f"{len(block) if length is None else length}",
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in known.items() if value)
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def response(target: str, body: bytes, head: bytes = HEAD, **fields: str) -> bytes:
    """A response record."""
    return record("response", target, head + body, **fields)


def in_pieces(records: Iterable[bytes]) -> bytes:
    """Members of any length, as bgzip makes them."""
    whole = b"".join(records)
    pieces = [whole[at : at + 1_000] for at in range(0, len(whole), 1_000)]
    return b"".join(map(gzip.compress, [*pieces, b""]))


Form = Callable[[Iterable[bytes]], bytes]
#: Makes a file of its records.
FORMS: dict[str, Form] = {
    "plain": b"".join,
    "members": lambda records: b"".join(map(gzip.compress, records)),
    "one gzip": lambda records: gzip.compress(b"".join(records)),
    "zstd": lambda records: b"".join(map(zstd.compress, records)),
    "pieces": in_pieces,
    "WACZ": lambda records: in_zip({"archive/data.warc.gz": MEMBERS(records)}),
}
PLAIN, MEMBERS, ONE_GZIP, ZSTD, *_ = FORMS.values()


def in_forms(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("form", [pytest.param(FORMS[name], id=name) for name in names])


@pytest.fixture
def store(path: Path) -> PageStore:
    return PageStore(path)


def taken(store: PageStore, *records: bytes, form: Form = MEMBERS) -> PagesImported:
    """The result of importing a file of these records."""
    return import_warc(store, BytesIO(form(records)))


HTML = b"<html><title>page</title>\r\n\r\n5\r\n</html>\n" * 100
GZIP, IN_CHUNKS = ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")
#: What a server sends for each path: status, headers, and the body without the lengths of its chunks.
ANSWERS: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {
    "/plain": (200, [("Content-Type", "text/html; charset=utf-8")], HTML),
    "/empty": (200, [], b""),
    "/until-close": (200, [("Connection", "close")], HTML),
    "/missing": (404, [], b"not here"),
    "/moved": (301, [("Location", "/plain")], b"see plain"),
    "/chunked": (200, [IN_CHUNKS], random.Random(5).randbytes(300_000)),
    "/chunked/empty": (200, [IN_CHUNKS], b""),
    "/chunked/gzip": (200, [IN_CHUNKS, GZIP], gzip.compress(HTML)),
    "/chunked/twice": (200, [IN_CHUNKS], b"5\r\nhello\r\n0\r\n\r\n"),
    "/gzip": (200, [GZIP], gzip.compress(HTML)),
    "/untrue": (200, [GZIP], HTML),
    "/headers": (200, [("X-Latin", "M\xfcnchen \xff"), ("X-Empty", "")], b"x"),
    "/repeated": (200, [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("set-cookie", "a=1")], b"x"),
    "/a-record": (200, [], b"\r\n\r\nWARC/1.0\r\nWARC-Type: response\r\nContent-Length: 9\r\n\r\n"),
    "/?q=%41+b&c[]='%22": (200, [], b"odd"),
}  # fmt: skip


def sent(name: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """The answer to a path, with all headers but Date and Server."""
    status, headers, body = ANSWERS[name]
    has_length = IN_CHUNKS not in headers and name != "/until-close"
    length = [("Content-Length", str(len(body)))] if has_length else []
    return status, [*headers, *length], body


class Site(website.Handler):
    """Sends the answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits for 40 ms

    def get(self) -> None:
        status, headers, body = sent(self.path)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if IN_CHUNKS in headers:
            pieces = [body[at : at + 70_000] for at in range(0, len(body), 70_000)]
            body = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            body += b"0\r\nX-Trailer: 1\r\n\r\n"
        self.end_headers()
        self.wfile.write(body)


def by_wget(folder: Path, names: Iterable[str], *options: str) -> tuple[str, Path]:
    """The URL of the site, and the file that wget writes of these paths."""
    wget = shutil.which("wget")
    if wget is None:
        missing("wget")
    with website.served(Site) as site:
        urls = "".join(f"{site.url}{name}\n" for name in names)
        command = [wget, "-q", "--tries=1", "--warc-file=crawl", *options, "-Opage", "-i-"]
        subprocess.run(command, input=urls.encode(), cwd=folder, check=False)
    [file] = folder.glob("crawl.warc*")
    return site.url, file


@pytest.mark.parametrize("compression", [[], ["--no-warc-compression"]])
def test_pages_that_wget_fetched_are_as_the_server_sent_them(
    tmp_path: Path, path: Path, compression: list[str]
) -> None:
    """Each page, byte for byte: chunked, encoded, redirected, missing, empty, with any headers."""
    site, file = by_wget(tmp_path, ANSWERS, *compression)
    with PageStore(path) as store:
        done = import_warc(store, file)
        # (wget fetches pages again to which others lead; they are stored again if a second has passed.)
        assert (len(store), done.damaged) == (len(ANSWERS), ())
        assert done.skipped.keys() == {"request", "warcinfo", "metadata", "resource"}
        for name in ANSWERS:
            page = got(store, f"{site}{name}")
            kept = [pair for pair in page.headers if pair[0] not in {"Date", "Server"}]
            assert sent(name) == (page.status, kept, page.body)
            assert dict(page.fields)["WARC-IP-Address"] == "127.0.0.1"


@in_forms(*FORMS)
def test_every_form_has_the_same_pages(store: PageStore, form: Form) -> None:
    chance = random.Random(3)
    pages = {url(n): chance.randbytes(n * n) for n in range(60)}
    done = taken(store, *(response(url, body) for url, body in pages.items()), form=form)
    assert (PagesImported(60, 0, {}, ()), pages) == (done, bodies(store))


REPORTED = Path(__file__).with_name("reported")


def test_of_two_pages_with_the_same_time_the_last_in_the_file_is_stored(store: PageStore) -> None:
    """Within a source: wget keeps the 302 or 401 before the page. What the store had from this time stays."""
    login = response(url(1), b"log in", b"HTTP/1.1 401 Unauthorized\r\n\r\n")
    between = [response(url(f"between-{n}"), b"x") for n in range(600)]  # of several batches
    records = [login, *between, response(url(1), b"page")]
    assert PagesImported(601, 0, {}, (), 1) == taken(store, *records)
    assert (200, b"page") == (got(store, url(1)).status, got(store, url(1)).body)
    assert PagesImported(0, 602, {}, ()) == taken(store, *records)
    assert PagesImported(0, 1, {}, ()) == taken(store, response(url(1), b"another"))
    assert b"page" == got(store, url(1)).body


PROFILE = "http://netpreserve.org/warc/1.0/revisit/identical-payload-digest"


def revisit(target: str, to: str, body: bytes, **fields: str) -> bytes:
    """The record of a revisit with this body, which another URL has."""
    fields = {"WARC_Payload_Digest": f"sha1:{sha1(body)}", **fields}
    fields |= {"WARC_Profile": PROFILE, "WARC_Refers_To_Target_URI": to}
    return record("revisit", target, b"HTTP/1.1 203 X\r\nB: 2\r\n\r\n", **fields)


def test_a_revisit_without_its_body_is_counted(store: PageStore) -> None:
    """The body is missing, or another one; or the revisit has another profile, or is no GET."""
    digest = {"WARC_Payload_Digest": "sha1:AAAA"}
    done = taken(
        store,
        response(url(1), b"one"),
        revisit(url(2), url("none"), b"one"),
        revisit(url(3), url(1), b"another"),
        record("revisit", url(4), HEAD, WARC_Profile="server-not-modified"),
        revisit(url(6), url(1), b"", **digest),
        revisit(url(7), url(1), b"one", WARC_Record_ID="<urn:uuid:7>"),
        record("request", url(7), b"POST / HTTP/1.1\r\n\r\n", WARC_Concurrent_To="<urn:uuid:7>"),
    )
    assert {url(1): b"one"} == bodies(store)
    assert {"revisit": 4, "request": 1, "not GET": 1} == done.skipped


BODY = b"\r\n\r\nbody\n\n"
HEADS = [
    (b"\r\n\r\nHTTP/1.1 200 OK\r\nA: 1\r\n\r\n", 200, (("A", "1"),)),
    (b"HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 302 \nA: 1\n\n", 302, (("A", "1"),)),
    (b"HTTP/1.0 404\r\n\r\n", 404, ()),
    (b"HTTP 200 Document follows\r\n\r\n", 200, ()),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: 1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200, ()),
    (b"HTTP/2 200 \r\nA:1\r\n\r\n", 200, (("A", "1"),)),
    (b"HTTP/1.1 200 OK\nA: 1\nB:\t2 \n\n", 200, (("A", "1"), ("B", "2"))),
    (b"HTTP/1.1 200 OK\r\nA: 1\r\n  2\r\n\t3\r\nB: 4\r\n\r\n", 200, (("A", "1 2 3"), ("B", "4"))),
    (b"HTTP/1.1 200 OK\r\nno colon\r\nA: b:c\r\n: none\r\n\r\n", 200, (("A", "b:c"),)),
    (b"http/1.1 200 OK\r\nA: \x00\r\nB:2\r\n\x01: 3\r\n\r\n", 200, (("B", "2"),)),
    (b"HTTP/1.1 200 OK\r\nA : \xc3\xa0\r\nB: \xa0x\x85\r\n\r\n", 200, (("A", "\xc3\xa0"), ("B", "\xa0x\x85"))),
]  # fmt: skip
#: Bodies with a header that says that they are chunked, and what is left of them.
CHUNKED = [
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"005;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n", b"hello0123456789"),
    (b"5\nhello\n0\n\n", b"5\nhello\n0\n\n"),
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n", b"hello"),
    (b"<html>the tool has removed them</html>", b"<html>the tool has removed them</html>"),
    (b"5\r\nhello, no chunk", b"5\r\nhello, no chunk"),
]
#: The same with a digest. A crawler has digested the chunks with their lengths, or without.
DIGESTED = [
    (b"5\r\nbeans\r\n0\r\n\r\n", b"5\r\nbeans\r\n0\r\n\r\n", b"beans"),
    (b"5\r\nbeans\r\n0\r\n\r\n", b"beans", b"beans"),
]  # fmt: skip


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def chunked(body: bytes, digested: bytes | None = None) -> bytes:
    """A response whose header says that its body is chunked."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    if digested is None:
        return response(url("a"), body, head)
    return response(url("a"), body, head, WARC_Payload_Digest=f"sha1:{sha1(digested)}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            (response(url("a"), BODY, head), {"status": status, "headers": headers, "body": BODY})
            for head, status, headers in HEADS
        ),
        *(
            (chunked(raw), {"body": body, "headers": (("Transfer-Encoding", "Chunked"),)})
            for raw, body in CHUNKED
        ),
        *((chunked(raw, digested), {"body": body}) for raw, digested, body in DIGESTED),
    ],
)
def test_responses_as_servers_send_them_and_tools_store_them(
    store: PageStore, given: bytes, expected: dict[str, object]
) -> None:
    """Heads of any form (jwarc#25, warcio#141), and chunks (warcio#74, pywb#584)."""
    assert taken(store, given).stored == 1
    page = got(store, url("a"))
    assert expected == {name: getattr(page, name) for name in expected}


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"PROPFIND"])
def test_an_answer_to_another_method_than_get_is_not_stored(
    store: PageStore, method: bytes, is_first: bool
) -> None:
    """It does not take the place of the page; the request stands before it, or behind it and another record."""
    first, second = {"WARC_Record_ID": "<urn:uuid:a>"}, {"WARC_Record_ID": "<urn:uuid:b>"}
    (first if is_first else second)["WARC_Concurrent_To"] = f"<urn:uuid:{'b' if is_first else 'a'}>"
    request = record("request", url(1), method + b" /1 HTTP/1.1\r\n\r\n" + bytes(100), **second)
    answer = response(url(1), b"answer", WARC_Date="2019-06-04T04:05:06Z", **first)
    other = record("metadata", url(1), b"a: b\r\n")
    pair = [request, answer] if is_first else [answer, other, request]
    done = taken(store, response(url(1), b"page"), *pair, response(url(2), b"2"))
    is_get = method == b"GET"
    assert {url(1): b"answer" if is_get else b"page", url(2): b"2"} == bodies(store)
    assert (2 + is_get, None if is_get else 1) == (done.stored, done.skipped.get("not GET"))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (response(url(1), b"par", b"HTTP/1.1 206 Partial Content\r\n\r\n"), "status 206"),
        (response(url(1), b"", b"HTTP/1.1 304 Not Modified\r\n\r\n"), "status 304"),
        (response("http://", b""), "refused: url"),
        (response(url("a"), b"", HEAD[:-2] + b"A:\n" * 90_000 + b"\r\n"), "long headers"),
        (response(url("a"), b"", HEAD + bytes(300), X_A="a\r\nB:" * 20_000), "damaged"),
        (response(url("a"), b"", WARC_Date="2019-02-30T00:00:00Z"), "damaged"),
        (response(url("a"), b"", b"HTTP/1.1 099 OK\r\n\r\n"), "refused: status"),
        (response("ftp://example.com/", b""), "not HTTP"),
        (response(url("a"), b"", b"ICY 200 OK\r\n\r\n"), "not HTTP"),
        (response(url("a"), b"", WARC_Segment_Number="1"), "in several records"),
        (record("continuation", url("a"), b"more"), "continuation"),
        (record("\x1b[2J", url("a"), b""), "other"),
    ],
)
def test_records_that_are_no_pages_are_counted(store: PageStore, given: bytes, kind: str) -> None:
    """The pages around it are stored."""
    done = taken(store, response(url(1), b"1"), given, response(url(2), b"2"))
    assert (2, 0, {kind: 1}) == (done.stored, done.present, done.skipped)
    assert (kind == "damaged") == len(done.damaged)
    assert {url(1): b"1", url(2): b"2"} == bodies(store)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("https://example.com/a b\tc", "https://example.com/a%20b%09c"),
        ("HTTPS://Example.com/?q= \xe9", "https://Example.com/?q=%20\xe9"),
        ("<http://example.com/\u3000>", "http://example.com/%E3%80%80"),
    ],
)
def test_a_url_as_crawlers_write_it_is_encoded(store: PageStore, written: str, stored: str) -> None:
    """webarchive-discovery#159: some versions of wget put it into angle brackets."""
    again = revisit(url(1), written, b"page")
    assert PagesImported(2, 0, {}, ()) == taken(store, response(written, b"page"), again)
    assert {stored: b"page", url(1): b"page"} == bodies(store)


PAGES = [response(url(n), random.Random(n).randbytes(700)) for n in range(6)]


@in_forms("plain", "members", "zstd")
@pytest.mark.parametrize(
    "damage", [b"garbage", b"\1" * 100_000, 1, 40, 500], ids=lambda damage: str(damage)[:9]
)
def test_a_file_is_read_on_behind_damage(store: PageStore, form: Form, damage: bytes | int) -> None:
    """Curator#2373: its place is named, where a record is cut or something else stands between two. The next file is read."""
    parts = [form([page]) for page in PAGES]
    wrong = parts[3][:damage] if isinstance(damage, int) else damage + parts[3]
    done = import_warc(store, BytesIO(b"".join([*parts[:3], wrong, parts[4]])), BytesIO(parts[5]))
    read = {url(n) for n in (0, 1, 4, 5) + (3,) * isinstance(damage, bytes)}
    # In a plain file, the record before foreign bytes may be one with a wrong length.
    assert read <= set(store) <= read | {url(2)}
    assert form is PLAIN or url(2) in store
    *_, where = done.damaged
    ends = [sum(map(len, parts[:n])) for n in range(5)]
    assert re.fullmatch(rf"the file: (behind the record )?at ({ends[2]}|{ends[3]}): .*; read on at \d+", where)  # fmt: skip
    assert {"damaged": 1} == done.skipped


def test_a_page_with_a_right_digest_is_whole_before_foreign_bytes(store: PageStore) -> None:
    """In a plain file, where nothing else tells; a record in its body is not taken for one of the file."""
    inner = response(url("inner"), b"forged")
    pages = [response(url(n), inner, WARC_Payload_Digest=f"sha1:{sha1(inner)}") for n in range(2)]
    done = taken(store, pages[0], b"garbage", pages[1], b"other bytes", form=PLAIN)
    assert {url(0): inner, url(1): inner} == bodies(store)
    assert (2, {"damaged": 2}) == (len(done.damaged), done.skipped)


@in_forms("plain", "members", "zstd")
@pytest.mark.parametrize("wrong", [b"1", b"99", b"9999", b"99999999", b"x", b"-1", b"9" * 5_000])
def test_a_wrong_record_length_damages_one_record_only(
    store: PageStore, form: Form, wrong: bytes
) -> None:
    """Also one that is behind others, or the end of the file."""
    bad = [re.sub(rb"(Content-Length: )\d+", rb"\g<1>" + wrong, page) for page in PAGES]
    done = taken(store, bad[0], *PAGES[1:3], bad[0], PAGES[3], form=form)
    assert {url(1), url(2), url(3)} == set(store)
    assert (3, {"damaged": 2}, 2) == (done.stored, done.skipped, len(done.damaged))


def test_many_damaged_records_end(store: PageStore) -> None:
    """Though each claims to be as long as all, so that all is read again for each."""
    page = response(url("a"), b"x", Content_Length=f"{1 << 20}")
    done = taken(store, PAGES[0], page * 20_000, form=PLAIN)
    assert (1, {"damaged": 1}) == (done.stored, done.skipped)
    assert done.damaged[0].endswith("what follows was not read")


@in_forms("plain", "members", "zstd")
def test_a_file_that_is_cut_anywhere_ends(store: PageStore, form: Form) -> None:
    """warcio#138: a killed crawler or a broken download leaves such files."""
    data = form(PAGES[:2])
    size = len(form(PAGES[:1]))
    for end in range(0, len(data), 23):
        done = taken(store, data[:end], form=PLAIN)
        assert done.stored + done.present >= (end >= size)
        #: Only the end of a record may be missing, or the start of a gzip member.
        is_whole = any(-10 <= end - each <= 10 for each in (size, len(data)))
        assert is_whole or len(done.damaged) == 1


@in_forms("plain", "members")
@pytest.mark.parametrize("body", [b"body", b"4\r\nbody\r\n0\r\n\r\n"])
def test_one_digest_that_fits_is_enough(store: PageStore, form: Form, body: bytes) -> None:
    """``warcio recompress`` writes headers anew, and keeps the block's digest; wget hashes the lengths of chunks, too."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    old = {"WARC_Block_Digest": f"sha1:{sha1(b'another head' + body)}"}
    right, wrong = f"sha1:{sha1(b'body')}", f"sha1:{sha1(b'bodY')}"
    fits = response(url(1), body, head, WARC_Payload_Digest=right, **old)
    changed = response(url(2), body, head, WARC_Payload_Digest=wrong, **old)
    misread = response(url(3), body, head, WARC_Payload_Digest=wrong)
    of_chunks = response(url(4), body, head, WARC_Payload_Digest=f"sha1:{sha1(body)}")
    done = taken(store, fits, changed, misread, of_chunks, form=form)
    assert dict.fromkeys(map(url, (1, 3, 4)), b"body") == bodies(store)
    assert ({"damaged": 1}, {"wrong digest": 1}) == (done.skipped, done.noted)


@pytest.mark.parametrize("algorithm", ["sha1", "sha-256", "md5", "SHA-512"])
def test_a_digest_in_any_form_is_compared(store: PageStore, algorithm: str) -> None:
    """Base 32 or 16 in any letters, or base 64, also that of URLs. (brozzler#213: some write base 16.)"""
    for number in range(9):  # some have + or / in base 64
        body = b"%d" % number
        found = hashlib.new(algorithm.replace("-", ""), HEAD + body, usedforsecurity=False).digest()
        forms = [base64.b32encode(found), base64.b32encode(found).lower(), base64.b16encode(found), base64.b16encode(found).lower(), base64.b64encode(found), base64.urlsafe_b64encode(found)]  # fmt: skip
        for form in forms:
            right = f"{algorithm}:{form.decode()}"
            for digest in right, right.rstrip("="):
                fits = response(url(number), body, WARC_Block_Digest=digest)
                wrong = response(url("wrong"), body + b"!", WARC_Block_Digest=digest)
                assert {"damaged": 1} == taken(store, fits, wrong).skipped
    assert {url(number) for number in range(9)} == set(store)


@pytest.mark.parametrize(
    "value", ["sha1:AB2CD3EF4GH5IJ6KL7MN8OPQ", "sha1:", "none:AAAA", "?", "md5:" + "A" * 32 * 9]
)
def test_a_page_with_a_malformed_digest_is_stored(store: PageStore, value: str) -> None:
    """The standard's own examples are none (warc-specifications#64, #110)."""
    assert taken(store, response(url(1), b"page", WARC_Block_Digest=value)).stored == 1


def in_zip(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A ZIP file of these files."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


WACZ = in_zip({"datapackage.json": b"{}", "archive/data.warc.gz": MEMBERS(PAGES)})

OTHERS = [
    (b"", "it has no WARC record"),
    (gzip.compress(b""), "it has no WARC record"),
    (b"WARC", "nothing of it can be read"),
    (random.Random(5).randbytes(100_000), "nothing of it can be read"),
    (b" <!DOCTYPE html>\n", "nothing of it can be read"),
    (PAGES[0][:300], "nothing of it can be read"),
    (WACZ[:-30], "damaged or cut .*: repair it with zip -FF"),
    (in_zip({"datapackage.json": b"{}"}), "a ZIP file without WARC files"),
    (in_zip({"a.warc": b""}), "a.warc: it has no WARC record"),
    (
        in_zip({"a.warc": PAGES[0]}, zipfile.ZIP_DEFLATED),
        "a.warc: it is compressed or encrypted: extract it",
    ),
]


@pytest.mark.parametrize(("data", "why"), OTHERS, ids=[why for _, why in OTHERS])
def test_a_file_that_is_no_warc_file_holds_up_no_others(
    store: PageStore, tmp_path: Path, data: bytes, why: str
) -> None:
    """It is named; the files before and behind it are imported."""
    for name, content in ("1", MEMBERS(PAGES[:3])), ("bad", data), ("2", MEMBERS(PAGES[3:])):
        (tmp_path / name).write_bytes(content)
    done = import_warc(store, *(tmp_path / name for name in ("1", "bad", "2")))
    assert {url(n) for n in range(6)} == set(store)
    assert {"unreadable file": 1} == done.skipped
    [where] = done.damaged
    assert re.fullmatch(rf"{tmp_path / 'bad'}: .*{why}.*", where)


def test_what_a_zip_files_directory_leaves_out_is_named(store: PageStore) -> None:
    """Two files in one, as by ``cat``: zipfile finds the last directory, and says nothing of what stands before."""
    first, second = (
        in_zip({"a.warc.gz": MEMBERS(PAGES[:1])}),
        in_zip({"b.warc.gz": MEMBERS(PAGES[1:])}),
    )
    done = import_warc(store, BytesIO(first + second))
    assert ({"unreadable file": 1}, 5) == (done.skipped, done.stored)
    assert f"its directory leaves out what stands before offset {len(first)}: " in done.damaged[0]


def test_no_archive_in_a_zip_file_is_passed_over(store: PageStore) -> None:
    """Whatever follows in its name: crawlers that were killed leave ``.open``, and a second download ``.1``."""
    files = {f"archive/{n}.warc.gz{end}": MEMBERS([PAGES[n]]) for n, end in enumerate(["", ".open", ".1", ".part"])}  # fmt: skip
    others = {"pages.jsonl": b"", "warc.txt": b""}  # fmt: skip
    done = import_warc(store, BytesIO(in_zip({**files, **others, "b.wacz": WACZ})))
    assert (4, {"unreadable file": 1}) == (done.stored, done.skipped)
    assert "b.wacz: it is a file of files: extract it first" in done.damaged[0]


def test_files_that_overlap_in_a_zip_file_are_read_once(store: PageStore) -> None:
    """As in a ZIP bomb: each of its names means the same bytes."""
    files = bytearray(in_zip({"1.warc": PLAIN(PAGES), "2.warc": b""}))
    directory = files.index(b"PK\x01\x02")
    entry = files[directory : files.index(b"PK\x01\x02", directory + 1)]
    end = files[files.index(b"PK\x05\x06") :]
    end[8:12] = struct.pack("<HH", 1_000, 1_000)
    end[12:16] = struct.pack("<L", 1_000 * len(entry))
    done = import_warc(store, BytesIO(files[:directory] + entry * 1_000 + end))
    assert (6, 0) == (done.stored, done.present)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_zstd_file_with_a_dictionary_is_read(store: PageStore, *, is_packed: bool) -> None:
    """As Archive Team's crawlers write them: the dictionary stands in the first frame, perhaps compressed itself."""
    pages = [response(url(n), random.Random(n).randbytes(500).hex().encode()) for n in range(300)]
    dictionary = zstd.train_dict(pages, 100_000)
    content = dictionary.dict_content
    first = zstd.compress(content) if is_packed else content
    frames = [zstd.compress(page, zstd_dict=dictionary) for page in pages]
    start = bytes.fromhex("5d2a4d18") + len(first).to_bytes(4, "little") + first
    assert PagesImported(300, 0, {}, ()) == taken(store, start, *frames, form=PLAIN)
    done = taken(store, start, *frames[:9], b"garbage", *frames[9:], form=PLAIN)
    assert (300, {"damaged": 1}) == (done.present, done.skipped)
    [where] = taken(store, start[:8], b"no dictionary", *frames, form=PLAIN).damaged
    assert "Invalid dictionary" in where


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_archives_in_a_zip_file_are_imported(
    store: PageStore, tmp_path: Path, *, is_cut: bool
) -> None:
    """A WACZ file, or another one that does not compress them. One that is not where the file says is named."""
    files = {
        "datapackage.json": b"{}",
        "my crawl/archive/1.warc.gz": MEMBERS(PAGES[:2]),
        "2.warc": PLAIN(PAGES[2:4]),
        "archive/3.warc.zst": ZSTD(PAGES[4:]),
        "pages/pages.jsonl": b'{"format": "json-pages-1.0"}',
    }
    data = in_zip(files)
    if is_cut:
        at = data.index(b"2.warc") - 30
        data = data[:at] + bytes(4) + data[at + 4 :]
    (tmp_path / "crawl.wacz").write_bytes(data)
    done = import_warc(store, tmp_path / "crawl.wacz")
    assert {url(n) for n in (0, 1, 4, 5) + (2, 3) * (not is_cut)} == set(store)
    why = f"{tmp_path / 'crawl.wacz'}: 2.warc: it is not where the ZIP file says: repair it with zip -FF FILE --out NEW first"
    assert [why] * is_cut == [*done.damaged]


@pytest.mark.parametrize("flags", [4 | 8, 2, 2 | 4 | 8])
def test_a_gzip_header_may_lie_across_two_readings(store: PageStore, flags: int) -> None:
    """Given in two parts, one with a checksum, or an extra field (of the Internet Archive) and a name, is too much for isal 1.9.1."""
    head = bytes([31, 139, 8, flags, 0, 0, 0, 0, 0, 255])
    head += struct.pack("<H2sHII", 12, b"sl", 8, 0, 1) * bool(flags & 4) + b"name.warc\0" * bool(
        flags & 8
    )
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) * bool(flags & 2)
    second = head + gzip.compress(PAGES[0])[10:]
    for before in range(1, len(head)):
        first = gzip.compress(response(url("first"), random.Random(1).randbytes(32_000)))
        named = 32_768 - before - len(first) - 1  # the length of its name
        first = first[:3] + bytes([8]) + first[4:10] + b"a" * named + b"\0" + first[10:]
        done = taken(store, first, second, form=PLAIN)
        assert ({}, 2) == (done.skipped, done.stored + done.present), before


def test_a_file_that_can_t_be_opened_holds_up_no_others(store: PageStore, tmp_path: Path) -> None:
    """It is missing, or a folder."""
    (tmp_path / "good.warc").write_bytes(PLAIN(PAGES))
    done = import_warc(store, tmp_path / "none", tmp_path, tmp_path / "good.warc")
    assert (6, {"unreadable file": 2}) == (done.stored, done.skipped)
    none, folder = done.damaged
    assert f"{tmp_path / 'none'}: No such file or directory" == none
    assert "it is a folder: give its WARC files; export a page store" in folder


@pytest.mark.parametrize("codec", CODECS)
def test_the_files_of_a_store_are_refused(store: PageStore, tmp_path: Path, codec: str) -> None:
    """They have deleted and replaced pages, too. An export has none of these."""
    with PageStore(tmp_path / "own", codec=codec) as own:
        own.put(url(1), b"first")
        own.put(url(1), b"second", at=AT)
        own.put(url(2), b"deleted")
        own.delete(url(2))
        (tmp_path / "export.warc").write_bytes(exported(own))
    given = [*files(tmp_path / "own"), tmp_path / "own", tmp_path / "export.warc"]
    done = import_warc(store, *given)
    assert {url(1): b"second"} == bodies(store)
    assert len(given) - 1 == done.skipped["unreadable file"] == len(done.damaged)
    assert all("export" in where for where in done.damaged)


def piped(data: bytes) -> BinaryIO:
    """A pipe with these bytes, which has no path."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as file:  # noqa: PTH123
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return open(reader, "rb")  # noqa: PTH123


def test_a_pipe_is_read_like_a_file(store: PageStore, tmp_path: Path) -> None:
    """Also behind damage, and one with a path."""
    with piped(MEMBERS(PAGES[:3]) + b"garbage" + MEMBERS(PAGES[3:])) as file:
        done = import_warc(store, file)
    assert (6, {"damaged": 1}) == (done.stored, done.skipped)
    os.mkfifo(tmp_path / "pipe")
    with Child(lambda: (tmp_path / "pipe").write_bytes(MEMBERS(PAGES))):
        assert 6 == import_warc(store, tmp_path / "pipe").present


class Unreadable(FileIO):
    """A file on a disk that fails after its first bytes."""

    def read(self, _: int | None = -1) -> bytes:
        if self.tell() >= 1 << 13:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(1 << 13)


def test_a_file_that_can_t_be_read_on_holds_up_no_others(store: PageStore, tmp_path: Path) -> None:
    bad = tmp_path / "bad.warc"
    bad.write_bytes(PLAIN([*PAGES, response(url("long"), bytes(100_000))]))
    done = import_warc(store, Unreadable(bad), BytesIO(PLAIN(PAGES)))
    assert (6, 6, {"unreadable file": 1}) == (done.stored, done.present, done.skipped)
    assert (f"{bad}: Input/output error",) == done.damaged


def exported(store: PageStore) -> bytes:
    out = BytesIO()
    export_warc(store, out)
    return out.getvalue()


@pytest.mark.parametrize("form", [MEMBERS, ZSTD])
def test_a_small_file_that_unpacks_to_much_takes_little_memory(
    store: PageStore, form: Form
) -> None:
    """Too long bodies are counted; pages with many headers go into the store one by one."""
    many = HEAD[:-2] + b"A:\n" * 10_000 + b"\r\n"
    records = [response(url(n), b"", many) for n in range(4)]
    records += [response(url(size), bytes(size)) for size in (1 << 20, (1 << 20) + 1, 64 << 20)]
    file = BytesIO(form(records))
    del records
    tracemalloc.start()
    done = import_warc(store, file, max_body=1 << 20)
    assert PagesImported(5, 0, {"longer than max_body": 2}, ()) == done
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.timeout(120)  # it was ten minutes
def test_a_very_long_chunk_length_is_read_once(store: PageStore) -> None:
    assert taken(store, chunked(b"0" * (20 << 20) + b"x")).stored == 1


def of_tbloom(path: Path) -> bytes:
    """What an export has written."""
    out = BytesIO()
    with PageStore(path / "tbloom") as store:
        for n, body in enumerate(
            [b"", b"<html>page</html>\r\n\r\n" * 30, random.Random(1).randbytes(3_000)]
        ):
            store.put(url(n), body, headers={"Content-Type": "text/html"}, key=b"key"[n:] or None)
        export_warc(store, out)
    return gzip.decompress(out.getvalue())


def of_wget(path: Path) -> bytes:
    names = ("/plain", "/chunked/gzip", "/repeated")
    return by_wget(path, names, "--no-warc-compression")[1].read_bytes()


def changed(chance: random.Random, data: bytes) -> bytes:
    """The data with some changes: a bit, a number, a piece that is left out or comes twice, a long run of one, or a cut."""
    for _ in range(chance.randint(1, 4)):
        at, other, size = chance.randrange(len(data)), chance.randrange(len(data)), chance.choice([1, 30, 1_000])  # fmt: skip
        run = chance.choice([b"0", b"\0", b"A:\n", b"\r\n", b"1\r\na\r\n", b"HTTP/1.1 100\n"])
        number = b"%d" % chance.choice([0, 7, 1 << 26, 1 << 40, 1 << 70])
        before, behind = data[:at], data[at:]
        data = chance.choice(
            [
                before + bytes([data[at] ^ 1 << size % 8]) + behind[1:],
                before + re.sub(rb"\d+", number, behind, count=1),
                before + behind[size:],
                before + data[other : other + size] + behind,
                before + run * chance.randrange(1 << 16) + behind,
                before or data,
            ]
        )
    return data


@pytest.mark.parametrize(
    "count", [pytest.param(500, marks=pytest.mark.check), pytest.param(25, id="few")]
)
@pytest.mark.parametrize("writer", [of_tbloom, of_wget])
def test_a_changed_archive_is_read_or_refused(
    tmp_path: Path, store: PageStore, writer: Callable[[Path], bytes], count: int
) -> None:
    """In every form, changed before or after it was compressed: nothing else is raised, and all end."""
    data, chance, fates = writer(tmp_path), random.Random(writer.__name__), Counter[str]()
    for _ in range(count):
        form = chance.choice([*FORMS.values()])
        is_inside = chance.random() < 0.7
        records = (
            [changed(chance, data)] if is_inside else re.split(rb"(?=WARC/1\.\d\r\n)", data)[1:]
        )
        done = import_warc(
            store, BytesIO(form(records) if is_inside else changed(chance, form(records)))
        )
        fates["damaged"] += bool(done.damaged)
        fates["pages"] += done.stored + done.present
    assert min(fates["damaged"], fates["pages"]) > 0
    with Path("/dev/null").open("wb") as file:
        assert export_warc(store, file).pages == len(store) > 0
    assert () == store.verify().problems
