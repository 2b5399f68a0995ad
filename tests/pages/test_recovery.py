"""Page stores after damage and attacks: what a rebuild finds again, and what verify names."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tbloom import TBloomError
from tbloom.pages import PageStore, members, page, record, segments
from tests.helpers.pagestores import NOON, bodies, files, url

BANK, EVIL = "http://bank/", "http://evil/"


pytestmark = pytest.mark.usefixtures("clock")


@pytest.mark.parametrize("codec", ["identity", "zstd"])
def test_records_within_a_body_are_none(tmp_path: Path, codec: str) -> None:
    """Not even where the record around them is damaged: no other page is replaced."""
    forged = page.check_page(BANK, b"send it to me", NOON)
    noise = random.Random(1).randbytes(30_000)
    hostile = noise + record.of_page(forged, 1_000_000, record.new_id(), codec) + noise[::-1]
    with PageStore(tmp_path, codec=codec) as store:
        store.put(BANK, b"the real one")
        store.put(EVIL, hostile)
        store.put("http://last/", b"last")
    [path] = files(tmp_path)
    data = bytearray(path.read_bytes())
    *_, evil, _ = segments.records(path, 0, len(data))
    data[evil.offset] ^= 1
    path.write_bytes(data)
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert {BANK: b"the real one", "http://last/": b"last"} == bodies(store)


def test_a_damaged_page_that_was_put_again_is_not_taken_for_deleted(tmp_path: Path) -> None:
    """As before the index was made anew, an error says so."""
    with PageStore(tmp_path, segment_bytes=1) as store:
        store.put(BANK, b"deleted")
        store.delete(BANK)
        store.put(BANK, random.Random(4).randbytes(20_000))
    newest = files(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    data[-10_000] ^= 1
    newest.write_bytes(data)
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path, readonly=True) as store, pytest.raises(TBloomError, match="damaged"):
        store.get(BANK)


@pytest.mark.parametrize("codec", members.SUFFIXES)
def test_a_wrong_length_of_a_record_hides_no_other(path: Path, codec: str) -> None:
    """Any bit of the record's first bytes is wrong: a rebuild has all other pages."""
    with PageStore(path, codec=codec) as store:
        for page in range(4):
            store.put(url(page), b"%d" % page * 300)
    [segment] = files(path)
    whole = segment.read_bytes()
    damaged = [match.start() for match in members.MAGIC.finditer(whole)][2]
    for bit in range(8 * 32):
        changed = bytearray(whole)
        changed[damaged + bit // 8] ^= 1 << bit % 8
        segment.write_bytes(changed)
        assert PageStore.rebuild(path).pages in (3, 4)
        with PageStore(path, readonly=True) as store:
            assert all(url(page) in store for page in (0, 2, 3))


def test_a_segment_whose_first_record_is_damaged_gets_no_more(tmp_path: Path) -> None:
    """Its ID is lost, so records in a page's body could not be told from its own."""
    with PageStore(tmp_path) as store:
        store.put(BANK, b"bank")
    [path] = files(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:30] + b"\x00" * 9 + data[39:])
    with PageStore(tmp_path) as store:
        store.put(EVIL, b"evil")
    assert data[40:] == path.read_bytes()[40:]
    assert 2 == len(files(tmp_path))
    assert 2 == PageStore.rebuild(tmp_path).pages


def test_a_damaged_deletion_does_not_bring_its_page_back(tmp_path: Path) -> None:
    """It stands in the file twice."""
    with PageStore(tmp_path) as store:
        store.put(BANK, b"bank")
        store.put(EVIL, b"evil")
        store.delete(EVIL)
    [path] = files(tmp_path)
    data = bytearray(path.read_bytes())
    begin = [*members.MAGIC.finditer(data)][-1].start()
    data[begin + 30 : begin + 60] = bytes(30)
    path.write_bytes(data)
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert {BANK: b"bank"} == bodies(store)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (rb"WARC/1.1", b"WORC/1.1", "it is no WARC record"),
        (rb"Content-Length: \d+", b"Content-Length: +9", "its lengths contradict each other"),
        (rb"Content-Length: \d+", b"Content-Length: 9", "its lengths contradict each other"),
        (rb"\r\n\r\n\Z", b"\r\n\r\n ", "its lengths contradict each other"),
        (rb"Payload-Digest: sha1:..", b"Payload-Digest: sha1:??", "its digest is not sha1:??"),
        (rb"Payload-Digest: sha1:", b"Payload-Digest: ", "its digest is not "),
        (rb"Payload-Digest: sha1:", b"Payload-Digest: md55:", "its digest is not "),
        (rb"WARC-Payload-Digest", b"Digest", "it has no digest"),
        (rb"body", b"BODY", "its digest is not sha1:"),
    ],
)
def test_verify_names_a_record_that_is_not_what_it_was(
    path: Path, old: bytes, new: bytes, why: str
) -> None:
    """Its gzip member is whole, with all fields for the index."""
    with PageStore(path) as store:
        store.put(BANK, b"body")
    [segment] = files(path)
    data = segment.read_bytes()
    _, found = segments.records(segment, 0, len(data))
    block = re.sub(old, new, record.block_of(data[found.offset :]))
    segment.write_bytes(data[: found.offset] + members.member("gzip", block))
    PageStore.rebuild(path)
    with PageStore(path, readonly=True) as store:
        [problem] = store.verify().problems
    assert problem.startswith(f"{segment}: the record at {found.offset} is damaged: {why}")
