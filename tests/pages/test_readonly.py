"""Readers without write permission: another user's, and those on a read-only mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tbloom.pages import PageStore
from tbloom.pages.page import fingerprint_of
from tests.helpers.making import missing
from tests.helpers.pagestores import Child, bodies, die, mounted, url


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


@pytest.mark.parametrize("is_mount", [False, True], ids=["another user", "read-only mount"])
@pytest.mark.parametrize("ends", ["closed", "killed", "rebuilt"])
def test_a_reader_without_write_permission_after_a_writer(
    path: Path, ends: str, *, is_mount: bool
) -> None:
    """It needs no writer that is open. The next one is not hindered, and leaves what is read as it is."""
    if not is_mount and os.geteuid():
        missing("The right to become another user")
    filled(path)
    fingerprints = [fingerprint_of(url(number)) for number in range(50)]

    def write() -> None:
        store = PageStore(path)
        put_all(store, 1)
        if ends == "killed":
            die()
        store.close()

    Child(write).wait()
    if ends == "rebuilt":
        PageStore.rebuild(path)
    (turn, my_turn), (answer, my_answer) = os.pipe(), os.pipe()
    readonly = mounted(path.with_name("seen"), "--bind", "-o", "ro", path)
    with readonly if is_mount else nullcontext(path) as seen:

        def read() -> None:
            if is_mount:
                with pytest.raises(OSError, match="Read-only file system"):
                    (seen / "more").touch()
            else:
                become_another_user()
            os.close(my_turn)
            with PageStore(seen, readonly=True) as store:
                assert {b"1"} == {*bodies(store).values()}
                with store._index.snapshot() as snapshot:
                    before = [snapshot.find(each) for each in fingerprints]
                    os.write(my_answer, b"r")
                    assert os.read(turn, 1)
                    assert before == [snapshot.find(each) for each in fingerprints]
                assert {b"2"} == {*bodies(store).values()}

        with Child(read) as child:
            os.close(my_answer)
            assert os.read(answer, 1)
            with PageStore(path) as store:
                put_all(store, 2)
                store.flush()
            os.write(my_turn, b"t")
            assert 0 == child.wait()
        for end in (turn, my_turn, answer):
            os.close(end)
