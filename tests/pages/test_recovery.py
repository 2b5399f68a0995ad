"""Page stores after a power cut, a kill or an attack; and slices that leave."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from tbloom import TBloomError
from tbloom.pages import PageStore, lock, members, page, record, segments
from tests.helpers.pagestores import (
    DAY,
    NOON,
    Clock,
    assert_killed,
    bodies,
    body_of,
    die,
    files,
    small_disk,
)

BANK, EVIL = "http://bank/", "http://evil/"


pytestmark = pytest.mark.usefixtures("clock")


def segment_of(path: Path) -> Path:
    [found] = files(path)
    return found


FORGED = {
    "page": {},
    "sequence": {b"Sequence: 1000000": b"Sequence: 18446744073709551615"},
    "negative": {b"Sequence: 1000000": b"Sequence: -5"},
    "date": {b".000000Z": b".000000"},
    "kind": {b"WARC-Type: response": b"WARC-Type: revisit"},
}


def hostile(change: dict[bytes, bytes], codec: str) -> bytes:
    """A body with a record in it, which can't be compressed."""
    forged = page.check_page(BANK, b"send it to me", NOON)
    block = record.block_of(record.of_page(forged, 1_000_000, record.new_id(), codec))
    for old, new in change.items():
        assert old in block
        block = block.replace(old, new)
    noise = random.Random(1).randbytes(30_000)
    return noise + members.member(codec, block) + noise[::-1]


@pytest.mark.parametrize("codec", ["identity", "zstd"])
@pytest.mark.parametrize("how", ["torn", "damaged", "damaged first record"])
@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_records_within_a_body_are_none(
    tmp_path: Path, how: str, change: dict[bytes, bytes], codec: str
) -> None:
    """Not even where the record around them is torn or damaged: no other page is replaced, and the store opens."""
    with PageStore(tmp_path, codec=codec) as store:
        store.put(BANK, b"the real one")
        store.put(EVIL, hostile(change, codec))
        store.put("http://last/", b"last")
    path = segment_of(tmp_path)
    data = path.read_bytes()
    *_, evil, _ = segments.records(path, 0, len(data))
    inner = next(members.MAGIC.finditer(data, evil.offset + 1)).start()
    assert evil.offset < inner < evil.offset + evil.length - 1000
    expected = {BANK: b"the real one"}
    if how == "torn":
        path.write_bytes(data[: evil.offset + evil.length - 1000])
        for old in tmp_path.glob("index-*"):  # as if its commit had not come either
            old.unlink()
    else:
        places = [evil.offset] + ([20] if how == "damaged first record" else [])
        for place in places:
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        path.write_bytes(data)
        expected["http://last/"] = b"last"
        PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert expected == {
            url: one.body for url in (BANK, EVIL, "http://last/") if (one := store.get(url))
        }
        store.put("http://after/", b"after")
        assert b"after" == body_of(store, "http://after/")


def test_a_torn_page_does_not_replace_the_one_on_the_disk(tmp_path: Path) -> None:
    """A power cut has left a hole in the newer body, of the same length; either segment may come first."""
    for newer_first in (False, True):
        path = tmp_path / str(newer_first)
        noise = random.Random(3).randbytes(50_000)
        with PageStore(path, segment_bytes=1) as store:
            store.put(BANK, b"old" + noise)
            store.flush()
            store.put(BANK, b"new" + noise)
        older_newer = files(path)
        data = bytearray(older_newer[1].read_bytes())
        data[-20_000:-15_000] = bytes(5_000)
        older_newer[1].write_bytes(data)
        if newer_first:  # the segment of the newer one has the lower number
            older_newer[0].rename(path / "pages-00000009.warc.gz")
        (path / "lock").write_text('{"pid": 1, "boot": "another"}')
        with PageStore(path) as store:
            assert b"old" + noise == body_of(store, BANK)


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


def test_verify_while_a_slice_leaves(tmp_path: Path, clock: Clock) -> None:
    """Pages that have left meanwhile are no problem."""
    with PageStore(tmp_path, "d", 2) as store, PageStore(tmp_path, readonly=True) as reader:
        store.put("http://a/", b"a", at=NOON - DAY)
        store.put("http://b/", b"b")

        def progress(done: int, total: int) -> None:
            assert done <= total
            if not marks:
                marks.append(done)
                clock.now = NOON + DAY
                store.put("http://c/", b"c")

        marks: list[int] = []
        report = reader.verify(progress)
    assert ((), 1) == (report.problems, report.pages)


def test_without_a_boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers look while a writer lives. Once it has died, the index is made anew."""
    monkeypatch.setattr(lock, "_BOOT_ID", tmp_path / "none")
    path = tmp_path / "store"

    def write() -> None:
        store = PageStore(path)
        store.put(BANK, b"killed")
        die()

    assert_killed(write)
    with pytest.raises(TBloomError, match="was started anew"):
        PageStore(path, readonly=True)
    with PageStore(path) as store, PageStore(path, readonly=True) as reader:
        store.put(EVIL, b"evil")
        assert {BANK: b"killed", EVIL: b"evil"} == bodies(reader)
    assert ["index-2.sqlite"] == [one.name for one in path.glob("index-*.sqlite")]


def test_a_segment_whose_first_record_is_damaged_gets_no_more(tmp_path: Path) -> None:
    """Its ID is lost, so records in a page's body could not be told from its own."""
    with PageStore(tmp_path) as store:
        store.put(BANK, b"bank")
    path = segment_of(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:30] + b"\x00" * 9 + data[39:])
    with PageStore(tmp_path) as store:
        store.put(EVIL, b"evil")
    assert data[40:] == path.read_bytes()[40:]
    assert 2 == len(files(tmp_path))
    assert 2 == PageStore.rebuild(tmp_path).pages


def test_puts_that_wait_while_a_store_closes_are_refused(tmp_path: Path) -> None:
    """No page is acknowledged after the others were written to the disk."""
    errors: list[str] = []
    done: set[str] = set()
    store = PageStore(tmp_path)

    def put(name: str) -> None:
        try:
            for n in range(10**9):
                url = f"http://{name}/{n}"
                store.put(url, b"")
                done.add(url)
        except TBloomError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    while len(done) < 50:
        pass
    store.close()
    for thread in threads:
        thread.join()
    assert 4 == len(errors)
    assert all("is closed" in one for one in errors)
    with PageStore(tmp_path) as store:
        assert done == set(bodies(store))


def test_old_slices_leave_a_full_disk(tmp_path: Path, clock: Clock) -> None:
    """Their files make the room that the index needs for it."""
    with small_disk(tmp_path / "disk", "4M") as disk, PageStore(disk / "store", "d", 2) as store:
        for n in range(3_000):
            store.put(f"http://a/{n}", b"")
        room = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize))
        with pytest.raises(OSError, match=r"space|Input"):
            store.put("http://b/", random.Random(1).randbytes(1_000_000))
        clock.now = NOON + 3 * DAY
        store.put(BANK, b"there is room")
        assert {BANK: b"there is room"} == bodies(store)
        assert 1 == len(files(disk / "store"))


def damage_last_record(path: Path) -> None:
    data = bytearray(path.read_bytes())
    begin = [*members.MAGIC.finditer(data)][-1].start()
    data[begin + 30 : begin + 60] = bytes(30)
    path.write_bytes(data)


def test_a_damaged_deletion_does_not_bring_its_page_back(tmp_path: Path) -> None:
    """It stands in the file twice."""
    with PageStore(tmp_path) as store:
        store.put(BANK, b"bank")
        store.put(EVIL, b"evil")
        store.delete(EVIL)
    damage_last_record(segment_of(tmp_path))
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert {BANK: b"bank"} == bodies(store)


def test_pages_in_any_order_of_time_open_each_file_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over more slices than files may be open; the start of each file is read once at most."""
    reads = []
    first_of = segments.first_of
    monkeypatch.setattr(segments, "first_of", lambda p: reads.append(p) or first_of(p))
    chance = random.Random(1)
    with PageStore(tmp_path, "h", 100) as store:
        for n in range(1_000):
            store.put(f"http://a/{n}", b"", at=NOON - chance.randrange(90) * DAY / 24)
        assert 1_000 == len(store)
    assert len(reads) <= len(files(tmp_path))
