"""What an import makes of archives that other software calls sound: it reads all, and puts nothing in the place of a whole, newer page."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zlib import compress

import brotli
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecord
from hypothesis import HealthCheck, example, given, settings
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
    START,
    Form,
    at,
    digest,
    exported,
    head,
    in_forms,
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
@in_forms("plain", "members", "one gzip", "zstd", "pieces", "WACZ")
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


NEW = {"WARC_Date": "2020-06-03T04:05:06Z"}
TEXT = b"<p>a page</p>" * 50
CODINGS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "br": brotli.compress, "deflate": compress, "zstd": zstd.compress}  # fmt: skip


def sized(body: bytes, size: int, *headers: str) -> bytes:
    """A newer response with this Content-Length."""
    return response(url(1), body, head(f"Content-Length: {size}", *headers), **NEW)


def test_a_page_whose_length_is_another_is_stored(store: PageStore) -> None:
    """For other reasons than a cut: a tool has decoded it, and left the headers; or the server was wrong."""
    for one in (
        sized(b"decoded", 9, "Content-Encoding: gzip"),
        sized(b"decoded", 9, "Content-Encoding: zstd"),
        *(sized(coded(TEXT), 9, f"Content-Encoding: {name}") for name, coded in CODINGS.items()),
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
    cut = MEMBERS([sized(TEXT[:100], len(TEXT))])
    assert PagesImported(1, 0, {"truncated": 1}, ()) == taken(store, ours, cut, form=PLAIN)


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
    """A record of a random archive: its page's number and time, what kind it is, its body, how much of this is missing in a
    piece, and whether its digests are those of the block and the payload, of the payload without the chunks' lengths, or none."""

    page: int
    day: int
    kind: str
    body: int
    missing: int = 7
    digests: str = "stored"


def in_chunks(body: bytes) -> bytes:
    """The body in chunks, without the last one."""
    pieces = [body[at : at + 99] for at in range(0, len(body), 99)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def interim(status: str, then: bytes = b"") -> bytes:
    return head("Link: </a>", status=status) + then


def pieces_of(body: bytes, missing: int) -> dict[str, tuple[bytes, str]]:
    """What tools store of a page of which they did not get all, and the kind that is counted."""

    def but(body: bytes) -> bytes:
        return body[: max(0, len(body) - missing)]

    size, chunks = f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"
    coded = {name: compress(body) for name, compress in CODINGS.items()}
    truncated = {
        "short": head(size) + but(body),
        "two equal lengths": head(size, size.lower()) + but(body),
        "chunks": head(chunks) + but(in_chunks(body) + b"!"),
        "no end of headers": b"HTTP/1.1 200 OK\r\nA: 1\r\nB",
        "status line only": b"HTTP/1.1 200 OK\r\n",
        "WARC-Truncated": head() + body,
        "short behind interim": interim("103 Early Hints", head(size) + but(body)),
    } | {
        f"short {name}": head(f"Content-Length: {len(one)}", f"Content-Encoding: {name}") + but(one)
        for name, one in coded.items()
    }
    return {kind: (block, "truncated") for kind, block in truncated.items()} | {
        "partial": (head(size, status="206 Partial Content") + body, "status 206"),
        "unmodified": (head(status="304 Not Modified"), "status 304"),
        "two interim": (interim("100 Continue", interim("103 Early Hints")), "status 103"),
        "cut behind interim": (interim("103 Early Hints", b"HTTP/1.1 20"), "not HTTP"),
        **{f"interim {status}": (interim(f"{status} X"), f"status {status}") for status in (100, 101, 102, 103, 199)},
    }  # fmt: skip


#: Kinds that have the whole page, or find it elsewhere, or have a piece.
WHOLES, REVISITS, PIECES = {"whole", "chunked"}, {"revisit", "long revisit"}, {*pieces_of(b"", 1)}


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
    if made.kind in PIECES:
        block, _ = pieces_of(body, made.missing)[made.kind]
    elif made.kind == "whole":
        block = head(f"Content-Length: {len(body)}") + body
    else:
        block = head("Transfer-Encoding: chunked") + in_chunks(body) + b"0\r\n\r\n"
    if made.kind == "WARC-Truncated":
        fields["WARC_Truncated"] = "time"
    payload = block.partition(b"\r\n\r\n")[2]
    if made.digests == "joined" and made.kind in {"chunks", "chunked"}:
        fields["WARC_Payload_Digest"] = digest(re.sub(rb"(?:\r\n)?\w+\r\n", b"", payload))
    elif made.digests == "stored":
        fields |= {"WARC_Block_Digest": digest(block), "WARC_Payload_Digest": digest(payload)}
    return record("response", target, block, **fields)


KINDS = st.one_of(*(st.sampled_from(sorted(kinds)) for kinds in (WHOLES, REVISITS, PIECES)))
DIGESTS = st.sampled_from(["stored", "joined", "none"])
MADE = st.lists(
    st.builds(Made, st.integers(0, 2), st.integers(1, 20), KINDS, st.integers(0, 4), st.integers(1, 300), DIGESTS),
    max_size=12,
    unique_by=lambda made: (made.page, made.day),
)  # fmt: skip
#: A whole page, and then a piece of each kind.
EACH = [Made(0, 1, "whole", 0)] + [Made(0, n, each, 1) for n, each in enumerate(sorted(PIECES), 2)]

ONCE = 1, "plain", random.Random(1), True


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    MADE,
    st.integers(1, 3),
    st.sampled_from([*FORMS]),
    st.randoms(use_true_random=False),
    st.booleans(),
)
@example(EACH, *ONCE)
@example(
    EACH[:1]
    + [Made(0, n, "chunks", 1, n, ("stored", "joined", "none")[n % 3]) for n in range(2, 300)],
    *ONCE,
)
def test_no_piece_or_older_version_replaces_a_page(
    made: list[Made], count: int, form: str, chance: random.Random, is_at_once: bool
) -> None:
    """Random archives of such records, in any order, in several files, twice: each page is the newest whole one.
    webarchive-discovery#212, openwayback#254: other tools store pieces."""
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
            found = {page.url: ((page.at - START).days, page.body) for page in store.pages()}
            assert found == expected or not is_at_once
            assert not any(done.damaged for done in dones)
            for target, (day, body) in found.items():
                assert body == known[target, day]
            assert all(found[target][0] >= day for target, day in newest.items())
        counted = Counter(pieces_of(b"", 1)[one.kind][1] for one in made if one.kind in PIECES)
        skipped = sum((Counter(done.skipped) for done in dones), Counter[str]())
        assert counted == skipped - Counter(revisit=skipped["revisit"])
        assert store.verify().problems == ()
