"""A page store through kills, full disks, interrupts and damage: what was acknowledged is there, byte for byte."""

from __future__ import annotations

import errno
import gzip
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tbloom import TBloomError
from tbloom.pages import Page, PageStore, record, segments
from tests.helpers.making import Child
from tests.helpers.pagestores import (
    CODECS,
    DAY,
    NOON,
    bodies,
    body_of,
    die,
    files,
    flip,
    mounted,
    run_tool,
    url,
)

pytestmark = pytest.mark.usefixtures("clock")


def body(number: int, size: int = 300) -> bytes:
    return random.Random(number).randbytes(size)


def check(path: Path, **parameters: Any) -> dict[str, bytes]:
    """The pages of a store without problems, whose files end where the index says."""
    with PageStore(path, **parameters) as store:
        pages = bodies(store)
        assert () == store.verify().problems
        known = {segment.name: segment.size for segment in store._index.segments()}
        assert known == {file.name: file.stat().st_size for file in files(path)}
    return pages


HOUR = timedelta(hours=1)
BANK, EVIL = "http://bank/", "http://evil/"


def _fill(store: PageStore) -> dict[str, bytes]:
    """12 pages, in three slices."""
    pages = {url(number): body(number) for number in range(12)}
    for number, (address, data) in enumerate(pages.items()):
        store.put(address, data, at=NOON - number % 3 * DAY)
    return pages


def _filled(path: Path, **parameters: Any) -> dict[str, bytes]:
    with PageStore(path, "d", 3, **parameters) as store:
        return _fill(store)


#: Functions that change files, or a database.
STEPS = {"pwrite", "truncate", "ftruncate", "unlink", "rename", "mkdir", "execute"}


def killed_at_each_step(path: Path, work: Callable[[Path], object], every: int) -> Iterator[Path]:
    """Copies of a store, each used by a child that was killed before another change of a file, or each ``every``-th.

    The last copy is that of a child that came to its end.
    """
    for number in count(1, every):
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        if path.exists():
            shutil.copytree(path, copy)
        code = Child(partial(_killed_at, number, copy, work)).wait()
        assert code in {0, -signal.SIGKILL}
        yield copy
        if code == 0:
            assert number > 3
            return


def _killed_at(left: int, path: Path, work: Callable[[Path], object]) -> None:
    """Does the work; is killed before the step with this number. Some of what is written is written in two parts."""
    pwrite, is_half = os.pwrite, cycle([True, False])

    def write_some(fd: int, data: memoryview, offset: int) -> int:
        return pwrite(fd, data[: len(data) // 2 or 1] if next(is_half) else data, offset)

    def look(_: object, event: str, function: object) -> None:
        nonlocal left
        left -= event == "c_call" and getattr(function, "__name__", "") in STEPS
        if left == 0:
            die()

    os.pwrite = write_some  # type: ignore[assignment]
    sys.setprofile(look)
    work(path)
    sys.setprofile(None)


def _with_store(change: Callable[[PageStore], object], **options: Any) -> Callable[[Path], None]:
    def work(path: Path) -> None:
        with PageStore(path, "d", 3, **options) as store:
            change(store)

    return work


#: One moves to an earlier slice, one to a later one, and one stays.
BATCH = [Page(url(n), 200, (), b"new" * 500, NOON - (1, 0, 2)[n] * DAY) for n in range(3)]
LONG = b"new" * 1000
#: What is done, and the pages that it may change, with their new bodies.
CHANGES: dict[str, tuple[Callable[[Path], object], dict[str, bytes | None]]] = {
    "put": (_with_store(lambda store: store.put(url(3), LONG)), {url(3): LONG}),
    "segment": (
        _with_store(lambda store: store.put(url(3), LONG), segment_bytes=1),
        {url(3): LONG},
    ),
    "delete": (_with_store(lambda store: store.delete(url(3))), {url(3): None}),
    "batch": (
        _with_store(lambda store: store.put_many(BATCH), segment_bytes=3_000),
        {page.url: page.body for page in BATCH},
    ),
    "period": (_with_store(lambda store: store.put(url(99), LONG)), {url(99): LONG}),
    "rebuild": (PageStore.rebuild, {}),
}


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.check)])
@pytest.mark.parametrize(("what", "is_new"), [*((what, False) for what in CHANGES), ("put", True)])
def test_a_change_that_is_killed_is_made_or_not(
    path: Path, clock: SimpleNamespace, what: str, *, is_new: bool, every: int
) -> None:
    """Each page is as it was before, or as it was put; the next writer goes on, also in a new store whose beginning was
    killed, and a rebuild changes nothing. A reader needs no writer before it. Only if the last steps of a rebuild are killed,
    the store has no index, and says so."""
    pages = {} if is_new else _filled(path)
    work, new = CHANGES[what]
    if what == "period":  # the oldest slice leaves
        clock.now += DAY
        pages = {url(number): body(number) for number in range(12) if number % 3 < 2}
    changed = {address: data for address, data in {**pages, **new}.items() if data is not None}
    for copy in killed_at_each_step(path, work, every):
        if what == "rebuild" and not (copy / "index.sqlite").exists():
            for readonly in (False, True):
                with pytest.raises(TBloomError, match=r"has no index.*tbloom pages rebuild"):
                    PageStore(copy, readonly=readonly)
            PageStore.rebuild(copy)
        if pages:
            with PageStore(copy, readonly=True) as store:
                assert {*pages} - {*new} <= bodies(store).keys()
        there = check(copy, granularity="d", slices=3)
        for address in {**pages, **new}:
            assert there.get(address) in (pages.get(address), changed.get(address))
        assert {"index.sqlite", "index.sqlite-shm", "index.sqlite-wal"} == {
            file.name for file in copy.glob("index.sqlite*")
        }
        if there:
            PageStore.rebuild(copy)
            assert there == check(copy)
        work(copy)
        assert changed == check(copy)
    assert changed == there


@pytest.mark.parametrize("how", [PageStore.flush, PageStore.close])
@pytest.mark.parametrize("after", ["", "a rebuild", "a failed flush"])
def test_flushed_pages_are_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[PageStore], None], after: str
) -> None:
    """All segments, also those of a killed writer; the folder with their names; and the index. The next writer waits only for
    those to which it has written."""
    synced, fsync = set[int](), os.fsync  # inodes

    def note(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fsync(fd)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "no disk", fd)

    def be_killed() -> None:
        store = PageStore(path, "d", 3, segment_bytes=1)
        _fill(store)
        die()

    assert -signal.SIGKILL == Child(be_killed).wait()
    if after == "a failed flush":
        store = PageStore(path)
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no disk"):
            store.close()
    monkeypatch.setattr(os, "fsync", note)
    if after == "a rebuild":
        PageStore.rebuild(path)
    with PageStore(path, "d", 3, segment_bytes=1) as store:
        _fill(store)
        assert 24 == len(files(path))
        how(store)
        log = path / "index.sqlite-wal"
        assert {each.stat().st_ino for each in (path, log, *files(path))} <= synced
    synced.clear()
    with PageStore(path, segment_bytes=1) as store:
        store.put(BANK, b"bank", at=NOON)
        how(store)
    assert 1 == len(synced & {each.stat().st_ino for each in files(path)})


def test_a_missing_or_cut_segment_is_named(path: Path) -> None:
    """A writer's opening names it, and says what to do; for a reader, ``get`` does (warcio#138)."""
    pages = _filled(path, segment_bytes=1)
    file = files(path)[4]
    data = file.read_bytes()
    name = file.name
    for damaged in (None, data[:-10], b""):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(TBloomError, match=f"{name}.*' has .*tbloom pages rebuild"):
            PageStore(path)
        with PageStore(path, readonly=True) as store:
            lost = []
            for address in pages:
                try:
                    store.get(address)
                except TBloomError as error:
                    assert name in str(error)  # noqa: PT017
                    lost.append(address)
            assert 1 == len(lost)
            problems = store.verify().problems
            assert f"{file}: the index has 1 pages, and 0 of them are where it says" in problems
            assert len(problems) > 1
            assert len(pages) - 1 == len([*store.pages()])
        if damaged:  # as docs/pages.md says
            assert run_tool("warcio", "check", file) == ""
        file.write_bytes(data)
        assert pages == check(path)
    file.unlink()
    PageStore.rebuild(path)
    assert {address: pages[address] for address in pages if address not in lost} == check(path)


def _anew(file: Path, how: str) -> bytes:
    """What another program makes of a segment."""
    if how == "recompress":
        run_tool("warcio", "recompress", file, file.with_name("new"))
        file.with_name("new").rename(file)
    elif how == "gzip":
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())))
    else:
        file.write_bytes(gzip.decompress(file.read_bytes()))
    return file.read_bytes()


@pytest.mark.parametrize("how", ["recompress", "gzip", "gunzip"])
def test_a_segment_compressed_anew_is_read_by_a_rebuild(
    path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Record by record. One that was compressed as a whole is named, stays as it is, and can be compressed again. Deleted pages
    stay deleted, and new ones go behind."""
    with PageStore(path) as store:
        pages = _fill(store)
        store.put(BANK, b"bank")
        store.delete(BANK)
    [file] = files(path)
    found = _anew(file, how)
    if how != "recompress":
        with PageStore(path.with_name("other")) as store:
            store.put(EVIL, b"evil")
        [other] = files(path.with_name("other"))
        other = other.rename(path / "all-00000002.warc.gz")
        PageStore.rebuild(path)
        assert f"{file}: at 0, {len(found)} bytes are no record: " in caplog.messages[0]
        assert found == file.read_bytes()
        with PageStore(path) as store:
            assert {EVIL: b"evil"} == bodies(store)
        other.unlink()
        _anew(file, "recompress")
    PageStore.rebuild(path)
    assert pages == check(path)
    with PageStore(path) as store:
        store.put(BANK, b"bank again")
    PageStore.rebuild(path)
    assert {**pages, BANK: b"bank again"} == check(path)


TORN = record.of_page(Page(url("torn"), 200, (), b"torn" * 99, NOON), 99, record.new_id(), "gzip")


@pytest.mark.parametrize(
    "tail",
    [
        *(TORN[:n] for n in (1, 12, 30, 200)),
        b"\0" * 99,
        b"text\n",
        gzip.compress(b"a", mtime=0),
        TORN,
    ],
    ids=range(8),
)
def test_only_a_torn_record_is_cut(path: Path, tail: bytes) -> None:
    """Other bytes stay in the file (wpull#253). Pages go behind, and a rebuild changes nothing."""
    with PageStore(path, "d", 3) as store:
        store.put(BANK, b"bank")
    [file] = files(path)
    whole = file.read_bytes()
    file.write_bytes(whole + tail)
    with PageStore(path) as store:
        is_torn = tail in {TORN[:n] for n in range(len(TORN))}
        assert file.read_bytes() == whole + (b"" if is_torn else tail)
        store.put(EVIL, b"behind")
    PageStore.rebuild(path)
    with PageStore(path) as store:
        assert {BANK: b"bank", EVIL: b"behind"} == bodies(store)
    assert file.read_bytes().startswith(whole + (b"" if is_torn else tail))


def test_a_segment_changed_by_another_program_gets_no_record(path: Path) -> None:
    """The put raises, and cuts nothing."""
    with PageStore(path) as store:
        pages = _fill(store)
        [file] = files(path)
        found = gzip.compress(gzip.decompress(file.read_bytes()), 1)
        file.write_bytes(found)
        with pytest.raises(TBloomError, match=f"{file.name}.* has .*tbloom pages rebuild"):
            store.put(BANK, b"bank")
        assert BANK not in store
    assert found == file.read_bytes()
    _anew(file, "recompress")
    PageStore.rebuild(path)
    assert pages == check(path)


def _put_until_full(store: PageStore, seed: int) -> dict[str, bytes]:
    """The pages that were acknowledged before a third one found the disk full."""
    done, failed = dict[str, bytes](), 0
    for number in count():
        address, data = url(f"{seed}-{number}"), body(seed + number, 200 + number * 37 % 3000)
        try:
            store.put(address, data)
        except OSError as error:
            assert error.errno in (errno.EFBIG, errno.ENOSPC, errno.EIO), error  # noqa: PT017
            failed += 1
            if failed == 3:
                break
        else:
            done[address] = data
    return done


def test_a_full_disk_loses_no_page(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, however little room is left, and puts work again when there is some (wpull#52)."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1M", "tmpfs") as disk:
        path, ballast = disk / "store", disk / "ballast"
        expected = {url("first"): b"first"}
        with PageStore(path, segment_bytes=20_000) as store:
            store.put(url("first"), b"first")
            for run in range(4):
                free = os.statvfs(disk).f_bavail * 4096
                ballast.write_bytes(bytes(max(0, free - 4096 * (run + 1) * 6)))
                expected |= _put_until_full(store, run)
                assert expected == bodies(store)
                assert () == store.verify().problems
                ballast.unlink()
                store.put(url(f"after-{run}"), body(run, 100))
                expected[url(f"after-{run}")] = body(run, 100)
        assert expected == check(path)
        assert run_tool("warcio", "check", *files(path)) == ""


def test_the_first_put_of_a_period_has_room(tmp_path: Path, clock: SimpleNamespace) -> None:
    """On a full disk, too (scrapy#3204)."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2M", "tmpfs") as disk:
        with PageStore(disk / "store", "d", 1) as store:
            store.put(BANK, body(1, 1_200_000))
            with pytest.raises(OSError, match="No space left"):
                store.put(EVIL, body(2, 1_200_000))
            clock.now += DAY
            store.put(EVIL, body(2, 1_200_000))
            assert {EVIL: body(2, 1_200_000)} == bodies(store)
        assert {EVIL: body(2, 1_200_000)} == check(disk / "store")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C."""


def _interrupting(n: int) -> Callable[..., Any]:
    """A trace function that raises at the n-th call from or to the store's code: Python looks for signals there."""
    left = n

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if "tbloom/pages" not in name and not name.endswith("contextlib.py"):
            return None
        left -= 1
        if left == 0:
            sys.settrace(None)
            raise Interrupted(frame.f_code.co_name, event)
        return None

    return trace


@pytest.mark.parametrize("runs", [500, pytest.param(5000, marks=pytest.mark.check)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of generators
def test_an_interrupted_change_is_made_or_not(path: Path, runs: int) -> None:
    """Ctrl-C anywhere in a put or a delete: the change is made or not, and the store goes on."""
    chance, interrupted = random.Random(5), 0
    expected: dict[str, bytes | None] = {}
    with PageStore(path, "d", 3, segment_bytes=1500) as store:
        for number in range(runs):
            address = url(chance.randrange(60))
            before, data = expected.get(address), body(number, chance.randrange(600))
            is_put = chance.random() < 0.8
            was = sys.gettrace()
            sys.settrace(_interrupting(chance.randrange(1, 250)))
            try:
                if is_put:
                    store.put(address, data, at=NOON - chance.randrange(3) * DAY)
                else:
                    store.delete(address)
            except Interrupted:
                interrupted += 1
            finally:
                sys.settrace(was)
            expected[address] = body_of(store, address)
            assert expected[address] in (before, data if is_put else None)
        expected = {address: data for address, data in expected.items() if data is not None}
        assert expected == bodies(store)
        assert () == store.verify().problems
    assert interrupted > runs // 15
    assert expected == check(path)
    PageStore.rebuild(path)
    assert expected == check(path)


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_within_a_body_is_no_page(tmp_path: Path, codec: str) -> None:
    """Not even where the record around them is damaged: no other page is replaced."""
    forged = Page(BANK, 200, (), b"send it to me", NOON)
    noise = random.Random(1).randbytes(30_000)
    hostile = noise + record.of_page(forged, 1_000_000, record.new_id(), codec) + noise[::-1]
    with PageStore(tmp_path, codec=codec) as store:
        store.put(BANK, b"the real one")
        store.put(EVIL, hostile)
        store.put("http://last/", b"last")
    [path] = files(tmp_path)
    *_, evil, _ = segments.walk(path, 0, path.stat().st_size)
    flip(path, evil.offset)
    PageStore.rebuild(tmp_path)
    with PageStore(tmp_path) as store:
        assert {BANK: b"the real one", "http://last/": b"last"} == bodies(store)


def test_a_deleted_page_does_not_come_back(path: Path, clock: SimpleNamespace) -> None:
    """Nor does one that was replaced, in an older slice which has left since."""
    with PageStore(path, "d", 3) as store:
        store.put(BANK, b"bank")
        store.put("http://replaced/", b"replaced")
        store.put("http://replaced/", b"by this", at=NOON - 2 * DAY)
        store.put(EVIL, b"evil")
        store.delete(EVIL)
    clock.now += DAY
    PageStore(path).close()  # removes the older slice
    PageStore.rebuild(path)
    assert {BANK: b"bank"} == check(path)


def test_a_fresh_file_system_is_a_new_folder(tmp_path: Path) -> None:
    """It has folders of its own (postgresql-operator#1336)."""
    names = "lost+found", ".Trash-0", ".snapshot"
    for name in names:
        (tmp_path / name).mkdir()
    for _ in range(2):
        with PageStore(tmp_path) as store:
            store.put(BANK, b"bank")
        PageStore.rebuild(tmp_path)
    assert {BANK: b"bank"} == check(tmp_path)
    assert {*names} <= {path.name for path in tmp_path.iterdir()}
