"""Opens the folder of a store, and adds to its index the records that it lacks: those of a killed writer, or all of them."""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import segments
from tbloom.pages.config import PagesConfig, from_stored
from tbloom.pages.index import ANY_NAME, NAME, Index, remove_unfinished
from tbloom.pages.segments import Found, Gap, Segment
from tbloom.pages.writer import Writer, WriterLock
from tbloom.window import NoWindow

logger: logging.Logger = logging.getLogger(__name__)
_Progress = Callable[[int], object]


def folder(path: str | os.PathLike[str]) -> Path:
    """Return the store's folder, which need not exist. Raise ConfigError if it can't be one."""
    with suppress(TypeError, ValueError, OSError):
        name = os.fsdecode(path)
        root = Path(name).absolute()
        is_path = bool(name) and b"\0" not in os.fsencode(name)
        if is_path and (root.is_dir() or not root.exists()):
            return root
    raise ConfigError("path", path, "a folder, or a path at which one can be made")


def to_read(root: Path, wanted: PagesConfig | None) -> tuple[Index, PagesConfig]:
    """Return the index and the parameters of a store. Raise ConfigError if there is no store."""
    if not _has_index(root):
        raise ConfigError("path", str(root), "a folder with a page store")
    with ExitStack() as stack:
        index = stack.enter_context(closing(Index(root)))
        config = from_stored(str(root), index.parameters, wanted)
        stack.pop_all()
    return index, config


def to_write(
    root: Path, wanted: PagesConfig | None, segment_bytes: int, codec: str
) -> tuple[Index, PagesConfig, Writer]:
    """Return the index, the parameters and the writer of a store. Begin a store if there is none."""
    root.mkdir(parents=True, exist_ok=True)
    if not _has_index(root) and _is_foreign(root):
        raise ConfigError("path", str(root), "a new or empty folder, or a page store")
    with ExitStack() as stack:
        lock = stack.enter_context(closing(WriterLock(root)))
        remove_unfinished(root)
        if not (root / NAME).exists():
            with Index.create(root, (wanted or PagesConfig(NoWindow())).stored):
                pass
        index = stack.enter_context(closing(Index(root, writes=True)))
        config = from_stored(str(root), index.parameters, wanted)
        with index.transaction():  # raises if the index can't be written
            _add_records(root, index, config)
        writer = Writer(root, index, config, lock, segment_bytes=segment_bytes, codec=codec)
        stack.pop_all()
    return index, config, writer


def rebuild(root: Path, progress: _Progress | None = None) -> None:
    """Build the store's index from its segments. Call ``progress`` with the length of each record."""
    stored = _parameters(root)
    if stored is None:
        raise ConfigError("path", str(root), "a folder with segments of a page store")
    with closing(WriterLock(root)):
        config = from_stored(str(root), stored, None)
        with Index.create(root, config.stored) as index, index.transaction():
            _add_records(root, index, config, progress)


def _has_index(root: Path) -> bool:
    """Return True if there is a store. Raise TBloomError if the store has no index of this version."""
    has_index = (root / NAME).exists()
    if not has_index and _parameters(root) is not None:
        raise TBloomError(
            f"{str(root)!r} has no index; run 'tbloom pages rebuild' to make one "
            "from the WARC files"
        )
    return has_index


def _is_foreign(root: Path) -> bool:
    """Return True if the folder contains files that are neither tbloom's nor a file system's, such as ``lost+found``."""
    names = {path.name for path in root.iterdir() if not ANY_NAME.fullmatch(path.name)}
    names -= {name for name in names if name == "lost+found" or name.startswith(".")}
    if "lock" in names and not (root / "lock").read_bytes().strip(b"0123456789 "):  # a process ID
        names -= {"lock", *(path.name for path in segments.files_in(root).values())}
    return bool(names)


def _parameters(root: Path) -> str | None:
    """Return the store's parameters, as its segments have them; None if the folder has no segments."""
    files = segments.files_in(root) if root.is_dir() else {}
    firsts = map(segments.first_of, reversed(files.values()))
    return next((first.parameters for first in firsts if first.parameters is not None), None)


class _Tail(NamedTuple):
    """The part of a segment that the index does not know."""

    path: Path
    number: int
    begin: int
    end: int


def _add_records(
    root: Path, index: Index, config: PagesConfig, progress: _Progress | None = None
) -> None:
    """Add the records that the index does not know, in the order in which they were written. Cut off a torn one.

    Raise TBloomError if a segment in the window is shorter than the index knows. Raise TBloomError if a record is older than
    those that the index knows, because a lost segment was put back: later records may have replaced its pages.
    """
    known = {segment.number: segment for segment in index.segments()}
    newest = max((segment.sequence for segment in known.values()), default=0)
    tails = {tail.number: tail for tail in _tails(root, known, config.since())}
    for number in tails.keys() - known.keys():
        index.drop_segment(number)  # it was forgotten, and is there again
    ends = {number: tail.end for number, tail in tails.items()}
    for _, number, one in heapq.merge(*map(_walk, tails.values()), key=itemgetter(0)):
        path = tails[number].path
        if progress:
            progress(one.length)
        if isinstance(one, Gap):
            ends[number] -= one.length * one.is_torn
            if not one.is_torn:
                logger.warning("%s: %s", path, one.why)
            continue
        if 0 < one.head.sequence <= newest:
            raise TBloomError(
                f"{str(path)!r} has records that are older than the index; make a new index with 'tbloom pages rebuild'"
            )
        if segment := known.get(number) or _begin(index, config, path, number, one):
            known[number] = _add(index, segment, one)
    for number, tail in tails.items():
        _end(index, tail, ends[number], known.get(number))


def _tails(root: Path, known: dict[int, Segment], since: int) -> Iterator[_Tail]:
    """Yield what the index does not know. Raise TBloomError if a segment in the window is shorter than it knows."""
    files = segments.files_in(root)
    for number in sorted(known.keys() | files.keys()):
        path, segment = files.get(number), known.get(number)
        size, begin = path.stat().st_size if path else 0, segment.size if segment else 0
        if segment and size < begin and segment.start >= since:
            raise segments.size_error(root / segment.name, size, begin)
        if path and (size > begin or segment is None):
            yield _Tail(path, number, begin, size)


def _walk(tail: _Tail) -> Iterator[tuple[int, int, Found | Gap]]:
    """Yield what is in a tail, each with the sequence number of its last record so far, by which tails are merged."""
    sequence = 0
    for one in segments.walk(tail.path, tail.begin, tail.end):
        if isinstance(one, Found):
            sequence = max(sequence, one.head.sequence)
        yield sequence, tail.number, one


def _end(index: Index, tail: _Tail, end: int, segment: Segment | None) -> None:
    """Cut off a torn record. Tell the index the size of the segment; None: it is none of the store."""
    if not end:
        tail.path.unlink()  # its writer was killed when it began
    elif end < tail.end:
        os.truncate(tail.path, end)
    if segment is not None:
        index.put_segment(segment._replace(size=end))
    elif end:
        logger.warning("%s is left out: it has no record of tbloom", tail.path)


def _begin(
    index: Index, config: PagesConfig, path: Path, number: int, one: Found
) -> Segment | None:
    """Add the segment of this record to the index; None if its slice is not known."""
    start = segments.first_of(path).start
    if start is None and one.head.kind == "response":
        # Its first record is damaged; the time of a page tells the slice.
        slice = config.window.slice_at(one.head.at // 1000)
        start = slice.start if path.name.startswith(f"{slice.label}-") else None
    if start is None:
        return None
    segment = Segment(number, path.name, start)
    index.put_segment(segment)  # before its pages, which are counted there
    return segment


def _add(index: Index, segment: Segment, one: Found) -> Segment:
    """Add a record. Return what is known of its segment then."""
    head = one.head
    if head.kind == "response":
        index.put(head.fingerprint, segment.number, one.offset, one.length, head.at)
    elif head.kind == "metadata":
        index.remove(head.fingerprint)
    records = segment.records + (head.kind != "warcinfo")
    sequence = max(segment.sequence, head.sequence)
    return segment._replace(records=records, sequence=sequence)
