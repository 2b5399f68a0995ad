"""Opens the folder of a store, and adds to its index the records of a killed writer; or builds a new index from the segments."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import members, segments
from tbloom.pages.appending import OpenSegments
from tbloom.pages.config import PagesConfig, from_stored
from tbloom.pages.database import INDEX_NAME, newest_index, remove_stale
from tbloom.pages.index import Index
from tbloom.pages.segments import Found, Gap, Segment
from tbloom.pages.writer import Writer, WriterLock
from tbloom.window import NoWindow

logger: logging.Logger = logging.getLogger(__name__)


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
    return _open(root, wanted)


def to_write(
    root: Path, wanted: PagesConfig | None, segment_bytes: int, codec: str
) -> tuple[Index, PagesConfig, Writer]:
    """Return the index, the parameters and the writer of a store. Begin a store if there is none."""
    root.mkdir(parents=True, exist_ok=True)
    if not _has_index(root) and _is_foreign(root):
        raise ConfigError("path", str(root), "a new or empty folder, or a page store")
    with ExitStack() as stack:
        lock = stack.enter_context(closing(WriterLock(root)))
        remove_stale(root)
        if newest_index(root) is None:
            with Index.create(root, (wanted or PagesConfig(NoWindow())).stored):
                pass
        index, config = _open(root, wanted, writes=True)
        stack.callback(index.close)
        open_segments = OpenSegments(root, config, index, segment_bytes, codec)
        writer = Writer(root, index, config, lock, open_segments)
        stack.pop_all()
    return index, config, writer


def rebuild(root: Path, progress: Callable[[int], object] | None = None) -> None:
    """Build the store's index from its segments. Call ``progress`` with the length of each record."""
    stored = _parameters(root)
    if stored is None:
        raise ConfigError("path", str(root), "a folder with segments of a page store")
    with closing(WriterLock(root)):
        config = from_stored(str(root), stored, None)
        with Index.create(root, config.stored) as index:
            _reconcile(root, index, config, progress)


def _has_index(root: Path) -> bool:
    """Return True if there is a store. Raise TBloomError if the store has no index."""
    has_index = newest_index(root) is not None
    if not has_index and _parameters(root) is not None:
        raise TBloomError(
            f"{str(root)!r} has no index; run 'tbloom pages rebuild' to make one from the WARC files"
        )
    return has_index


def _open(
    root: Path, wanted: PagesConfig | None, *, writes: bool = False
) -> tuple[Index, PagesConfig]:
    index = Index(root, writes=writes)
    try:
        config = from_stored(str(root), index.parameters, wanted)
        if writes:
            with index.transaction():  # raises if the index can't be written
                pass
            _reconcile(root, index, config)
    except BaseException:
        index.close()
        raise
    return index, config


def _is_foreign(root: Path) -> bool:
    """Return True if the folder contains files that tbloom did not create."""
    names = {path.name for path in root.iterdir() if not INDEX_NAME.fullmatch(path.name)}
    if "lock" in names and not (root / "lock").read_bytes().strip(b"0123456789 "):  # a process ID
        names -= {"lock", *(path.name for path in segments.files_in(root).values())}
    return bool(names)


def _parameters(root: Path) -> str | None:
    """Return the parameters in the newest segment that has them; None if none has."""
    files = segments.files_in(root) if root.is_dir() else {}
    firsts = map(segments.first_of, reversed(files.values()))
    return next((first.parameters for first in firsts if first.parameters is not None), None)


def _reconcile(
    root: Path,
    index: Index,
    config: PagesConfig,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Add to the index the records that it does not know, such as those of a killed writer. Cut off a torn record.

    Raise TBloomError if a segment is shorter than the index knows, unless its slice has left the window.
    """
    known = {segment.number: segment for segment in index.segments()}
    files = segments.files_in(root)
    grown: list[Segment] = []
    for number in sorted(known.keys() | files.keys()):
        segment = known.get(number) or _begin(config, number, files[number])
        if segment is None:
            continue
        path = root / segment.name
        size = path.stat().st_size if files.get(number) == path else 0
        if size < segment.size and segment.start >= config.since():
            raise segments.size_error(path, size, segment.size)
        if size > segment.size:
            grown.append(segment)
    if grown:
        _add_records(root, index, grown, progress)


def _begin(config: PagesConfig, number: int, path: Path) -> Segment | None:
    """Return a segment that the index does not know; None if it has no records of tbloom."""
    first = segments.first_of(path)
    if first.start is not None:
        return Segment(number, path.name, first.start)
    found = segments.records(path, 0, path.stat().st_size)
    kinds = {one.head.kind: one.head.at for one in found if isinstance(one, Found)}
    if "response" in kinds:  # its first record is damaged; the time of a page tells the slice
        slice = config.window.slice_at(kinds["response"] // 1000)
        if slice.label == path.name.partition("-")[0]:
            return Segment(number, path.name, slice.start)
    start = segments.read(path, 0, segments.START)
    if not kinds and members.is_torn(start, path.stat().st_size):
        aside = segments.cut(path, 0)
        path.unlink()
        logger.warning("%s is moved to %s: its first record is torn", path, aside)
    else:
        logger.warning("%s is left out: tbloom did not write it", path)
    return None


def _add_records(
    root: Path,
    index: Index,
    known: list[Segment],
    progress: Callable[[int], object] | None,
) -> None:
    """Add the records that the index does not know. Move torn ones aside, into files of their own; other bytes stay.

    Raise TBloomError if one is older than those that the index knows: a lost segment was put back, or a torn page's body
    is a segment of this store. Later records may have replaced its pages.
    """
    newest = max((one.sequence for one in index.segments()), default=0)
    parts = [(one, one.size, (root / one.name).stat().st_size) for one in known]
    grown = {one.number: one for one, _, _ in parts}
    with index.adding_records():
        index.remove_pages_of(one.number for one in known if not one.size)
        for segment, one in segments.walk(root, parts):
            if progress:
                progress(one.length)
            if isinstance(one, Gap):
                logger.warning("%s: %s", root / segment.name, one.why)
                continue
            is_entry, had = one.head.kind != "warcinfo", grown[segment.number]
            if segment.size and (not is_entry or one.head.sequence <= newest):
                continue
            if is_entry and one.head.sequence <= newest:
                raise TBloomError(
                    f"{str(root / segment.name)!r} has records that are older than the index; make a new index with "
                    "'tbloom pages rebuild'"
                )
            grown[segment.number] = had._replace(
                size=one.offset + one.length,
                records=had.records + is_entry,
                sequence=max(had.sequence, one.head.sequence),
            )
            if is_entry:
                index.add_record(segment.number, one)
        ends = {segment.number: end for segment, _, end in parts}
        torn = {one.number for one in grown.values() if _is_torn(root, one, ends[one.number])}
        for number, segment in grown.items():
            size = segment.size if number in torn else ends[number]
            index.put_segment(segment._replace(size=size))
    for number in torn:
        path = root / grown[number].name
        logger.warning(
            "%s: what is torn is moved to %s", path, segments.cut(path, grown[number].size)
        )


def _is_torn(root: Path, segment: Segment, end: int) -> bool:
    """Return True if a record begins after the last whole one of a segment, and was not written to its end."""
    start = segments.read(root / segment.name, segment.size, segments.START)
    return start != b"" and members.is_torn(start, end - segment.size)
