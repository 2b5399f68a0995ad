"""The index: the newest folder ``index-N`` of a store, an LMDB environment (see ``snapshot``)."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from tbloom.engine.forks import in_child
from tbloom.errors import TBloomError
from tbloom.pages import unregistered
from tbloom.pages.environment import (
    MAX_TABLES,
    Environment,
    acquire,
    errors,
    identity_of,
    release,
)
from tbloom.pages.snapshot import Change, Snapshot

_FOLDER = "index-"
_NAME = re.compile(rf"{_FOLDER}([1-9][0-9]*)(\.new)?")
T = TypeVar("T")


class Index:
    """The index of a store: the newest folder ``index-N``."""

    def __init__(self, folder: Path, parameters: str | None = None) -> None:
        """Opens the index of a folder; with ``parameters``, begins it. Raises TBloomError where it is damaged."""
        self.folder = folder
        if parameters is not None:
            folder.mkdir()
        self._environment = acquire(folder, parameters)
        self._is_open = True
        self._guard = threading.Lock()
        #: The last transaction that changed it.
        self._txn: Any = None
        self._keeper: unregistered.Keeper | None = None
        in_child(self._after_fork)

    @classmethod
    def begin(cls, root: Path, parameters: str) -> Index:
        """Begins another index; it is not used before ``publish``."""
        newest = newest_of(root)
        number = int(newest.name.removeprefix(_FOLDER)) + 1 if newest else 1
        folder = root / f"{_FOLDER}{number}.new"
        shutil.rmtree(folder, ignore_errors=True)
        return cls(folder, parameters)

    def publish(self) -> None:
        """Puts this index in the place of the earlier ones."""
        self.flush()
        target = self.folder.with_suffix("")
        self.folder.rename(target)
        self.folder = target
        remove_stale(target.parent)

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """The index as it is now."""
        environment = self._current()
        with errors(self.folder):
            while True:
                known, txn = environment.known, None
                try:
                    with environment.begin() as txn:
                        state, slices = environment.look(txn, known)
                        if slices is not None:
                            with closing(Snapshot(environment.tables, txn, state, slices)) as it:
                                yield it
                            return
                finally:
                    txn = None  # see ``forks``
                environment.learn_slices()

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Changes that are committed at the end of the block, if nothing is raised."""
        environment = self._current()
        with errors(self.folder):
            while True:
                self._before_change()
                known = environment.known
                with environment.env.begin(write=True) as txn:
                    self._txn = txn
                    state, slices = environment.look(txn, known)
                    if slices is not None:
                        change = Change(environment.tables, txn, state, slices)
                        yield change
                        if change.state != state:
                            change.save()
                        return
                environment.learn_slices()

    def abort(self) -> None:
        """Ends a change that Ctrl-C may have left open: the next one would wait for it."""
        if self._txn is not None:
            with suppress(lmdb.Error):  # it has ended already
                self._txn.abort()

    def begin_slice(self, label: str, start: int) -> None:
        """Adds a slice."""
        with self.reading() as snapshot:
            used = {slice.table for slice in snapshot.slices}
        table = next((number for number in range(MAX_TABLES) if number not in used), None)
        if table is None:
            raise TBloomError(f"the index {str(self.folder)!r} has {MAX_TABLES} slices, the limit")
        with errors(self.folder):
            self._before_change()
            self._environment.open_table(table)
        with self.changing() as change:
            change.begin_slice(label, start, table)

    def flush(self) -> None:
        """Waits until the index is on the disk."""
        with errors(self.folder):
            self._environment.env.sync(force=True)

    def forget_dead_readers(self) -> None:
        """Drops killed readers: the pages that they held can't be used again otherwise."""
        with errors(self.folder):
            self._environment.env.reader_check()

    def close(self) -> None:
        """Closes the index."""
        self._is_open = False
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        release(self._environment)

    @property
    def bytes(self) -> int:
        """Its size on the disk."""
        return (self.folder / "data.mdb").stat().st_blocks * 512

    def _current(self) -> Environment:
        """The environment; opened again in a forked child, and where another one has taken its place."""
        if not self._is_open:  # closed while its pages were listed
            raise TBloomError(f"the page store {str(self.folder.parent)!r} is closed")
        environment = self._environment
        if environment.pid == os.getpid() and environment.identity == identity_of(self.folder):
            return environment
        with self._guard:
            if environment is self._environment:
                root = self.folder.parent
                self.folder, self._environment = at_newest(
                    root, lambda newest: (newest, acquire(newest, None))
                )
                release(environment, is_stale=True)
            return self._environment

    def _before_change(self) -> None:
        """Keeps what unregistered readers read. Raises TBloomError where one from before this object does not end."""
        if unregistered.IS_ABLE:
            if self._keeper is None:
                self._keeper = unregistered.Keeper(self.folder, self._environment.env)
            self._keeper.before_change()

    def _after_fork(self) -> None:
        self._guard = threading.Lock()  # a thread that is gone may have held it
        if self._keeper is not None:
            self._keeper.abandon()
            self._keeper = None


def at_newest(root: Path, do: Callable[[Path], T]) -> T:
    """Calls ``do`` with the folder of the store's index; again where another index has taken its place.

    Raises FileNotFoundError where there is none.
    """
    while True:
        newest = newest_of(root)
        if newest is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root / _FOLDER))
        try:
            return do(newest)
        except (OSError, TBloomError):
            if newest_of(root) in (None, newest):
                raise


def newest_of(root: Path) -> Path | None:
    """The folder of the store's index; None where it has none."""
    matches = (_NAME.fullmatch(path.name) for path in root.glob(f"{_FOLDER}*") if is_index(path))
    numbers = [int(match[1]) for match in matches if match and not match[2]]
    return root / f"{_FOLDER}{max(numbers)}" if numbers else None


def remove_stale(root: Path) -> None:
    """Removes all indexes but the newest."""
    newest = newest_of(root)
    for folder in root.glob(f"{_FOLDER}*"):
        if folder != newest and is_index(folder):
            shutil.rmtree(folder)


def is_index(path: Path) -> bool:
    """True: a folder with the name of an index, finished or not. (It may be gone by now.)"""
    return _NAME.fullmatch(path.name) is not None and not path.is_file()
