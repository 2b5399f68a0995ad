"""Opens the folder of a store, and repairs what a killed writer has left."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import recovery, segments
from tbloom.pages.config import PagesConfig, agreed
from tbloom.pages.database import INDEX_NAME, newest_of, remove_stale
from tbloom.pages.index import Index
from tbloom.pages.lock import WriterLock


def folder(path: str | os.PathLike[str]) -> Path:
    """The store's folder, which need not exist. Raises ConfigError."""
    try:
        name = os.fsdecode(path)
        root = Path(name).absolute()
        is_taken = root.exists() and not root.is_dir()
        is_path = bool(name) and b"\0" not in os.fsencode(name)
    except (TypeError, ValueError, OSError):
        is_path = False
    if not is_path:
        raise ConfigError("path", path, "the path of a folder")
    if is_taken:
        raise ConfigError("path", path, "a folder, or a place for one")
    return root


def to_read(root: Path, wanted: PagesConfig | None) -> tuple[Index, PagesConfig]:
    """The index of a store that exists."""
    if newest_of(root) is None:
        if not root.is_dir() or recovery.parameters_in_segments(root) is None:
            raise ConfigError("path", str(root), "a folder with a page store")
        raise _without_index(root)
    return _open(Index(root), wanted)


def to_write(root: Path, wanted: PagesConfig | None) -> tuple[Index, PagesConfig, WriterLock]:
    """The index of a store, and its lock; begins a store where there is none."""
    root.mkdir(parents=True, exist_ok=True)
    if newest_of(root) is None:
        if recovery.parameters_in_segments(root) is not None:
            raise _without_index(root)
        if _is_foreign(root):
            raise ConfigError("path", str(root), "a new or empty folder, or a page store")
    lock = WriterLock(root)
    try:
        remove_stale(root)
        if newest_of(root) is None:
            with closing(Index.begin(root, (wanted or PagesConfig(None)).stored)) as index:
                index.publish()
        return *_open(Index(root, writes=True), wanted), lock
    except BaseException:
        lock.release()
        raise


def rebuild(root: Path) -> None:
    """Makes the store's index anew from its segments."""
    stored = recovery.parameters_in_segments(root) if root.is_dir() else None
    if stored is None:
        raise ConfigError("path", str(root), "a folder with segments of a page store")
    lock = WriterLock(root)
    try:
        recovery.rebuild(root, agreed(str(root), stored, None))
    finally:
        lock.release()


def _without_index(root: Path) -> TBloomError:
    return TBloomError(
        f"{str(root)!r} has no index, or that of an earlier version of tbloom; make it anew from the WARC files with "
        "'tbloom pages rebuild'"
    )


def _open(index: Index, wanted: PagesConfig | None) -> tuple[Index, PagesConfig]:
    try:
        index.segment(0)  # that of an earlier version has other columns
        return index, agreed(str(index.root), index.parameters, wanted)
    except BaseException:
        index.close()
        raise


def _is_foreign(root: Path) -> bool:
    """True: the folder has files that no writer of a store leaves when it is killed at its start."""
    names = {path.name for path in root.iterdir() if not INDEX_NAME.fullmatch(path.name)}
    if "lock" in names:
        names -= {"lock", *(path.name for path in segments.stored(root).values())}
    return bool(names)
