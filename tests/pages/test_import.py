"""WARC files of other tools go into a store: what is a page, and how it was sent."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import shutil
import struct
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest

from tbloom.pages import PagesImported, PageStore, import_warc
from tbloom.pages.members import zstd
from tests.helpers import website
from tests.helpers.archives import (
    FORMS,
    HEAD,
    MEMBERS,
    PAGES,
    PLAIN,
    ZSTD,
    Form,
    at,
    chunked,
    digest,
    exported,
    head,
    in_forms,
    record,
    response,
    revisit,
    taken,
)
from tests.helpers.making import missing
from tests.helpers.pagestores import CODECS, bodies, files, got, url

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
    """Empty members (warctools#21, CDX-Writer#27), letters of names (CDX-Writer#3, warc#12), zeros (stormcrawler#652, dfvfs#570)."""
    chance = random.Random(3)
    pages = {url(n): chance.randbytes(n * n) for n in range(60)}
    done = taken(store, *(response(url, body) for url, body in pages.items()), form=form)
    assert (PagesImported(60, 0, {}, ()), pages) == (done, bodies(store))


def test_of_two_pages_of_one_time_the_last_is_stored(store: PageStore) -> None:
    """Within a source: wget keeps the 302 or 401 before the page. What the store had from this time stays."""
    login = response(url(1), b"log in", head(status="401 Unauthorized"))
    between = [response(url(f"between-{n}"), b"x") for n in range(600)]  # of several batches
    records = [login, *between, response(url(1), b"page")]
    assert PagesImported(601, 0, {}, (), 1) == taken(store, *records)
    assert (200, b"page") == (got(store, url(1)).status, got(store, url(1)).body)
    assert PagesImported(0, 602, {}, ()) == taken(store, *records)
    assert PagesImported(0, 1, {}, ()) == taken(store, response(url(1), b"another"))
    assert b"page" == got(store, url(1)).body


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
#: Chunks, what a crawler has digested (with their lengths, or without), and what is left of them.
CHUNKED: list[tuple[bytes, bytes | None, bytes]] = [
    (b"5\r\nhello\r\n0\r\n\r\n", None, b"hello"),
    (b"005;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n", None, b"hello0123456789"),
    (b"5\nhello\n0\n\n", None, b"5\nhello\n0\n\n"),
    (b"0\r\n\r\n", None, b""),
    (b"5\r\nhello\r\n0\r\n", None, b"hello"),
    (b"<html>the tool has removed them</html>", None, b"<html>the tool has removed them</html>"),
    (b"5\r\nhello, no chunk", None, b"5\r\nhello, no chunk"),
    (b"5\r\nbeans\r\n0\r\n\r\n", b"5\r\nbeans\r\n0\r\n\r\n", b"beans"),
    (b"5\r\nbeans\r\n0\r\n\r\n", b"beans", b"beans"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            (response(url("a"), BODY, head), {"status": status, "headers": headers, "body": BODY})
            for head, status, headers in HEADS
        ),
        *((chunked(raw, digested), {"body": body}) for raw, digested, body in CHUNKED),
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


#: Records that are no pages, and the kind that is counted. Of a resource without a URL, a crawler tells of a page, or the file
#: has no scheme (warc2zim#197, webrecorder-player#96).
NO_PAGES = [
    (response("http://", b""), "refused: url"),
    (response(url("a"), b"", HEAD[:-2] + b"A:\n" * 90_000 + b"\r\n"), "long headers"),
    (response(url("a"), b"", HEAD + bytes(300), X_A="a\r\nB:" * 20_000), "damaged"),
    (response(url("a"), b"", head(status="099 OK")), "refused: status"),
    (response("ftp://example.com/", b""), "not HTTP"),
    (response(url("a"), b"", b"ICY 200 OK\r\n\r\n"), "not HTTP"),
    (response(url("a"), b"", WARC_Segment_Number="1"), "in several records"),
    (record("continuation", url("a"), b"more"), "continuation"),
    (record("\x1b[2J", url("a"), b""), "other"),
    (b"WARC/1.0\r\n" + b"content-length: 0\r\n" * 3_000 + b"\r\n", "other"),
    *(
        (record("resource", target, b"x"), "resource")
        for target in ("urn:text:https://e.example/", "metadata://gnu.org/software/wget/", "www.e.example/a", "screenshot:http://e.example/")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind"), NO_PAGES)
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


DAY, SIX = (2019, 6, 3), (2019, 6, 3, 4, 5, 6)
#: Dates as WARC 1.1 allows them, and their times: of a longer time, its first moment.
DATES: dict[str, tuple[int, ...]] = {
    "2019": (2019, 1, 1), "2019-06Z": (2019, 6, 1), "2019-06-03": DAY, "2019-06-03T04:05": (*DAY, 4, 5),
    "2019-06-03T04:05Z": (*DAY, 4, 5), "2019-06-03T04:05:06.1234567891Z": (*SIX, 123_456), " 2019-06-03t04:05:06z ": SIX,
    "20190603T040506Z": SIX, "2019-06-02T20:05:06-0800": SIX, "2019-06-03T04:05:06,5Z": (*SIX, 500_000),
}  # fmt: skip
NO_DATES = ["2019-13", "0000", "2019-02-30", "201906030405", "", "03 Jun 2019", "1559534706", "2019-06-03T25:00:00Z", "2019-06-03T04:05:06X"]  # fmt: skip


def test_a_date_of_any_precision_is_read_and_another_named(store: PageStore) -> None:
    """(ipwb#283, aut#163)"""
    pages = [response(url(n), b"", WARC_Date=date) for n, date in enumerate([*DATES, *NO_DATES])]
    done = taken(store, *pages)
    assert (len(DATES), {"damaged": len(NO_DATES)}) == (done.stored, done.skipped)
    expected = [datetime(*at, tzinfo=UTC) for at in DATES.values()]  # type: ignore[misc,arg-type]
    assert expected == [got(store, url(n)).at for n in range(len(DATES))]
    for date, where in zip(NO_DATES, done.damaged, strict=True):
        assert where.endswith(f": its date {date!r} can't be read")


@pytest.mark.parametrize("target", [url(1), "HTTP://example.com/1"])
def test_a_resource_of_a_url_is_a_page(store: PageStore, target: str) -> None:
    """webarchive-discovery#270: files of a site, as they are, though one begins like a response."""
    for day, body in enumerate([b"HTTP/1.1 404 Gone\r\n\r\nnone", b"", bytes(range(256))], 1):
        fields = dict.fromkeys(("WARC_Block_Digest", "WARC_Payload_Digest"), digest(body)) | at(day)
        given = record("resource", target, body, Content_Type="text/csv", **fields)
        assert PagesImported(1, 0, {}, ()) == taken(store, given)
        page = got(store, target.replace("HTTP", "http"))
        expected = 200, (("Content-Type", "text/csv"),), body
        assert expected == (page.status, page.headers, page.body)
    cut = record("resource", target, b"", WARC_Truncated="length")
    wrong = record("resource", target, b"x", WARC_Block_Digest=digest(b"y"), **at(9))
    assert {"truncated": 1, "damaged": 1} == taken(store, cut, wrong).skipped


@in_forms("plain", "members")
@pytest.mark.parametrize("body", [b"body", b"4\r\nbody\r\n0\r\n\r\n"])
def test_one_digest_that_fits_is_enough(store: PageStore, form: Form, body: bytes) -> None:
    """``warcio recompress`` writes headers anew, and keeps the block's digest; wget hashes the lengths of chunks, too."""
    coded = head("Transfer-Encoding: chunked")
    old = {"WARC_Block_Digest": digest(b"another head" + body)}
    right, wrong = digest(b"body"), digest(b"bodY")
    fits = response(url(1), body, coded, WARC_Payload_Digest=right, **old)
    changed = response(url(2), body, coded, WARC_Payload_Digest=wrong, **old)
    misread = response(url(3), body, coded, WARC_Payload_Digest=wrong)
    of_chunks = response(url(4), body, coded, WARC_Payload_Digest=digest(body))
    done = taken(store, fits, changed, misread, of_chunks, form=form)
    assert dict.fromkeys(map(url, (1, 3, 4)), b"body") == bodies(store)
    assert ({"damaged": 1}, {"wrong digest": 1}) == (done.skipped, done.noted)


@pytest.mark.parametrize("algorithm", ["sha1", "sha-256", "md5", "SHA-512"])
def test_a_digest_in_any_form_is_compared(store: PageStore, algorithm: str) -> None:
    """Base 32 or 16 in any letters, or base 64, also that of URLs. (brozzler#213: some write base 16.) A malformed one is none: the
    standard's own examples are (warc-specifications#64, #110)."""
    malformed = "sha1:AB2CD3EF4GH5IJ6KL7MN8OPQ", "sha1:", "none:AAAA", "?", "md5:" + "A" * 32 * 9
    given = [response(url(value), b"", WARC_Block_Digest=value) for value in malformed]
    for number in range(9):  # some have + or / in base 64
        body = b"%d" % number
        found = hashlib.new(algorithm.replace("-", ""), HEAD + body, usedforsecurity=False).digest()
        encoded = [encode(found).decode() for encode in (base64.b32encode, base64.b16encode)]
        encoded += [each.lower() for each in encoded]
        encoded += [base64.b64encode(found).decode(), base64.urlsafe_b64encode(found).decode()]
        for form in encoded + [each.rstrip("=") for each in encoded]:
            fields = {"WARC_Block_Digest": f"{algorithm}:{form}"}
            given += (
                response(url(number), body, **fields),
                response(url("x"), body + b"!", **fields),
            )
    assert {"damaged": (len(given) - len(malformed)) // 2} == taken(store, *given).skipped
    assert {url(name) for name in (*range(9), *malformed)} == set(store)


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


@pytest.mark.parametrize("flags", [4 | 8, 2, 2 | 4 | 8])
def test_a_gzip_header_may_lie_across_two_readings(store: PageStore, flags: int) -> None:
    """Given in two parts, one with a checksum, or an extra field (of the Internet Archive) and a name, is too much for isal 1.9.1."""
    head = bytes([31, 139, 8, flags, 0, 0, 0, 0, 0, 255])
    extra = struct.pack("<H2sHII", 12, b"sl", 8, 0, 1)
    head += extra * bool(flags & 4) + b"name.warc\0" * bool(flags & 8)
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) * bool(flags & 2)
    second = head + gzip.compress(PAGES[0])[10:]
    for before in range(1, len(head)):
        first = gzip.compress(response(url("first"), random.Random(1).randbytes(32_000)))
        named = 32_768 - before - len(first) - 1  # the length of its name
        first = first[:3] + bytes([8]) + first[4:10] + b"a" * named + b"\0" + first[10:]
        done = taken(store, first, second, form=PLAIN)
        assert ({}, 2) == (done.skipped, done.stored + done.present), before


@pytest.mark.parametrize("codec", CODECS)
def test_the_files_of_a_store_are_refused(store: PageStore, tmp_path: Path, codec: str) -> None:
    """They have deleted and replaced pages, too. An export has none of these."""
    with PageStore(tmp_path / "own", codec=codec) as own:
        own.put(url(1), b"first")
        own.put(url(1), b"second")
        own.put(url(2), b"deleted")
        own.delete(url(2))
        (tmp_path / "export.warc").write_bytes(exported(own))
    given = [*files(tmp_path / "own"), tmp_path / "own", tmp_path / "export.warc"]
    done = import_warc(store, *given)
    assert {url(1): b"second"} == bodies(store)
    assert len(given) - 1 == done.skipped["unreadable file"] == len(done.damaged)
    assert all("export" in where for where in done.damaged)


@pytest.mark.parametrize("form", [MEMBERS, pytest.param(ZSTD, marks=pytest.mark.check)])
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
