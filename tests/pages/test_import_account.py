"""What an import makes of archives that other software calls sound: it reads all, and puts nothing in the place of a whole, newer page."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import brotli
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecord
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbloom.pages import PagesImported, PageStore, import_warc
from tbloom.pages.members import zstd
from tests.helpers.pagestores import bodies, got, url
from tests.pages.test_import import (
    FORMS,
    MEMBERS,
    PAGES,
    PLAIN,
    PROFILE,
    REPORTED,
    Form,
    chunked,
    exported,
    in_forms,
    in_zip,
    piped,
    record,
    response,
    revisit,
    sha1,
    taken,
)

A, P, E = "https://e.example/a", "http://e.example/p", "http://e.example/"
WHOLE = b"<html>" + b"whole page. " * 30 + b"</html>"
X, BODY = "http://example.com/", b"<p>body"
#: For each reported archive, what an import counts, and the pages with their bodies as a browser shows them.
RIGHT: dict[str, tuple[PagesImported, dict[str, bytes]]] = {
    "empty-member.warc.gz": (PagesImported(3, 0, {}, ()), {f"https://e.example/{name}": b"old\n" for name in "abc"}),
    "small-letters.warc": (PagesImported(1, 0, {}, ()), {A: b"old\n"}),
    "wrong-digest.warc": (PagesImported(1, 0, {}, (), noted={"wrong digest": 1}), {A: b"old\n"}),
    "truncated-revisit.warc": (PagesImported(2, 0, {}, ()), {A: b"body"}),
    "zstd.warc": (PagesImported(1, 0, {}, ()), {A: b"hello zstd"}),
    "cut-page.warc": (PagesImported(1, 0, {"truncated": 1}, ()), {P: WHOLE}),
    "early-hints.warc": (PagesImported(1, 0, {"status 103": 1}, ()), {P: WHOLE}),
    "changes-and-back.warc": (PagesImported(3, 0, {}, ()), {"http://e.example/a": b"<html>same page</html>"}),
    "warcit.warc": (
        PagesImported(3, 0, {"warcinfo": 1}, ()),
        {E: b"<html>hi</html>\n", f"{E}index.html": b"<html>hi</html>\n", f"{E}data.csv": b"a,b\n"},
    ),
    # By wget, which writes times in seconds, of a page that redirects to itself.
    "cookie-redirect-same-second.warc": (PagesImported(2, 0, {}, (), 1), {f"{X}a": BODY, f"{X}last": BODY}),
    # A digest of warcprox's, with the lengths of chunks, is not that of the stored body.
    "revisit-in-file.warc": (PagesImported(3, 0, {}, ()), {f"{X}{name}": BODY for name in ("a", "b", "last")}),
    "fields.warc": (PagesImported(1, 0, {}, ()), {"https://e.example/": b"x"}),
    "lower-status.warc": (PagesImported(2, 0, {}, ()), {f"{X}a": b"x", f"{X}last": BODY}),
    "len-twice-same.warc": (PagesImported(2, 0, {}, ()), {f"{X}a": BODY, f"{X}last": BODY}),
    "digest-before.warc": (PagesImported(1, 0, {}, ()), {E: b"body"}),
    "digest-after.warc": (PagesImported(1, 0, {}, ()), {E: b"body"}),
}  # fmt: skip
#: How an import may get a file.
WAYS: dict[str, Callable[[Path], Any]] = {
    "file": Path,
    "pipe": lambda path: piped(path.read_bytes()),
    "gzip": lambda path: BytesIO(gzip.compress(path.read_bytes())),
    "zstd": lambda path: BytesIO(zstd.compress(path.read_bytes())),
    "WACZ": lambda path: BytesIO(in_zip({f"archive/{path.name}": path.read_bytes()})),
}


@pytest.fixture
def store(path: Path) -> Iterator[PageStore]:
    with PageStore(path) as store:
        yield store


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_reported_archive_is_read_as_its_writer_meant_it(
    store: PageStore, name: str, way: str
) -> None:
    """pywb#88, warchaeology#172, warc-specifications#42, warcat#24, warcio#121, #131, warcreate#17, warcio#123"""
    if name.endswith(".gz") and way in {"gzip", "zstd"}:
        pytest.skip("it is compressed already")
    expected, pages = RIGHT[name]
    assert expected == import_warc(store, WAYS[way](REPORTED / name))
    again = import_warc(store, WAYS[way](REPORTED / name))
    assert (0, 0, expected.skipped) == (again.stored, again.replaced, again.skipped)
    assert pages == {page.url: page.decoded() for page in store.pages()}
    if name == "fields.warc":
        assert [("WARC-Protocol", "h2"), ("WARC-Protocol", "tls/1.3"), ("WARC-JSON-Metadata", '{"a":"é"}'), ("WARC-Page-ID", "7")] == [*got(store, "https://e.example/").fields]  # fmt: skip


#: Gzip members without content: of gzip, of block gzip, with a name, of a stored block, and of a flush.
EMPTY = [
    gzip.compress(b""),
    bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000"),
    bytes.fromhex("1f8b08080000000000036100 0300 00000000 00000000"),
    bytes.fromhex("1f8b0800000000000003 010000ffff 00000000 00000000"),
    bytes.fromhex("1f8b0800000000000003 000000ffff0300 00000000 00000000"),
]


@pytest.mark.parametrize(
    ("compress", "between"),
    [
        *((gzip.compress, empty) for empty in (*EMPTY, b"".join(EMPTY) * 2_000)),
        # The program pzstd writes frames that are to be skipped.
        *((zstd.compress, frame) for frame in (zstd.compress(b""), bytes.fromhex("502a4d18 03000000 616263"))),
    ],
    ids=lambda one: f"{len(one)}" if isinstance(one, bytes) else "",
)  # fmt: skip
def test_empty_members_and_skipped_frames_are_read_through(
    store: PageStore, compress: Callable[[bytes], bytes], between: bytes
) -> None:
    """warctools#21, CDX-Writer#27: before, between and behind records, and within one. FastWARC 2.0.1 takes one for the end."""
    parts = [*PAGES[:2], PAGES[2][:300], PAGES[2][300:], PAGES[3]]
    files = [between, *(compress(part) + between for part in parts)]
    assert PagesImported(4, 0, {}, ()) == taken(store, *files, form=PLAIN)
    wacz = in_zip({"a.warc.gz": b"".join(files)})
    assert PagesImported(0, 4, {}, ()) == import_warc(store, piped(wacz))


@in_forms(*FORMS)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_zeros_behind_the_last_record_are_padding(store: PageStore, form: Form, size: int) -> None:
    """dfvfs#570: of a tape, a disk's block, or a file that was made longer beforehand."""
    data = form(PAGES) + bytes(size)
    if form is FORMS["WACZ"]:
        data = in_zip({"a.warc.gz": MEMBERS(PAGES) + bytes(size)})
    assert PagesImported(6, 0, {}, ()) == import_warc(store, BytesIO(data))
    assert PagesImported(0, 6, {}, ()) == import_warc(store, piped(data))
    if form is not FORMS["WACZ"]:
        assert {"damaged": 1} == taken(store, form(PAGES), bytes(9), b"x", form=PLAIN).skipped


@in_forms(*FORMS)
def test_zeros_between_records_are_padding(store: PageStore, form: Form) -> None:
    """stormcrawler#652: a version of it has written one behind each record."""
    bodies = [bytes(3), b"WARC/1.0\r\n", b"a"]
    records = [response(url(number), body) + b"\0" for number, body in enumerate(bodies)]
    assert PagesImported(3, 0, {}, ()) == taken(store, *records, form=form)
    assert bodies == [got(store, url(number)).body for number in range(3)]


class EndsEarly:
    """FastWARC's iterator, in a version that ends after some records of a file without an error."""

    records = 2

    def __init__(self, *given: Any, **options: Any) -> None:
        self._found = islice(ArchiveIterator(*given, **options), self.records)

    def __iter__(self) -> Iterator[WarcRecord]:
        return self._found


class LeavesOut(EndsEarly):
    """One that leaves out a record in between."""

    def __init__(self, *given: Any, **options: Any) -> None:
        found = enumerate(ArchiveIterator(*given, **options))
        self._found = (one for number, one in found if number != self.records)  # type: ignore[assignment]


@pytest.mark.parametrize("records", [0, 1, 2, 5])
@pytest.mark.parametrize("library", [EndsEarly, LeavesOut])
@in_forms(*FORMS)
def test_a_reader_that_ends_early_fails_the_import(
    store: PageStore,
    form: Form,
    monkeypatch: pytest.MonkeyPatch,
    library: type[EndsEarly],
    records: int,
) -> None:
    """The place is named, in each form."""
    monkeypatch.setattr("tbloom.pages.archives.ArchiveIterator", library)
    monkeypatch.setattr(EndsEarly, "records", records)
    long = [*PAGES[:5], response(url(5), random.Random(7).randbytes(300_000))]
    done = taken(store, *long, form=form)
    # A record that is left out in the end can't be told from the end; what is read before is stored.
    assert {url(number) for number in range(records)} <= set(store)
    assert "FastWARC ended there, and the file does not" in done.damaged[0]
    assert done.damaged[0].startswith("the file: ")


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
@in_forms(*FORMS)
def test_names_of_fields_may_have_small_or_large_letters(
    store: PageStore, form: Form, change: Callable[[str], str]
) -> None:
    """CDX-Writer#3, warc#12: also beside others, and in a revisit and a request."""

    def changed(one: bytes) -> bytes:
        head, blank, block = one.partition(b"\r\n\r\n")
        return (
            re.sub(rb"(?m)^[\w-]+(?=:)", lambda name: change(name[0].decode()).encode(), head)
            + blank
            + block
        )

    long = response(url("long"), random.Random(1).randbytes(200_000))
    first, second = {"WARC_Record_ID": "<urn:uuid:9>"}, {"WARC_Record_ID": "<urn:uuid:10>", "WARC_Concurrent_To": "<urn:uuid:9>"}  # fmt: skip
    again = revisit(url("again"), url(3), b"", WARC_Payload_Digest=digest(body_of(3)))
    post = response(url("post"), b"x", **first), record("request", url("post"), b"POST / HTTP/1.1\r\n\r\n", **second)  # fmt: skip
    records = [*PAGES[:2], *map(changed, [*PAGES[2:4], long, again, *post]), *PAGES[4:]]
    assert PagesImported(8, 0, {"request": 1, "not GET": 1}, ()) == taken(store, *records, form=form)  # fmt: skip
    assert got(store, url("again")).body == body_of(3) == got(store, url(3)).body


def test_a_name_of_a_field_may_come_a_thousand_times(store: PageStore) -> None:
    odd = b"WARC/1.0\r\n" + b"content-length: 0\r\n" * 3_000 + b"\r\n"
    assert PagesImported(2, 0, {"other": 1}, ()) == taken(store, PAGES[0], odd, PAGES[1])


def body_of(number: int) -> bytes:
    """The body of one of PAGES."""
    return random.Random(number).randbytes(700)


def digest(data: bytes) -> str:
    return f"sha1:{sha1(data)}"


OLD, NEW = {"WARC_Date": "2019-06-03T04:05:06Z"}, {"WARC_Date": "2020-06-03T04:05:06Z"}
TEXT = b"<p>a page</p>" * 50
GZIPPED, BROTLI, DEFLATED, FRAME = gzip.compress(TEXT), brotli.compress(TEXT), __import__("zlib").compress(TEXT), zstd.compress(TEXT)  # fmt: skip


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def sized(body: bytes, size: int, *headers: str) -> bytes:
    """A newer response with this Content-Length."""
    return response(url(1), body, head(f"Content-Length: {size}", *headers), **NEW)


CODED = {"gzip": GZIPPED, "x-gzip": GZIPPED, "br": BROTLI, "deflate": DEFLATED, "zstd": FRAME}
#: Pieces of a page, which are no page, and the kind that is counted.
PIECES: dict[str, tuple[bytes, str]] = {
    "short": (sized(TEXT[:100], len(TEXT)), "truncated"),
    "empty": (sized(b"", len(TEXT)), "truncated"),
    "two equal lengths": (sized(b"a", 2, "content-length: 2"), "truncated"),
    **{
        f"short {coding}": (sized(body[:-3], len(body), f"Content-Encoding: {coding}"), "truncated")
        for coding, body in CODED.items()
    },
    "empty gzip": (sized(b"", 99, "Content-Encoding: gzip"), "truncated"),
    "no end of headers": (record("response", url(1), b"HTTP/1.1 200 OK\r\nA: 1\r\nB", **NEW), "truncated"),
    "status line only": (record("response", url(1), b"HTTP/1.1 200 OK\r\n", **NEW), "truncated"),
    "WARC-Truncated": (response(url(1), TEXT, WARC_Truncated="length", **NEW), "truncated"),
    "partial": (response(url(1), TEXT, head(status="206 Partial Content"), **NEW), "status 206"),
    "unmodified": (response(url(1), b"", head(status="304 Not Modified"), **NEW), "status 304"),
    **{
        f"interim {status}": (response(url(1), b"", head("Link: </a>", status=status), **NEW), f"status {status[:3]}")
        for status in ("100 Continue", "101 Switching Protocols", "102 Processing", "103 Early Hints", "199 X")
    },
    "two interim": (response(url(1), head(status="103 Early Hints"), head(status="100 Continue"), **NEW), "status 103"),
    "cut behind interim": (response(url(1), b"HTTP/1.1 20", head(status="103 Early Hints"), **NEW), "not HTTP"),
    "short behind interim": (response(url(1), head("Content-Length: 9") + b"a", head(status="103 Early Hints"), **NEW), "truncated"),
}  # fmt: skip


def in_chunks(body: bytes) -> bytes:
    return b"".join(
        b"%x\r\n%b\r\n" % (len(body[at : at + 99]), body[at : at + 99])
        for at in range(0, len(body), 99)
    )


@pytest.mark.parametrize("is_digested", [False, True])
@pytest.mark.parametrize("kind", PIECES)
def test_a_piece_does_not_take_the_place_of_a_whole_page(
    store: PageStore, kind: str, *, is_digested: bool
) -> None:
    """webarchive-discovery#212, openwayback#254: wget, capture_http, requests and pywb write such records, with digests that fit the piece."""
    given, name = PIECES[kind]
    if is_digested:
        block = given.partition(b"\r\n\r\n")[2][:-4]
        fields = f"\r\nWARC-Block-Digest: {digest(block)}\r\nContent-Length".encode()
        given = given.replace(b"\r\nContent-Length", fields, 1)
    assert PagesImported(1, 0, {name: 1}, ()) == taken(store, response(url(1), TEXT), given)
    assert {url(1): TEXT} == bodies(store)


@pytest.mark.parametrize("how", [0, 1, 2])
def test_a_chunked_body_that_is_cut_anywhere_is_no_page(store: PageStore, how: int) -> None:
    """Its digest may be that of the piece with the chunks' lengths (wget), without them (warcprox), or there is none."""
    whole = in_chunks(TEXT)
    for end in range(len(whole) + 1):
        piece = whole[:end]
        joined = re.sub(rb"(?:\r\n)?\w+\r\n", b"", piece)
        digested = [None, piece, joined][how]
        done = taken(store, chunked(piece, digested))
        assert ({"truncated": 1}, 0) == (done.skipped, len(store)), piece[-9:]
    assert taken(store, chunked(whole + b"0\r\n\r\n")).stored == 1


@pytest.mark.parametrize(
    "given",
    [
        sized(b"decoded", 9, "Content-Encoding: gzip"),
        sized(b"decoded", 9, "Content-Encoding: zstd"),
        *(sized(body, 9, f"Content-Encoding: {coding}") for coding, body in CODED.items()),
        sized(TEXT, len(TEXT)),
        sized(TEXT, 0),
        response(url(1), TEXT, head("Content-Length: 1", "Content-Length: 9999"), **NEW),
        response(url(1), TEXT, head("Content-Length: x"), **NEW),
        response(url(1), TEXT, head(f"Content-Length: {'9' * 5_000}"), **NEW),
        response(url(1), b"", head("Content-Length: 0", "Content-Encoding: none"), **NEW),
    ],
)
def test_a_page_whose_length_is_another_for_other_reasons_is_stored(
    store: PageStore, given: bytes
) -> None:
    """A tool has decoded it, and left the headers; or the server was wrong."""
    assert PagesImported(1, 0, {}, ()) == taken(store, given)


@pytest.mark.parametrize(
    "date",
    ["2019-13", "0000", "2019-02-30", "201906030405", "", "03 Jun 2019", "1559534706", "2019-06-03T25:00:00Z", "2019-06-03T04:05:06X"],
)  # fmt: skip
def test_a_date_that_can_t_be_read_is_named(store: PageStore, date: str) -> None:
    """(aut#163)"""
    done = taken(store, *PAGES[:1], response(url("a"), b"", WARC_Date=date), *PAGES[1:2])
    assert (2, {"damaged": 1}) == (done.stored, done.skipped)
    assert not date or re.fullmatch(
        rf"the file: at \d+: its date {date!r} can't be read", done.damaged[0]
    )


DAY, SIX = (2019, 6, 3), (2019, 6, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("date", "at"),
    [
        # Of a longer time, its first moment.
        ("2019", (2019, 1, 1)), ("2019-06Z", (2019, 6, 1)), ("2019-06-03", DAY), ("2019-06-03T04:05", (*DAY, 4, 5)),
        ("2019-06-03T04:05Z", (*DAY, 4, 5)), ("2019-06-03T04:05:06.1234567891Z", (*SIX, 123_456)), (" 2019-06-03t04:05:06z ", SIX),
        ("20190603T040506Z", SIX), ("2019-06-02T20:05:06-0800", SIX), ("2019-06-03T04:05:06,5Z", (*SIX, 500_000)),
    ],
)  # fmt: skip
def test_a_date_of_any_precision_is_read(store: PageStore, date: str, at: tuple[int, ...]) -> None:
    """As WARC 1.1 allows them (ipwb#283)."""
    assert 1 == taken(store, response(url(1), b"", WARC_Date=date)).stored
    assert datetime(*at, tzinfo=UTC) == got(store, url(1)).at  # type: ignore[misc,arg-type]


@in_forms(*FORMS)
@pytest.mark.parametrize("target", [url(1), "HTTP://example.com/1"])
def test_a_resource_of_a_url_is_a_page(store: PageStore, form: Form, target: str) -> None:
    """webarchive-discovery#270: files of a site, as they are, though one begins like a response."""
    bodies = [b"HTTP/1.1 404 Gone\r\n\r\nnone", b"", bytes(range(256))]
    for number, body in enumerate(bodies):
        digests = dict.fromkeys(("WARC_Block_Digest", "WARC_Payload_Digest"), digest(body))
        given = record(
            "resource", target, body, Content_Type="text/csv", **digests, **at(number + 1)
        )
        assert PagesImported(1, 0, {}, ()) == taken(store, given, form=form)
        page = got(store, target.replace("HTTP", "http"))
        assert (200, (("Content-Type", "text/csv"),), body) == (
            page.status,
            page.headers,
            page.body,
        )
    cut = record("resource", target, b"", Content_Type="", WARC_Truncated="length")
    wrong = record("resource", target, b"x", WARC_Block_Digest=digest(b"y"), **at(9))
    assert {"truncated": 1, "damaged": 1} == taken(store, cut, wrong, form=form).skipped


@pytest.mark.parametrize(
    "target", ["urn:text:https://e.example/", "metadata://gnu.org/software/wget/", "www.e.example/a", "screenshot:http://e.example/"]
)  # fmt: skip
def test_a_resource_of_no_url_is_counted(store: PageStore, target: str) -> None:
    """warc2zim#197, webrecorder-player#96: what a crawler tells of a page, and files without a scheme."""
    assert PagesImported(0, 0, {"resource": 1}, ()) == taken(
        store, record("resource", target, b"x")
    )


@pytest.mark.parametrize(
    ("given", "is_whole"),
    [
        ("bytes 0-4/5", True), ("Bytes 0-4/5", True), ("bytes=0-4/5", False), ("bytes 0-4/*", False),
        ("bytes 0-4/6", False), ("bytes 1-5/5", False), ("bytes 0-3/4", False), ("bytes 0-5/6", False), ("", False),
    ],
)  # fmt: skip
@in_forms(*FORMS)
def test_a_partial_answer_with_the_whole_body_is_a_page(
    store: PageStore, form: Form, given: str, *, is_whole: bool
) -> None:
    """browsertrix-crawler#646: browsers ask for a range that is the whole video."""
    answer = response(url(1), b"video", head(f"Content-Range: {given}", status="206 Partial"))
    done = taken(store, answer, form=form)
    assert ({} if is_whole else {"status 206": 1}) == done.skipped
    assert ({url(1): b"video"} if is_whole else {}) == bodies(store)


def test_what_follows_an_export_in_one_file_is_another_tool_s(
    store: PageStore, tmp_path: Path
) -> None:
    """Without a warcinfo of its own, too: a page of an export says so itself."""
    with PageStore(tmp_path / "own") as own:
        own.put(url(9), b"x", headers={"Content-Length": "9"}, status=103)
        ours = exported(own)
    assert PagesImported(1, 0, {"truncated": 1}, ()) == taken(
        store, ours, MEMBERS([PIECES["short"][0]]), form=PLAIN
    )


def test_an_encoding_that_can_t_be_decoded_is_said_once_per_file(store: PageStore) -> None:
    """warcat-rs#9, jwarc#47: its bytes are not stored as the page. One that is no encoding, such as a charset, is ignored."""

    def coded(number: int, coding: str, body: bytes = b"x") -> bytes:
        return response(url(number), body, head(f"Content-Encoding: {coding}"))

    records = [coded(1, "dcz"), coded(2, "DCZ"), coded(3, "gzip, compress"), coded(4, "UTF-8"), coded(5, "dcz", b"")]  # fmt: skip
    for _ in range(2):
        done = taken(store, *records)
        assert {"unknown encoding": 3} == done.skipped
        assert {url(4), url(5)} == set(store)
        says = [re.search(r"at \d+: the Content-Encoding '(\w+)' can't be decoded", where) for where in done.damaged]  # fmt: skip
        assert ["dcz", "compress"] == [found and found[1] for found in says]


def at(day: int, second: str = "06") -> dict[str, str]:
    return {"WARC_Date": f"2019-06-{day:02}T04:05:{second}Z"}


def refers(day: int) -> dict[str, str]:
    return {"WARC_Refers_To_Date": f"2019-06-{day:02}T04:05:06Z"}


FIRST, BETWEEN = response(url(1), b"first", **at(1)), response(url(1), b"between", **at(2))
BACK = revisit(url(1), url(1), b"first", **at(3), **refers(1))
ELSEWHERE = revisit(url(9), url(1), b"first", **at(3), **refers(1))


@pytest.mark.parametrize("again", [BACK, ELSEWHERE], ids=["same URL", "another URL"])
@pytest.mark.parametrize(
    "files",
    [
        [["first", "between", "again"]],
        [["again", "between", "first"]],
        [["between", "again"], ["first"]],
        [["first"], ["between"], ["again"]],
        [["again"], ["between"], ["first"]],
        [["between"], ["first", "again"]],
    ],
)
@pytest.mark.parametrize("is_at_once", [False, True])
@in_forms("plain", "one gzip", "WACZ")
def test_a_revisit_finds_its_body_wherever_it_is(
    store: PageStore, form: Form, files: list[list[str]], again: bytes, *, is_at_once: bool
) -> None:
    """In the same file or another one, in front or behind, and in the store, though the page has changed since."""
    known = {"first": FIRST, "between": BETWEEN, "again": again}
    sources = [BytesIO(form([known[name] for name in names])) for names in files]
    for some in [sources] if is_at_once else [[source] for source in sources]:
        assert () == import_warc(store, *some).damaged
    if not is_at_once and files[-1] == ["first"]:
        # When the revisit came, its body had not, and then it was too old to be stored.
        assert {url(1): b"between"} == bodies(store)
        return
    page = got(store, url(1 if again is BACK else 9))
    assert (b"first", 203, 3) == (page.body, page.status, page.at.day)
    assert {url(1), page.url} == set(store)


def test_a_revisit_without_headers_has_those_of_the_record_it_refers_to(store: PageStore) -> None:
    """Not those of a later page with the same body. Heritrix names no record (openwayback#224)."""
    fields = {"WARC_Profile": PROFILE, "WARC_Payload_Digest": digest(b"same"), "WARC_Refers_To_Target_URI": url(1)}  # fmt: skip
    pages = [
        response(url(1), b"same", head(f"Day: {day}"), WARC_Payload_Digest=digest(b"same"), **at(day))
        for day in (1, 2, 3)
    ]  # fmt: skip
    done = taken(store, *pages, record("revisit", url(2), b"", **fields, **at(5), **refers(2)))
    assert PagesImported(4, 0, {}, ()) == done
    assert (("Day", "2"),) == got(store, url(2)).headers
    # The record is nowhere, or not named: then any with this body.
    assert 1 == taken(store, record("revisit", url(3), b"", **fields, **at(5), **refers(9))).stored
    fields["WARC_Refers_To_Target_URI"] = ""
    assert 1 == taken(store, pages[0], record("revisit", url(4), b"", **fields, **at(5))).stored
    assert (b"same", 200) == (got(store, url(4)).body, got(store, url(4)).status)
    # But none of another URL, which may have the same body by chance.
    fields["WARC_Refers_To_Target_URI"] = url(7)
    again = record("revisit", url(5), b"", **fields, **at(5), **refers(9))
    assert {"revisit": 1} == taken(store, pages[0], again).skipped


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("files", [["first", "again"], ["again", "first"]])
def test_a_revisit_without_a_digest_is_found_by_url_and_time(
    store: PageStore, files: list[str], *, is_changed: bool
) -> None:
    """pywb#88: old versions of warcprox wrote such."""
    known = {"first": FIRST, "again": revisit(url(1), url(1), b"", WARC_Payload_Digest="", **at(3), **refers(1))}  # fmt: skip
    other = [response(url(2), b"other", **at(1)), *[BETWEEN] * is_changed]
    done = taken(store, *other, *(known[name] for name in files))
    assert ({}, b"first") == (done.skipped, got(store, url(1)).body)
    lost = revisit(url(3), url(1), b"", WARC_Payload_Digest="", **at(3), **refers(4))
    assert {"revisit": 1} == taken(store, lost).skipped


@in_forms("plain", "members", "zstd")
def test_a_length_that_is_one_too_large_costs_nothing(store: PageStore, form: Form) -> None:
    """jwarc#29: some versions of wget count a byte of the line end behind the record."""
    wrong = [one.replace(b"Content-Length: 725", b"Content-Length: 726", 1) for one in PAGES]
    assert PagesImported(6, 0, {}, ()) == taken(store, *wrong, form=form)
    assert bodies(store)[url(1)] == body_of(1) + b"\r"


@pytest.mark.parametrize(
    "other",
    [
        response(url(1), b"firsT", **at(1)),
        response(url(1), b"first", head("Content-Length: 9"), **at(1)),
        response(url(1), b"first", WARC_Truncated="length", **at(1)),
    ],
)
def test_a_revisit_gets_no_body_of_another_digest_or_of_a_piece(
    store: PageStore, other: bytes
) -> None:
    assert 1 == taken(store, ELSEWHERE, other).skipped["revisit"]


def test_a_revisit_does_not_get_the_body_of_a_deleted_page(store: PageStore) -> None:
    taken(store, FIRST)
    store.delete(url(1))
    assert {"revisit": 1} == taken(store, ELSEWHERE).skipped
    taken(store, response(url(1), b"first", **at(1, "07")), BETWEEN)
    assert {"revisit": 1} == taken(store, ELSEWHERE).skipped
    assert {url(1): b"between"} == bodies(store)


@pytest.mark.parametrize("headers", [["Content-Length: 5000"], ["Transfer-Encoding: chunked"]])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_revisit_gets_no_body_that_is_shorter_than_its_headers_say(
    store: PageStore, headers: list[str], *, is_stored: bool
) -> None:
    """Its digest is that of the nothing that its tool had got, and a redirect elsewhere has no body either."""
    nothing = {"WARC_Profile": PROFILE, "WARC_Payload_Digest": digest(b""), "WARC_Refers_To_Target_URI": url(2)}  # fmt: skip
    redirect = response(url(2), b"", head("Location: /x", status="301 Moved"), **at(1))
    again = record("revisit", url(1), head(*headers), **nothing, **at(3), **refers(1))
    taken(store, response(url(1), TEXT, **at(1)), redirect)
    assert {"revisit": 1} == taken(store, *[redirect] * (not is_stored), again).skipped
    assert {url(1): TEXT, url(2): b""} == bodies(store)


def test_many_revisits_that_wait_take_little_memory(
    store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From time to time, their bodies are looked for."""
    monkeypatch.setattr("tbloom.pages.importing._WAITING_BYTES", 20_000)
    records = [revisit(url(n), url("a"), b"%d" % (n % 2), **refers(1)) for n in range(100)]
    done = taken(store, *records, response(url("a"), b"0", **at(1)))
    assert (51, {"revisit": 50}) == (done.stored, done.skipped)


class Made(NamedTuple):
    """A record of a random archive: its page's number and time, what kind it is, and its body."""

    page: int
    day: int
    kind: str
    body: int


KINDS = ["whole", "chunked", "short", "cut chunks", "interim", "206", "truncated", "revisit", "long revisit", "old revisit"]  # fmt: skip
#: Kinds that have the whole page.
WHOLES = {"whole", "chunked"}
REVISITS = {"revisit", "long revisit", "old revisit"}


def content(number: int) -> bytes:
    return b"<p>body %d</p>" % number * 20


def written(made: Made, all_made: list[Made]) -> bytes:
    """The record."""
    target, body, fields = url(made.page), content(made.body), at(made.day)
    fields["WARC_Record_ID"] = f"<urn:uuid:{made.page}-{made.day}>"
    if made.kind in REVISITS:
        first = next((one for one in all_made if one.kind in WHOLES and one.body == made.body), None)  # fmt: skip
        more = refers(first.day) if first else {}
        if made.kind == "long revisit":
            more["WARC_Truncated"] = "length"
        return revisit(target, url(first.page if first else 0), body, **fields, **more)
    size = f"Content-Length: {len(body)}"
    chunks = "Transfer-Encoding: chunked"
    block = {
        "whole": head(size) + body,
        "chunked": head(chunks) + in_chunks(body) + b"0\r\n\r\n",
        "short": head(size) + body[:-7],
        "cut chunks": head(chunks) + in_chunks(body)[:-7],
        "interim": head("Link: </a>", status="103 Early Hints"),
        "206": head(size, status="206 Partial Content") + body,
        "truncated": head() + body,
    }[made.kind]
    if made.kind == "truncated":
        fields["WARC_Truncated"] = "time"
    payload = block.partition(b"\r\n\r\n")[2]
    digests = {"WARC_Block_Digest": digest(block), "WARC_Payload_Digest": digest(payload)}
    return record("response", target, block, **fields, **digests)


MADE = st.lists(
    st.builds(Made, st.integers(0, 2), st.integers(1, 20), st.sampled_from(KINDS), st.integers(0, 4)),
    max_size=12,
    unique_by=lambda made: (made.page, made.day),
)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    MADE,
    st.integers(1, 3),
    st.sampled_from([*FORMS]),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_no_import_puts_a_piece_or_an_older_version_in_the_place_of_a_page(
    made: list[Made], count: int, form: str, chance: random.Random, is_at_once: bool
) -> None:
    """Random archives of such records, in any order, in several files, twice: each page is the newest whole one."""
    chance.shuffle(made)
    files = [made[number::count] for number in range(count)]
    data = [FORMS[form](written(one, made) for one in part) for part in files if part]
    whole = {one.body for one in made if one.kind in WHOLES}
    newest, expected = dict[str, int](), dict[str, tuple[int, bytes]]()
    for one in sorted(made, key=lambda one: one.day):
        if one.kind in WHOLES:
            newest[url(one.page)] = one.day
        if one.kind in WHOLES or (one.kind in REVISITS and one.body in whole):
            expected[url(one.page)] = one.day, content(one.body)
    known = {(url(one.page), one.day): content(one.body) for one in made}
    with TemporaryDirectory() as folder, PageStore(folder) as store:
        for _ in range(2):
            if is_at_once:
                dones = [import_warc(store, *map(BytesIO, data))]
            else:  # a revisit may come before its body, which is then too old to be stored
                dones = [import_warc(store, BytesIO(one)) for one in data]
            found = {page.url: (page.at.day, page.body) for page in store.pages()}
            assert found == expected or not is_at_once
            assert not any(done.damaged for done in dones)
            for target, (day, body) in found.items():
                assert body == known[target, day]
            assert all(found[target][0] >= day for target, day in newest.items())
        kinds = Counter(one.kind for one in made if one.kind not in WHOLES | REVISITS)
        skipped = sum((Counter(done.skipped) for done in dones), Counter[str]())
        assert kinds["interim"] == skipped["status 103"]
        assert kinds["short"] + kinds["cut chunks"] + kinds["truncated"] == skipped["truncated"]
        assert store.verify().problems == ()
