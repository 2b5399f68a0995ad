"""What an import makes of archives that other software calls sound: it reads all, and puts nothing in the place of a whole, newer page."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zlib import compress

import brotli
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecord
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbloom.pages import PagesImported, PageStore, import_warc
from tbloom.pages.members import zstd
from tests.helpers.archives import (
    FORMS,
    HEAD,
    MEMBERS,
    PAGES,
    PLAIN,
    PROFILE,
    Form,
    at,
    chunked,
    digest,
    exported,
    head,
    in_chunks,
    in_forms,
    in_zip,
    piped,
    random_body,
    record,
    refers,
    response,
    revisit,
    taken,
)
from tests.helpers.pagestores import bodies, got, url

REPORTED = Path(__file__).with_name("reported")
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


@pytest.mark.parametrize("name", RIGHT)
def test_a_reported_archive_is_read_as_its_writer_meant_it(store: PageStore, name: str) -> None:
    """pywb#88, warchaeology#172, warc-specifications#42, warcat#24, warcio#121, #131, warcreate#17, warcio#123"""
    expected, pages = RIGHT[name]
    assert expected == import_warc(store, REPORTED / name)
    again = import_warc(store, REPORTED / name)
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
def test_zeros_behind_the_last_record_are_padding(store: PageStore, form: Form) -> None:
    """dfvfs#570: of a tape, a disk's block, or a file that was made longer beforehand."""
    for size in (1, 1 << 20):
        data = form(PAGES) + bytes(size)
        if form is FORMS["WACZ"]:
            data = in_zip({"a.warc.gz": MEMBERS(PAGES) + bytes(size)})
        assert {} == import_warc(store, BytesIO(data)).skipped
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


@pytest.mark.parametrize("library", [EndsEarly, LeavesOut])
@in_forms(*FORMS)
def test_a_reader_that_ends_early_fails_the_import(
    store: PageStore, form: Form, monkeypatch: pytest.MonkeyPatch, library: type[EndsEarly]
) -> None:
    """The place is named, in each form."""
    monkeypatch.setattr("tbloom.pages.archives.ArchiveIterator", library)
    long = [*PAGES[:5], response(url(5), random.Random(7).randbytes(300_000))]
    for records in (0, 1, 2, 5):
        monkeypatch.setattr(EndsEarly, "records", records)
        done = taken(store, *long, form=form)
        # A record that is left out in the end can't be told from the end; what is read before is stored.
        assert {url(number) for number in range(records)} <= set(store)
        assert "FastWARC ended there, and the file does not" in done.damaged[0]
        assert done.damaged[0].startswith("the file: ")


@in_forms(*FORMS)
def test_names_of_fields_may_have_small_or_large_letters(store: PageStore, form: Form) -> None:
    """CDX-Writer#3, warc#12: also beside others, and in a revisit and a request."""
    changes = cycle([str.lower, str.upper, str.title])

    def changed(one: bytes) -> bytes:
        head, blank, block = one.partition(b"\r\n\r\n")
        change = next(changes)
        names = re.compile(rb"(?m)^[\w-]+(?=:)")
        return names.sub(lambda name: change(name[0].decode()).encode(), head) + blank + block

    long = response(url("long"), random.Random(1).randbytes(200_000))
    first, second = {"WARC_Record_ID": "<urn:uuid:9>"}, {"WARC_Record_ID": "<urn:uuid:10>", "WARC_Concurrent_To": "<urn:uuid:9>"}  # fmt: skip
    again = revisit(url("again"), url(3), random_body(3))
    post = response(url("post"), b"x", **first), record("request", url("post"), b"POST / HTTP/1.1\r\n\r\n", **second)  # fmt: skip
    for _ in range(3):  # each record in each of the three
        records = [*PAGES[:2], *map(changed, [*PAGES[2:4], long, again, *post]), *PAGES[4:]]
        next(changes)
        done = taken(store, *records, form=form)
        assert ({"request": 1, "not GET": 1}, ()) == (done.skipped, done.damaged)
        assert 8 == done.stored + done.present
    assert got(store, url("again")).body == random_body(3) == got(store, url(3)).body


NEW = {"WARC_Date": "2020-06-03T04:05:06Z"}
TEXT = b"<p>a page</p>" * 50
GZIPPED, FRAME = gzip.compress(TEXT), zstd.compress(TEXT)
CODED = {"gzip": GZIPPED, "x-gzip": GZIPPED, "br": brotli.compress(TEXT), "deflate": compress(TEXT), "zstd": FRAME}  # fmt: skip


def sized(body: bytes, size: int, *headers: str) -> bytes:
    """A newer response with this Content-Length."""
    return response(url(1), body, head(f"Content-Length: {size}", *headers), **NEW)


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


@pytest.mark.parametrize("kind", PIECES)
def test_a_piece_does_not_replace_a_whole_page(store: PageStore, kind: str) -> None:
    """webarchive-discovery#212, openwayback#254: wget, capture_http, requests and pywb write such records, with digests that fit
    the piece, and without."""
    given, name = PIECES[kind]
    block = given.partition(b"\r\n\r\n")[2][:-4]
    fields = f"\r\nWARC-Block-Digest: {digest(block)}\r\nContent-Length".encode()
    digested = given.replace(b"\r\nContent-Length", fields, 1)
    done = taken(store, response(url(1), TEXT), given, digested)
    assert PagesImported(1, 0, {name: 2}, ()) == done
    assert {url(1): TEXT} == bodies(store)


@pytest.mark.parametrize("how", [0, 1, 2])
def test_a_chunked_body_that_is_cut_anywhere_is_no_page(store: PageStore, how: int) -> None:
    """Its digest may be that of the piece with the chunks' lengths (wget), without them (warcprox), or there is none."""
    whole = in_chunks(TEXT[:250])
    for end in range(len(whole) + 1):
        piece = whole[:end]
        joined = re.sub(rb"(?:\r\n)?\w+\r\n", b"", piece)
        digested = [None, piece, joined][how]
        done = taken(store, chunked(piece, digested))
        assert ({"truncated": 1}, 0) == (done.skipped, len(store)), piece[-9:]
    assert taken(store, chunked(whole + b"0\r\n\r\n")).stored == 1


def test_a_page_whose_length_is_another_is_stored(store: PageStore) -> None:
    """For other reasons than a cut: a tool has decoded it, and left the headers; or the server was wrong."""
    for one in (
        sized(b"decoded", 9, "Content-Encoding: gzip"),
        sized(b"decoded", 9, "Content-Encoding: zstd"),
        *(sized(body, 9, f"Content-Encoding: {coding}") for coding, body in CODED.items()),
        sized(TEXT, len(TEXT)),
        sized(TEXT, 0),
        response(url(1), TEXT, head("Content-Length: 1", "Content-Length: 9999"), **NEW),
        response(url(1), TEXT, head("Content-Length: x"), **NEW),
        response(url(1), TEXT, head(f"Content-Length: {'9' * 5_000}"), **NEW),
        response(url(1), b"", head("Content-Length: 0", "Content-Encoding: none"), **NEW),
    ):
        assert PagesImported(1, 0, {}, ()) == taken(store, one)
        store.delete(url(1))


RANGES = {
    "bytes 0-4/5": True, "Bytes 0-4/5": True, "bytes=0-4/5": False, "bytes 0-4/*": False, "bytes 0-4/6": False,
    "bytes 1-5/5": False, "bytes 0-3/4": False, "bytes 0-5/6": False, "": False,
}  # fmt: skip


def test_a_partial_answer_with_the_whole_body_is_a_page(store: PageStore) -> None:
    """browsertrix-crawler#646: browsers ask for a range that is the whole video."""
    answers = [
        response(url(given), b"video", head(f"Content-Range: {given}", status="206 Partial"))
        for given in RANGES
    ]
    assert {"status 206": 7} == taken(store, *answers).skipped
    assert {"https://example.com/bytes%200-4/5", "https://example.com/Bytes%200-4/5"} == set(store)


def test_what_follows_an_export_is_another_tool_s(store: PageStore, tmp_path: Path) -> None:
    """Without a warcinfo of its own, too: a page of an export says so itself."""
    with PageStore(tmp_path / "own") as own:
        own.put(url(9), b"x", headers={"Content-Length": "9"}, status=103)
        ours = exported(own)
    assert PagesImported(1, 0, {"truncated": 1}, ()) == taken(
        store, ours, MEMBERS([PIECES["short"][0]]), form=PLAIN
    )


def test_an_encoding_that_can_t_be_decoded_is_said_once(store: PageStore) -> None:
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
def test_a_revisit_finds_its_body_wherever_it_is(
    store: PageStore, files: list[list[str]], again: bytes, *, is_at_once: bool
) -> None:
    """In the same file or another one, in front or behind, and in the store, though the page has changed since."""
    known = {"first": FIRST, "between": BETWEEN, "again": again}
    sources = [BytesIO(PLAIN([known[name] for name in names])) for names in files]
    for some in [sources] if is_at_once else [[source] for source in sources]:
        assert () == import_warc(store, *some).damaged
    if not is_at_once and files[-1] == ["first"]:
        # When the revisit came, its body had not, and then it was too old to be stored.
        assert {url(1): b"between"} == bodies(store)
        return
    page = got(store, url(1 if again is BACK else 9))
    assert (b"first", 203, 3) == (page.body, page.status, page.at.day)
    assert {url(1), page.url} == set(store)


def bare(target: str, to: str, **fields: str) -> bytes:
    """The record of a revisit without HTTP headers."""
    given = {"WARC_Profile": PROFILE, "WARC_Refers_To_Target_URI": to, **fields}
    return record("revisit", target, b"", WARC_Payload_Digest=digest(b"same"), **given)


def test_a_revisit_without_headers_has_the_right_record_s(store: PageStore) -> None:
    """Not those of a later page with the same body. Heritrix names no record (openwayback#224)."""
    pages = [
        response(url(1), b"same", head(f"Day: {day}"), WARC_Payload_Digest=digest(b"same"), **at(day))
        for day in (1, 2, 3)
    ]  # fmt: skip
    done = taken(store, *pages, bare(url(2), url(1), **at(5), **refers(2)))
    assert PagesImported(4, 0, {}, ()) == done
    assert (("Day", "2"),) == got(store, url(2)).headers
    # The record is nowhere, or not named: then any with this body.
    assert 1 == taken(store, bare(url(3), url(1), **at(5), **refers(9))).stored
    assert 1 == taken(store, pages[0], bare(url(4), "", **at(5))).stored
    assert (b"same", 200) == (got(store, url(4)).body, got(store, url(4)).status)
    # But none of another URL, which may have the same body by chance.
    assert {"revisit": 1} == taken(store, pages[0], bare(url(5), url(7), **at(5), **refers(9))).skipped  # fmt: skip


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_revisit_without_a_digest_is_found_by_time(
    store: PageStore, *, is_first: bool, is_changed: bool
) -> None:
    """And URL. pywb#88: old versions of warcprox wrote such."""
    again = revisit(url(1), url(1), b"", WARC_Payload_Digest="", **at(3), **refers(1))
    pair = [again, FIRST] if is_first else [FIRST, again]
    done = taken(store, response(url(2), b"other", **at(1)), *[BETWEEN] * is_changed, *pair)
    assert ({}, b"first") == (done.skipped, got(store, url(1)).body)


REDIRECT = response(url(2), b"", head("Location: /x", status="301 Moved"), **at(1))
#: Records, and a revisit that gets no body of theirs.
NO_BODIES: dict[str, tuple[list[bytes], bytes]] = {
    "it is missing": ([response(url(1), b"one")], revisit(url(9), url("none"), b"one")),
    "another digest": ([response(url(1), b"firsT", **at(1))], ELSEWHERE),
    "a short piece": ([response(url(1), b"first", head("Content-Length: 9"), **at(1))], ELSEWHERE),
    "a piece": ([response(url(1), b"first", WARC_Truncated="length", **at(1))], ELSEWHERE),
    "another profile": ([FIRST], record("revisit", url(9), HEAD, WARC_Profile="server-not-modified")),
    "no digest": ([FIRST], revisit(url(9), url(1), b"", WARC_Payload_Digest="sha1:AAAA")),
    "another time": ([FIRST], revisit(url(9), url(1), b"", WARC_Payload_Digest="", **at(3), **refers(4))),
    # Its digest is that of the nothing that its tool had got, and a redirect elsewhere has no body either.
    **{
        header: (
            [response(url(1), TEXT, **at(1)), REDIRECT],
            record("revisit", url(9), head(header), WARC_Profile=PROFILE, WARC_Payload_Digest=digest(b""),
                   WARC_Refers_To_Target_URI=url(2), **at(3), **refers(1)),
        )
        for header in ("Content-Length: 5000", "Transfer-Encoding: chunked")
    },
}  # fmt: skip


@pytest.mark.parametrize("why", NO_BODIES)
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_revisit_gets_no_other_body(store: PageStore, why: str, *, is_stored: bool) -> None:
    """Neither of the same file, nor of the store. It is counted."""
    records, again = NO_BODIES[why]
    if is_stored:
        taken(store, *records)
    assert 1 == taken(store, *([] if is_stored else records), again).skipped["revisit"]
    assert url(9) not in store


def test_a_revisit_does_not_get_a_deleted_body(store: PageStore) -> None:
    taken(store, FIRST)
    store.delete(url(1))
    assert {"revisit": 1} == taken(store, ELSEWHERE).skipped
    later = {"WARC_Date": "2019-06-01T04:05:07Z"}
    taken(store, response(url(1), b"first", **later), BETWEEN)
    assert {"revisit": 1} == taken(store, ELSEWHERE).skipped
    assert {url(1): b"between"} == bodies(store)


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
def test_no_piece_or_older_version_replaces_a_page(
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
