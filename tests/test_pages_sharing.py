"""A page store that several use: readers and one writer, in threads, processes and forked children."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tbloom.errors import StoreLocked, TBloomError
from tbloom.pages import PageStore, environment


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def url(number: object) -> str:
    return f"https://example.com/{number}"


def data(store: PageStore, number: object) -> bytes | None:
    """The body of a page."""
    page = store.get(url(number))
    return None if page is None else page.body


def filled(path: Path, count: int = 50) -> None:
    with PageStore(path) as store:
        for number in range(count):
            store.put(url(number), b"%d" % number)


class Child:
    """A forked child that does something, and is waited for."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                work()
                code = 0
            except BaseException as error:  # noqa: BLE001 - told, and the child ends
                os.write(2, repr(error).encode() + b"\n")
            finally:
                os._exit(code)

    def wait(self) -> int:
        """Its exit code; below 0, the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert -signal.SIGKILL == self.wait()


@contextmanager
def at_work(*works: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Threads do these again and again meanwhile; what they raised."""
    errors: list[BaseException] = []
    ends = threading.Event()

    def go_on(work: Callable[[], object]) -> None:
        try:
            while not ends.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - told
            errors.append(error)

    threads = [threading.Thread(target=go_on, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def put_on(store: PageStore, begin: int) -> Callable[[], None]:
    """Puts another page at each call, and gets it."""
    number = begin

    def work() -> None:
        nonlocal number
        number += 1
        store.put(url(number), b"%d" % number)
        assert b"%d" % number == data(store, number)

    return work


def get_on(store: PageStore) -> Callable[[], None]:
    def work() -> None:
        assert b"7" == data(store, 7)

    return work


def test_what_is_acknowledged_is_there_for_readers(path: Path) -> None:
    """At once, in other processes, and in the writer's, whether they were opened before or after it."""
    filled(path, 1)
    before = PageStore(path, readonly=True)
    inbox, outbox = os.pipe()
    back_in, back_out = os.pipe()

    def read() -> None:
        with PageStore(path, readonly=True) as store:
            os.write(back_out, b"u")
            while number := int.from_bytes(os.read(inbox, 4), "big"):
                assert b"%d" % number == data(store, number)
                os.write(back_out, b"k")

    child = Child(read)
    assert b"u" == os.read(back_in, 1)
    with PageStore(path) as store, PageStore(path, readonly=True) as after, before:
        for number in range(1, 300):
            store.put(url(number), b"%d" % number)
            os.write(outbox, number.to_bytes(4, "big"))
            assert b"%d" % number == data(before, number) == data(after, number)
            assert number + 1 == len(before) == len(after)
            assert b"k" == os.read(back_in, 1)
        os.write(outbox, bytes(4))
    assert 0 == child.wait()
    for fd in (inbox, outbox, back_in, back_out):
        os.close(fd)


def test_threads_share_an_object(path: Path) -> None:
    """Four put and get on one store, others get on another one."""
    filled(path)
    with PageStore(path, segment_bytes=5_000) as store, PageStore(path, readonly=True) as reader:
        works = [put_on(store, begin) for begin in (10_000, 20_000, 30_000)]
        with at_work(*works, get_on(reader), get_on(store)) as errors:
            for _ in range(3):
                assert all(page.url for page in reader.pages())
        assert [] == errors
        assert () == reader.verify().problems
        assert len(store) == len([*store.pages()])


def test_a_second_writer(path: Path) -> None:
    """It is told who writes, in the same process and in another one; once that has been killed, it may."""
    filled(path)
    inbox, outbox = os.pipe()

    def write() -> None:
        store = PageStore(path)
        store.put(url("more"), b"more")
        os.write(outbox, b"u")
        signal.pause()

    child = Child(write)
    os.read(inbox, 1)
    for verb in (PageStore, PageStore.rebuild):
        with pytest.raises(StoreLocked, match=f"process {child.pid}") as caught:
            verb(path)
        assert (str(path), child.pid) == (caught.value.path, caught.value.pid)
    child.kill()
    with PageStore(path) as store:
        assert b"more" == data(store, "more")
        with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
            PageStore(path)
        store.put(url("again"), b"again")
    with PageStore(path) as store:
        assert 52 == len(store)
    os.close(inbox)
    os.close(outbox)


def test_forked_children(path: Path) -> None:
    """While threads read and write, children read, put nothing, and leave all as it is when they end."""
    filled(path)
    with PageStore(path) as store, PageStore(path, readonly=True) as reader:

        def work() -> None:
            for each in (store, reader):
                assert b"7" == data(each, 7)
                assert url(0) == next(iter(each.pages())).url
                for verb in (lambda: each.put(url(1), b""), lambda: each.delete(url(1))):  # noqa: B023
                    with pytest.raises(TBloomError, match=r"was forked from|to be read only"):
                        verb()
            store.close()
            with pytest.raises(StoreLocked):
                PageStore(path)

        with at_work(put_on(store, 1000), get_on(reader), get_on(store)) as errors:
            assert [0] * 20 == [Child(work).wait() for _ in range(20)]
        assert [] == errors
        assert () == store.verify().problems
        store.put(url("last"), b"last")
        assert b"last" == data(reader, "last")


def test_a_fork_leaves_the_parents_readers(path: Path) -> None:
    """A transaction that is open in the parent goes on, and what it sees is not written over."""
    filled(path)
    with PageStore(path) as store, store._index.reading() as snapshot:
        readers = store._index._environment.env.readers()
        assert 0 == Child(lambda: None).wait()
        assert readers == store._index._environment.env.readers()
        assert 50 == snapshot.pages(snapshot.slices[0])


def test_a_child_does_not_keep_the_lock(path: Path) -> None:
    """A writer was killed, and its child lives on: another one may write."""
    filled(path)
    inbox, outbox = os.pipe()
    hold_in, hold_out = os.pipe()

    def write() -> None:
        store = PageStore(path)
        child = Child(lambda: (os.close(hold_out), os.read(hold_in, 1)))
        store.put(url("more"), b"more")
        os.write(outbox, child.pid.to_bytes(4, "big"))
        signal.pause()

    parent = Child(write)
    grandchild = int.from_bytes(os.read(inbox, 4), "big")
    parent.kill()
    with PageStore(path) as store:
        os.kill(grandchild, 0)
        assert b"more" == data(store, "more")
    for fd in (inbox, outbox, hold_in, hold_out):
        os.close(fd)


def test_readers_go_over_to_an_index_that_is_made_anew(path: Path) -> None:
    """In all threads and processes, while others open the store; none of them stays open."""
    filled(path)
    with PageStore(path, readonly=True) as one, PageStore(path, readonly=True) as other:

        def open_and_get() -> None:
            with PageStore(path, readonly=True) as store:
                get_on(store)()

        def read() -> None:
            with PageStore(path, readonly=True) as store:
                while not (path / "index-13").exists():
                    get_on(store)()

        child = Child(read)
        works = [get_on(one), get_on(one), get_on(other), open_and_get]
        with at_work(*works) as errors:
            for _ in range(12):
                assert 50 == PageStore.rebuild(path).pages
        assert [] == errors
        assert 0 == child.wait()
        assert 50 == len(one) == len(other)
        with PageStore(path) as store:
            store.put(url("more"), b"more")
            assert b"more" == data(one, "more") == data(other, "more")
    assert {} == environment._opened


def test_no_rebuild_while_somebody_writes(path: Path) -> None:
    filled(path)
    with PageStore(path) as store:
        with pytest.raises(StoreLocked):
            PageStore.rebuild(path)
        store.put(url("more"), b"more")


def test_a_segment_goes_while_it_is_read(path: Path) -> None:
    """A clear error, or the page; never another one."""
    with PageStore(path, segment_bytes=1) as store:
        for number in range(30):
            store.put(url(number), b"%d" % number)
    with PageStore(path, readonly=True) as reader:
        told: list[str] = []

        def get() -> None:
            for number in range(30):
                try:
                    assert data(reader, number) == b"%d" % number
                except TBloomError as error:  # noqa: PERF203
                    told.append(str(error))

        with at_work(get, get) as errors:
            for file in sorted(path.glob("*.warc.gz"))[10:]:
                file.unlink()
        assert [] == errors
        get()
        assert all("it is missing" in why and "tbloom pages rebuild" in why for why in told)
        assert 10 == len([*reader.pages()])


def _as_another(path: Path, work: Callable[[], Any]) -> int:
    """Does it as a user who owns nothing of the store."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    for folder in (path, *path.parents):
        if (
            os.access(folder, os.W_OK)
            and folder.stat().st_uid == os.geteuid()
            and folder != Path("/")
        ):
            folder.chmod(folder.stat().st_mode | 0o055)
        if folder.name.startswith("pytest-of"):
            break
    return Child(run).wait()


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o666])
def test_another_user(path: Path, mode: int) -> None:
    """Who may not write gets the pages, or is told that the permission lacks."""
    filled(path)
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else mode)
    (path / "index-1").chmod(0o755)
    path.chmod(0o755)

    def work() -> None:
        try:
            with PageStore(path, readonly=True) as store:
                assert b"7" == data(store, 7)
                assert 50 == len([*store.pages()])
                assert () == store.verify().problems
        except PermissionError as error:
            assert mode != 0o666, error  # noqa: PT017
        if mode != 0o666:
            with pytest.raises(PermissionError):
                PageStore(path)

    assert 0 == _as_another(path, work)
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    with PageStore(path) as store:
        assert 50 == len(store)
    shutil.rmtree(path)
