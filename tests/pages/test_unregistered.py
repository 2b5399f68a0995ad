"""Readers without write permission: another user's, and those on a read-only mount."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tbloom.errors import TBloomError
from tbloom.pages import PageStore, unregistered
from tbloom.pages.index import Index
from tbloom.pages.page import fingerprint_of
from tests.helpers.making import missing
from tests.helpers.pagestores import Child, bodies, url


def put_all(store: PageStore, version: int) -> None:
    for number in range(50):
        store.put(url(number), b"%d" % version)


def filled(path: Path) -> None:
    with PageStore(path) as store:
        put_all(store, 0)


@pytest.fixture
def path() -> Iterator[Path]:
    """In a folder that other users may pass: pytest's are for its user only, and shared with other tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "store"


def become_another_user() -> None:
    os.setgid(65534)
    os.setuid(65534)


@contextmanager
def as_another_user(path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The store's path for a reader that may not write to it, and what its process does first."""
    if os.geteuid():
        missing("The right to become another user")
    yield path, become_another_user


@contextmanager
def on_a_readonly_mount(path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """As ``as_another_user`` yields."""
    seen = path.with_name("seen")
    seen.mkdir()
    mount = ["mount", "--bind", path, seen]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("The right to mount a folder")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", seen], check=True)
        yield seen, lambda: None
    finally:
        subprocess.run(["umount", "-l", seen], check=True)


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o666])
def test_another_user(path: Path, mode: int) -> None:
    """A user who may read the files gets the pages; any other one, PermissionError."""
    filled(path)
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else mode)
    path.chmod(0o755)

    def work() -> None:
        if os.geteuid() == 0:
            become_another_user()
        elif mode == 0o400:
            return  # its own files
        if mode == 0o400:
            with pytest.raises(PermissionError):
                PageStore(path, readonly=True)
        else:
            with PageStore(path, readonly=True) as store:
                assert {b"0"} == {*bodies(store).values()}
                assert () == store.verify().problems
        if mode != 0o666:
            with pytest.raises(PermissionError):
                PageStore(path)

    assert 0 == Child(work).wait()
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    with PageStore(path) as store:
        assert 50 == len(store)


@pytest.mark.parametrize("way", [as_another_user, on_a_readonly_mount])
def test_a_reader_without_write_permission_beside_a_writer(path: Path, way: Any) -> None:
    """It finds what is acknowledged; and what it reads stays, whatever is put and deleted meanwhile."""
    filled(path)
    fingerprints = [fingerprint_of(url(number)) for number in range(50)]
    (turn, my_turn), (answer, my_answer) = os.pipe(), os.pipe()
    with way(path) as (seen, become):

        def read() -> None:
            become()
            os.close(my_turn)
            with PageStore(seen, readonly=True) as store:
                for version in range(1, 4):
                    with store._index.reading() as snapshot:
                        before = [snapshot.find(each) for each in fingerprints]
                        assert None not in before
                        os.write(my_answer, b"r")
                        assert os.read(turn, 1)  # all was replaced, several times
                        assert before == [snapshot.find(each) for each in fingerprints]
                    assert {b"%d" % version} == {*bodies(store).values()}
                with pytest.raises(OSError, match=r"ermission|ead-only"):
                    PageStore(seen)

        with PageStore(path) as writer, Child(read) as child:
            os.close(my_answer)
            for version in range(1, 4):
                assert os.read(answer, 1)
                for _ in range(3):
                    for number in range(50):
                        writer.delete(url(number))
                    put_all(writer, version)
                os.write(my_turn, b"t")
            assert 0 == child.wait()
        for end in (turn, my_turn, answer):
            os.close(end)


@pytest.mark.parametrize("way", [as_another_user, on_a_readonly_mount])
def test_a_copy_that_can_t_be_written(path: Path, way: Any) -> None:
    """It need not have the lock's files."""
    filled(path)
    (path / "lock").unlink()
    (path / "index-1/lock.mdb").unlink()
    with way(path) as (seen, become):

        def read() -> None:
            become()
            with PageStore(seen, readonly=True) as store:
                assert {b"0"} == {*bodies(store).values()}

        assert 0 == Child(read).wait()
    assert not (path / "index-1/lock.mdb").exists()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A reader that can't register; it holds the newest state of the index."""
    with (
        PageStore(path, readonly=True) as store,
        unregistered.Reader(path / "index-1", store._index._environment.env).hold(),
    ):
        yield


def test_the_writer_keeps_what_any_reader_reads(path: Path) -> None:
    """Whenever readers begin and end: the oldest registered one is at most one later (see ``unregistered``)."""
    path.mkdir()
    random = Random(0)
    with closing(Index.begin(path, "{}")) as index:
        env = index._environment.env
        readers: dict[ExitStack, int] = {}
        for _ in range(2_000):
            step = random.random()
            if step < 0.2 and len(readers) < 5:
                stack = ExitStack()
                readers[stack] = stack.enter_context(unregistered.Reader(index.folder, env).hold())
            elif step < 0.4 and readers:
                ended = random.choice([*readers])
                ended.close()
                del readers[ended]
            else:
                with index.changing() as change:
                    change.next_sequence()
                    assert index._keeper is not None
                    newest = env.info()["last_txnid"]
                    oldest = min([newest, *(kept.id() for kept in index._keeper._kept)])
                    assert all(oldest <= number + 1 for number in readers.values())
        for stack in readers:
            stack.close()


def test_the_index_does_not_grow_by_readers_that_come_and_go(path: Path) -> None:
    """Where there is always one, but none stays."""
    path.mkdir()
    sizes = []
    with closing(Index.begin(path, "{}")) as index, ExitStack() as last:
        reader = unregistered.Reader(index.folder, index._environment.env)
        for _ in range(12):
            with last.pop_all():  # it ends after the next one has begun
                change_often(index)
                last.enter_context(reader.hold())
                change_often(index)
            sizes.append(index.bytes)
    assert sizes[-1] < 1.5 * sizes[4]


def change_often(index: Index) -> None:
    for _ in range(50):
        with index.changing() as change:
            change.next_sequence()


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_a_new_writer_waits_for_a_reader_that_the_last_one_knew(
    path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """If it does not end, an error says so, and nothing has changed."""
    filled(path)
    monkeypatch.setattr(unregistered, "_MAX_WAIT", 0.1)

    def write() -> None:
        store = PageStore(path)
        put_all(store, 1)
        if ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        store.close()

    with reading(path):
        assert Child(write).wait() in (0, -signal.SIGKILL)
        with pytest.raises(TBloomError, match="without write permission"):
            PageStore(path)
    with PageStore(path) as store:
        assert {b"1"} == {*bodies(store).values()}
        put_all(store, 2)


def test_a_fork_while_the_writer_keeps_what_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child can read. The parent can't keep it any longer, and changes nothing before the reader has ended."""
    filled(path)
    monkeypatch.setattr(unregistered, "_MAX_WAIT", 0.1)
    with PageStore(path) as store:
        with reading(path):
            put_all(store, 1)
            assert 0 == Child(lambda: put_nothing(store)).wait()
            with pytest.raises(TBloomError, match="without write permission"):
                put_all(store, 2)
        assert {b"1"} == {*bodies(store).values()}
        put_all(store, 3)
        assert {b"3"} == {*bodies(store).values()}


def put_nothing(store: PageStore) -> None:
    assert {b"1"} == {*bodies(store).values()}
    with suppress(TBloomError):
        store.put(url(1), b"")
    store.close()
