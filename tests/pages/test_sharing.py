"""A page store that several use: readers and one writer, in threads, processes and forked children."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path

import pytest

from tbloom.errors import StoreLocked, TBloomError
from tbloom.pages import PageStore
from tests.helpers.killable import again_and_again
from tests.helpers.pagestores import Child, body_of, url


def filled(path: Path, pages: int = 50) -> None:
    with PageStore(path) as store:
        for number in range(pages):
            store.put(url(number), b"%d" % number)


@contextmanager
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Its ends. Each process closes the end that it does not use: then a reader notices the other's death."""
    inbox, outbox = os.pipe()
    with FileIO(inbox, "r") as reads, FileIO(outbox, "w") as writes:
        yield reads, writes


@contextmanager
def at_work(*works: Callable[[], object]) -> Iterator[None]:
    """Threads repeat the works during the block."""
    with ExitStack() as stack:
        for work in works:
            stack.enter_context(again_and_again(work))
        yield


def put_on(store: PageStore, begin: int) -> Callable[[], None]:
    """Puts another page at each call, and gets it."""
    number = begin

    def work() -> None:
        nonlocal number
        number += 1
        store.put(url(number), b"%d" % number)
        assert b"%d" % number == body_of(store, url(number))

    return work


def get_on(store: PageStore) -> Callable[[], None]:
    def work() -> None:
        assert b"7" == body_of(store, url(7))

    return work


def test_what_is_acknowledged_is_there_for_readers(path: Path) -> None:
    """At once, in other processes and in the writer's, also where they were opened before the writer."""
    filled(path, 1)
    before = PageStore(path, readonly=True)
    with pipe() as (inbox, outbox), pipe() as (back_in, back_out):

        def read() -> None:
            outbox.close()
            with PageStore(path, readonly=True) as store:
                back_out.write(b"u")
                while number := int.from_bytes(inbox.read(4), "big"):
                    assert b"%d" % number == body_of(store, url(number))
                    back_out.write(b"k")

        with Child(read) as child:
            inbox.close()
            back_out.close()
            assert b"u" == back_in.read(1)
            with PageStore(path) as store, PageStore(path, readonly=True) as after, before:
                for number in range(1, 100):
                    body = b"%d" % number
                    store.put(url(number), body)
                    outbox.write(number.to_bytes(4, "big"))
                    assert body == body_of(before, url(number)) == body_of(after, url(number))
                    assert number + 1 == len(before) == len(after)
                    assert b"k" == back_in.read(1)
                outbox.close()
            assert 0 == child.wait()


def test_a_second_writer(path: Path) -> None:
    """The error names the writer, in this process or another one. Once that is killed, another one may write, also while
    a child of it lives on."""
    filled(path)
    with pipe() as (inbox, outbox), pipe() as (hold_in, hold_out):

        def live_on() -> None:
            outbox.write(os.getpid().to_bytes(4, "big"))  # it has run what follows a fork
            hold_out.close()
            hold_in.read(1)

        def write() -> None:
            store = PageStore(path)
            store.put(url("more"), b"more")
            Child(live_on)
            signal.pause()

        with Child(write) as child:
            outbox.close()
            grandchild = int.from_bytes(inbox.read(4), "big")
            for verb in (PageStore, PageStore.rebuild):
                with pytest.raises(StoreLocked, match=f"process {child.pid}") as caught:
                    verb(path)
                assert (str(path), child.pid) == (caught.value.path, caught.value.pid)
            child.kill()
        with PageStore(path) as store:
            os.kill(grandchild, 0)
            assert b"more" == body_of(store, url("more"))
            with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
                PageStore(path)
            store.put(url("again"), b"again")
    with PageStore(path) as store:
        assert 52 == len(store)


def test_forked_children(path: Path) -> None:
    """While threads read and write with the same objects, children can read, but not put; their end changes nothing."""
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

        puts = [put_on(store, begin) for begin in (10_000, 20_000, 30_000)]
        with at_work(*puts, get_on(reader), get_on(store)):
            assert [0] * 10 == [Child(work).wait() for _ in range(10)]
            for _ in range(3):
                assert all(page.url for page in reader.pages())
        assert () == reader.verify().problems == store.verify().problems
        assert len(store) == len([*store.pages()])
        store.put(url("last"), b"last")
        assert b"last" == body_of(reader, url("last"))


def test_readers_change_to_an_index_that_is_made_anew(path: Path) -> None:
    """In all threads and processes, while others open the store; no old index stays open."""
    filled(path)
    with PageStore(path, readonly=True) as one, PageStore(path, readonly=True) as other:

        def open_and_get() -> None:
            with PageStore(path, readonly=True) as store:
                get_on(store)()

        def read() -> None:
            with PageStore(path, readonly=True) as store:
                while not (path / "index-7.sqlite").exists():
                    get_on(store)()

        works = [get_on(one), get_on(one), get_on(other), open_and_get]
        with Child(read) as child, at_work(*works):
            for _ in range(6):
                assert 50 == PageStore.rebuild(path).pages
            assert 0 == child.wait()
        assert 50 == len(one) == len(other)
        with PageStore(path) as store:
            store.put(url("more"), b"more")
            assert b"more" == body_of(one, url("more")) == body_of(other, url("more"))
    opened = [str(fd.resolve()) for fd in Path("/proc/self/fd").iterdir()]
    assert [] == [one for one in opened if str(path) in one]
