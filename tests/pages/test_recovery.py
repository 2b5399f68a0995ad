"""Page stores after damage and attacks: what a rebuild finds again, and what verify names."""

from __future__ import annotations

import errno
import os
import random
import re
from pathlib import Path

import pytest

from tbloom import TBloomError
from tbloom.pages import PageStore, members, page, record, segments
from tests.helpers.pagestores import DAY, NOON, bodies, body_of, copied, files, flip, url

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
    *_, evil, _ = segments.records(path, 0, path.stat().st_size)
    flip(path, evil.offset)
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert {BANK: b"the real one", "http://last/": b"last"} == bodies(store)


def test_a_damaged_page_that_was_put_again_is_not_taken_for_deleted(tmp_path: Path) -> None:
    """As before the index was made anew, an error says so."""
    with PageStore(tmp_path, segment_bytes=1) as store:
        store.put(BANK, b"deleted")
        store.delete(BANK)
        store.put(BANK, random.Random(4).randbytes(20_000))
    flip(files(tmp_path)[-1], -10_000)
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


def test_a_torn_page_whose_body_is_its_segment_brings_no_old_page_back(path: Path) -> None:
    """As where a crawler has fetched the store's own folder: the records in the body have the segment's ID."""
    with PageStore(path, codec="identity") as store:
        store.put(BANK, b"old")
        store.put(EVIL, b"deleted")
        own = files(path)[0].read_bytes()
        store.put(BANK, b"new")
        store.delete(EVIL)
    before = copied(path, path.with_name("before"))
    with PageStore(path, codec="identity") as store:
        store.put(url("mirror"), own)
    files(before)[0].write_bytes(files(path)[0].read_bytes()[:-10])
    with PageStore(before) as store:
        assert {BANK: b"new"} == bodies(store)
        assert () == store.verify().problems


def test_a_segment_that_is_put_back_after_a_rebuild_needs_another_one(path: Path) -> None:
    """Its pages may have been replaced, or deleted, since."""
    with PageStore(path, segment_bytes=1) as store:
        for address in (BANK, EVIL, url("kept")):
            store.put(address, b"old")
    lost = [(file, file.read_bytes()) for file in files(path)]
    for file, _ in lost[:2]:
        file.unlink()
    PageStore.rebuild(path)
    with PageStore(path, segment_bytes=1) as store:
        store.put(BANK, b"new")
        store.put(EVIL, b"newer")
        store.delete(EVIL)
    for file, data in lost[:2]:
        file.write_bytes(data)
    with pytest.raises(
        TBloomError, match=r"from before the index was made.*'tbloom pages rebuild'"
    ):
        PageStore(path)
    PageStore.rebuild(path)
    with PageStore(path) as store:
        assert {BANK: b"new", url("kept"): b"old"} == bodies(store)


def test_a_change_that_could_not_be_taken_back_is_before_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails, or Ctrl-C comes twice; the next change is in another slice."""
    with PageStore(path, "d", 3) as store:
        store.put(BANK, b"old", at=NOON - DAY)
        truncate, failing = (
            os.truncate,
            [OSError(errno.EIO, "truncate"), OSError(errno.EIO, "note")],
        )

        def fail(*arguments: object) -> None:
            if failing:
                raise failing.pop()
            truncate(*arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(os, "truncate", fail)
            patch.setattr(store._writer._segments, "note", fail)
            with pytest.raises(OSError, match="truncate"):
                store.put(BANK, b"half", at=NOON - DAY)
        assert b"old" == body_of(store, BANK)
        store.put(EVIL, b"next", at=NOON)
    PageStore.rebuild(path)
    with PageStore(path) as store:
        assert {BANK: b"old", EVIL: b"next"} == bodies(store)
