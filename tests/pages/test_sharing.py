"""A page store that several use: readers and one writer, in threads, processes and forked children."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from tbloom.errors import StoreLocked, TBloomError
from tbloom.pages import Page, PageStore, clock, export_warc
from tbloom.pages.index import NAME
from tests.helpers.localredis import again_and_again
from tests.helpers.making import Child, Partner, missing
from tests.helpers.pagestores import DAY, NOON, bodies, body_of, die, got, mounted, url


def filled(path: Path, pages: int = 50, body: bytes = b"%d") -> None:
    with PageStore(path) as store:
        for number in range(pages):
            store.put(url(number), body.replace(b"%d", b"%d" % number))


def test_readers_find_acknowledged_pages(path: Path) -> None:
    """At once, in another process, which has opened it before the writer."""
    filled(path, 1)

    def read(writer: Connection) -> None:
        with PageStore(path, readonly=True) as store:
            writer.send("opened")
            while number := writer.recv():
                assert b"%d" % number == body_of(store, url(number))
                assert number + 1 == len(store)
                writer.send(number)

    with Partner(read) as child:
        assert "opened" == child.connection.recv()
        with PageStore(path) as store:
            for number in range(1, 100):
                store.put(url(number), b"%d" % number)
                child.connection.send(number)
                assert number == child.connection.recv()
        child.connection.send(0)
        assert 0 == child.wait()


def test_a_second_writer_is_refused(path: Path) -> None:
    """The error names the writer, in this process or another one. Once that is killed, another one may write, also while
    a child of it lives on."""
    filled(path)

    def write(parent: Connection) -> None:
        def live_on() -> None:
            parent.send(os.getpid())  # it has run what follows a fork
            signal.pause()

        store = PageStore(path)
        store.put(url("more"), b"more")
        Child(live_on)
        signal.pause()

    with Partner(write) as child:
        grandchild = child.connection.recv()
        for verb in (PageStore, PageStore.rebuild):
            with pytest.raises(StoreLocked, match=f"process {child.pid}") as caught:
                verb(path)
            assert (str(path), child.pid) == (caught.value.path, caught.value.pid)
        child.kill()
    with PageStore(path) as store:
        assert b"more" == body_of(store, url("more"))
        with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
            PageStore(path)
        store.put(url("again"), b"again")
        os.kill(grandchild, signal.SIGKILL)
    with PageStore(path) as store:
        assert 52 == len(store)


WINDOWS: dict[str, dict[str, Any]] = {"forever": {}, "window": {"granularity": "d", "slices": 7}}


def rewritten(page: Page) -> Page:
    return replace(page, body=page.body + b"!")


def by_url(store: PageStore) -> Iterator[str]:
    for address in store:
        store.put_many([rewritten(got(store, address))])
        yield str(address)


def by_page(store: PageStore) -> Iterator[str]:
    for page in store.pages():
        store.put_many([rewritten(page)])
        yield page.url


def by_second(store: PageStore) -> Iterator[str]:
    for page in store.fetched_in([int(NOON.timestamp())]):
        store.put_many([rewritten(page)])
        yield page.url


def at_once(store: PageStore) -> Iterator[str]:
    urls = list[str]()

    def pages() -> Iterator[Page]:
        for page in store.pages():
            urls.append(page.url)
            yield rewritten(page)

    store.put_many(pages())
    yield from urls


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("walk", [by_url, by_page, by_second, at_once])
def test_a_loop_that_rewrites_each_page_ends(
    path: Path, walk: Callable[[PageStore], Iterator[str]], window: str
) -> None:
    """Each page is rewritten once, also where that fills further files; new pages do not come (kv-storage#6)."""
    with PageStore(path, **WINDOWS[window], segment_bytes=20_000) as store:
        store.put_many(Page(url(number), 200, (), b"%d" % number, NOON) for number in range(300))
        found, begun = (
            list[str](),
            [iter(store), store.pages(), store.fetched_in([int(NOON.timestamp())])],
        )
        for address in islice(walk(store), 900):
            found.append(address)
            store.put(f"{address}/new", b"", at=NOON + DAY / 9)
        assert sorted(url(number) for number in range(300)) == sorted(found)
        assert b"7!" == body_of(store, url(7))
        assert 600 == len(store)
        assert [300, 300] == [len([*each]) for each in begun[:2]]
        assert b"" not in {page.body for page in begun[2]}


def test_an_export_beside_a_writer_has_each_page_once(path: Path) -> None:
    """Another process rewrites all pages in random order, again and again, while they are listed, exported and verified."""
    urls = sorted(url(number) for number in range(500))

    def write(parent: Connection) -> None:
        chance = Random(5)
        with PageStore(path, segment_bytes=50_000) as store:
            parent.send("opened")
            while not parent.poll(0.001):
                some = chance.sample(urls, 20)
                store.put_many(
                    Page(each, 200, (), chance.randbytes(200), clock.now()) for each in some
                )

    with PageStore(path, **WINDOWS["window"], segment_bytes=50_000) as store:
        store.put_many(Page(each, 200, (), b"", clock.now()) for each in urls)
    with Partner(write) as child, PageStore(path, readonly=True) as store:
        assert "opened" == child.connection.recv()
        for _ in range(3):
            begun = store.stats().records
            assert urls == sorted(map(str, store)) == sorted(page.url for page in store.pages())
            assert 500 == export_warc(store, BytesIO()).pages
            report = store.verify()
            assert (500, ()) == (report.pages, report.problems)
            assert store.stats().records > begun
        child.connection.send("end")
        assert 0 == child.wait()


def test_a_listing_ends_while_its_oldest_slices_leave(path: Path, clock: SimpleNamespace) -> None:
    """What has left comes or not; what stays comes once, also where it is rewritten meanwhile."""
    with PageStore(path, "d", 3) as store:
        for day in range(3):
            clock.now = NOON + day * DAY
            store.put_many(Page(url(f"{day}/{n}"), 200, (), b"", clock.now) for n in range(300))
        found = list[str]()
        for page in store.pages():
            found.append(page.url)
            clock.now = NOON + 3 * DAY
            store.put_many([replace(page, at=clock.now)])
        assert len(found) == len(set(found))
        assert {url(f"{day}/{n}") for day in (1, 2) for n in range(300)} <= {*found}


def test_a_forked_child_only_reads(path: Path) -> None:
    """While threads read and write with the same objects, children can read, but not put; their end changes nothing (solid_queue#324)."""
    filled(path)
    with PageStore(path, segment_bytes=5_000) as store, PageStore(path, readonly=True) as reader:

        def work() -> None:
            for each in (store, reader):
                assert b"7" == body_of(each, url(7))
                assert url(0) == next(iter(each.pages())).url
                for verb in (lambda: each.put(url(1), b""), lambda: each.delete(url(1))):  # noqa: B023
                    with pytest.raises(TBloomError, match=r"was forked from|to be read only"):
                        verb()
            store.close()
            with pytest.raises(StoreLocked):
                PageStore(path)

        numbers = count(10_000)

        def put_and_get() -> None:
            number = next(numbers)
            store.put(url(number), b"%d" % number)
            assert b"%d" % number == body_of(store, url(number)) == body_of(reader, url(number))

        with again_and_again(put_and_get), again_and_again(put_and_get):
            assert [0] * 5 == [Child(work).wait() for _ in range(5)]
            for _ in range(3):
                assert all(page.url for page in reader.pages())
        assert () == reader.verify().problems == store.verify().problems
        assert len(store) == len([*store.pages()])
        store.put(url("last"), b"last")
        assert b"last" == body_of(reader, url("last"))


@pytest.fixture
def open_path() -> Iterator[Path]:
    """In a folder that other users may pass: pytest's are for its user only, and shared with other tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "store"


@pytest.mark.parametrize("is_mount", [False, True], ids=["another user", "read-only mount"])
@pytest.mark.parametrize("ends", ["closed", "killed", "rebuilt"])
def test_a_reader_needs_no_write_permission(open_path: Path, ends: str, *, is_mount: bool) -> None:
    """It needs no writer that is open (vtk-dicom#178). The next one is not hindered, and leaves what is read as it is."""
    if not is_mount and os.geteuid():
        missing("The right to become another user")
    path = open_path
    filled(path)

    def write() -> None:
        store = PageStore(path)
        for number in range(50):
            store.put(url(number), b"1")
        die() if ends == "killed" else store.close()

    Child(write).wait()
    if ends == "rebuilt":
        PageStore.rebuild(path)
    readonly = mounted(path.with_name("seen"), "--bind", "-o", "ro", path)
    with readonly if is_mount else nullcontext(path) as seen:

        def read(parent: Connection) -> None:
            if is_mount:
                with pytest.raises(OSError, match="Read-only file system"):
                    (seen / "more").touch()
            else:
                os.setgid(65534)
                os.setuid(65534)
            with PageStore(seen, readonly=True) as store:
                assert {b"1"} == {*bodies(store).values()}
                parent.send("read")
                parent.recv()
                assert {b"2"} == {*bodies(store).values()}

        with Partner(read) as child:
            assert "read" == child.connection.recv()
            filled(path, body=b"2")
            child.connection.send("written")
            assert 0 == child.wait()


def test_a_reader_goes_on_after_a_rebuild(path: Path) -> None:
    """It finds what is put then. While there is no index, it says so."""
    filled(path)
    with PageStore(path, readonly=True) as reader:
        listing = iter(reader.pages())
        assert b"0" == next(listing).body
        index = path / "index.sqlite"
        index.rename(path / "moved")
        with pytest.raises(TBloomError, match="has no index any more: it is being rebuilt"):
            reader.get(url(0))
        (path / "moved").rename(index)
        assert b"1" == body_of(reader, url(1))
        PageStore.rebuild(path)
        assert 49 == len([*listing])
        filled(path, 51, b"new")
        assert {b"new"} == {*bodies(reader).values()}
        assert 51 == len(reader)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_index_that_is_lost_while_written_is_noticed(path: Path, *, is_replaced: bool) -> None:
    """Deleted, or replaced by another one: the next call says so, and a rebuild finds what was put before."""
    store = PageStore(path)
    store.put(url(1), b"1")
    other = path.parent / "other"
    PageStore(other).close()
    if is_replaced:
        (other / NAME).replace(path / NAME)
    else:
        (path / NAME).unlink()
    says = r"was deleted or replaced while it was written.*'tbloom pages rebuild'"
    verbs: list[Callable[[], object]] = [
        lambda: store.put(url(2), b"2"),
        lambda: store.delete(url(1)),
        store.flush,
        lambda: store.get(url(1)),
        lambda: [*store],
        store.close,
    ]
    for verb in verbs:
        with pytest.raises(TBloomError, match=says):
            verb()
    store.close()
    PageStore.rebuild(path)
    assert {url(1): b"1"} == bodies(PageStore(path))
