"""Has the index know what the segments hold: after the writer's death, and from nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from tbloom.errors import TBloomError
from tbloom.pages import record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index
from tbloom.pages.segments import Appender, Found, Gap
from tbloom.pages.snapshot import Change, Entry, Kept, Segment

logger = logging.getLogger(__name__)

#: So many records make one change of the index.
_BATCH = 5_000
#: How far: bytes of all, and their number.
Progress = Callable[[int, int], object]


def parameters_in_segments(root: Path) -> str | None:
    """The parameters that the newest segment names; None: there is none that does."""
    for number, label in reversed(segments.stored(root).items()):
        details = _details(root / segments.name_of(label, number))
        if isinstance(details.get("parameters"), str):
            return str(details["parameters"])
    return None


def rebuild(root: Path, config: PagesConfig, progress: Progress | None = None) -> None:
    """Makes the index anew from the segments, and puts it in the old one's place."""
    index = Index.begin(root, config.stored)
    try:
        learner = _Learner(root, index, config, progress)
        for number, label in segments.stored(root).items():
            learner.begin(number, label)
        index.publish()
    finally:
        index.close()


def reconcile(root: Path, index: Index, config: PagesConfig) -> None:
    """Has the index know what was written and not yet known when the last writer died, and cuts off a torn record.

    Raises TBloomError where a segment lacks what the index knows.
    """
    with index.reading() as snapshot:
        known = {segment.number: segment for segment in snapshot.segments()}
    files = segments.stored(root)
    learner = _Learner(root, index, config, None)
    for segment in known.values():
        path = root / segments.name_of(segment.label, segment.number)
        size = path.stat().st_size if files.get(segment.number) == segment.label else 0
        if size < segment.size:
            raise TBloomError(
                f"{str(path)!r} has {size} bytes, and the index knows of {segment.size}: put the file back, or make "
                "the index anew from what is there with 'tbloom pages rebuild'"
            )
        if size > segment.size:
            learner.go_on(segment)
    for number, label in files.items():
        if number not in known:
            learner.begin(number, label)


class _Learner:
    """Has an index know what segments hold, in any order."""

    def __init__(
        self, root: Path, index: Index, config: PagesConfig, progress: Progress | None
    ) -> None:
        self._root, self._index, self._config, self._progress = root, index, config, progress
        #: The sequence numbers of the deletions that were met, by address.
        self._deleted: dict[bytes, int] = {}
        paths = (segments.name_of(label, number) for number, label in segments.stored(root).items())
        self._total = sum((root / path).stat().st_size for path in paths)
        self._done = 0

    def begin(self, number: int, label: str) -> None:
        """All of a segment."""
        path = self._root / segments.name_of(label, number)
        start = self._start_of(path, label)
        if start is not None:
            with self._index.reading() as snapshot:
                is_known = any(slice.label == label for slice in snapshot.slices)
            if not is_known:
                self._index.begin_slice(label, start)
            self.go_on(Segment(number, label, 0, 0))
        elif segments.is_torn(path):
            logger.warning("%s is removed: its first record is torn", path)
            path.unlink()
        else:
            logger.warning("%s is left out: tbloom did not write it", path)
            with self._index.changing() as change:  # its number is taken all the same
                change.pass_segment(number)

    def go_on(self, segment: Segment) -> None:
        """What a segment holds behind what the index knows of it."""
        path = self._root / segments.name_of(segment.label, segment.number)
        end = path.stat().st_size
        found, is_torn = segments.scan(path, segment.size, end), False
        while batch := [*islice(found, _BATCH)]:
            with self._index.changing() as change:
                slice = change.slice(segment.label)
                for each in batch:
                    is_torn = isinstance(each, Gap)
                    if isinstance(each, Gap):
                        logger.warning("%s: at %d, %d bytes are no record", path, *each)
                        continue
                    self._learn(change, slice, segment.number, each)
                    records = segment.records + (each.head.kind != "warcinfo")
                    segment = segment._replace(size=each.offset + each.length, records=records)
                change.put_segment(segment)
            if self._progress is not None:
                self._progress(self._done + segment.size, self._total)
        self._done += end
        if is_torn:
            logger.warning("%s: they are cut off", path)
            appender = Appender(path)
            appender.cut(segment.size)
            appender.close()

    def _learn(self, change: Change, slice: Kept, number: int, found: Found) -> None:
        kind, fingerprint, sequence, at = found.head
        if kind == "warcinfo":
            return
        change.pass_sequence(sequence)
        had = change.find(fingerprint)
        if sequence < self._deleted.get(fingerprint, 0) or (had and had[1].sequence > sequence):
            return
        if had is not None:
            change.remove(had[0], fingerprint)
        if kind == "response":
            change.put(slice, fingerprint, Entry(number, found.offset, found.length, at, sequence))
        else:
            self._deleted[fingerprint] = sequence

    def _start_of(self, path: Path, label: str) -> int | None:
        """When the slice of a segment begins (ms); None: it is none of tbloom's."""
        start = _details(path).get("start")
        if isinstance(start, int):
            return start
        # Its first record is damaged. A page was fetched in its slice.
        for found in segments.scan(path, 0, path.stat().st_size):
            if isinstance(found, Found) and found.head.kind == "response":
                slice = self._config.slice_at(found.head.at // 1000)
                return slice.start if slice.label == label else None
        return None


def _details(path: Path) -> dict[str, object]:
    """What a segment's first record tells of it; nothing where it can't be read."""
    try:
        found = json.loads(record.details_of(segments.first_record(path)))
    except (record.Damaged, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
