"""Brings the index up to the segments: after a writer was killed, or from nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tbloom.errors import TBloomError
from tbloom.pages import record, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index
from tbloom.pages.segments import Found, Gap
from tbloom.pages.snapshot import Change, Entry, Kept, Segment

logger = logging.getLogger(__name__)

#: Records per change of the index.
_BATCH = 5_000
#: Called with the bytes that are done, and their total.
Progress = Callable[[int, int], object]


def parameters_in_segments(root: Path) -> str | None:
    """The parameters in the newest segment that has them; None where none has."""
    for number, label in reversed(segments.stored(root).items()):
        details = _details(segments.path_of(root, label, number))
        if isinstance(details.get("parameters"), str):
            return str(details["parameters"])
    return None


def rebuild(root: Path, config: PagesConfig, progress: Progress | None = None) -> None:
    """Makes the index anew from the segments, and puts it in the place of the old one."""
    index = Index.begin(root, config.stored)
    try:
        learner = _Learner(root, index, config, progress)
        for number, label in segments.stored(root).items():
            learner.begin(number, label)
        index.publish()
    finally:
        index.close()


def reconcile(root: Path, index: Index, calendar: Calendar) -> list[Moved]:
    """Adds to the index what the last writer had written when it was killed, and cuts off a torn record.

    Returns the pages that moved to an earlier slice: the deletion in their later slice may be missing. Raises
    TBloomError where a segment is shorter than the index knows, unless its slice has left the window.
    """
    with index.reading() as snapshot:
        known = {segment.number: segment for segment in snapshot.segments()}
        live = {slice.label for slice in snapshot.kept(calendar.since())}
    files = segments.stored(root)
    learner = _Learner(root, index, calendar.config, None)
    for segment in known.values():
        path = segments.path_of(root, segment.label, segment.number)
        size = path.stat().st_size if files.get(segment.number) == segment.label else 0
        if size < segment.size and segment.label in live:
            raise TBloomError(
                f"{str(path)!r} has {size} bytes, and the index knows of {segment.size}: put the file back, or make "
                "the index anew from what is there with 'tbloom pages rebuild'"
            )
        if size > segment.size:
            learner.go_on(segment)
    for number, label in files.items():
        if number not in known:
            learner.begin(number, label)
    return learner.moved


class Moved(NamedTuple):
    """A page that was put again, in an earlier slice."""

    #: The later slice, where it was before.
    label: str
    fingerprint: bytes
    #: Sequence number of the put; the deletion's is one lower.
    sequence: int


class _Learner:
    """Adds the records of segments to an index, in any order."""

    def __init__(
        self, root: Path, index: Index, config: PagesConfig, progress: Progress | None
    ) -> None:
        self._root, self._index, self._config, self._progress = root, index, config, progress
        self.moved: list[Moved] = []
        #: Sequence numbers of the deletions so far, by address.
        self._deleted: dict[bytes, int] = {}
        paths = (segments.path_of(root, *one[::-1]) for one in segments.stored(root).items())
        self._total = sum(path.stat().st_size for path in paths)
        self._done = 0

    def begin(self, number: int, label: str) -> None:
        """Adds a whole segment."""
        path = segments.path_of(self._root, label, number)
        start = self._start_of(path, label)
        if start is not None:
            with self._index.reading() as snapshot:
                is_known = any(slice.label == label for slice in snapshot.slices)
            if not is_known:
                self._index.begin_slice(label, start)
            self.go_on(Segment(number, label, 0, 0))
        elif segments.is_torn(path) and not self._has_records(path):
            logger.warning("%s is removed: its first record is torn", path)
            path.unlink()
        else:
            logger.warning("%s is left out: tbloom did not write it", path)
            with self._index.changing() as change:  # its number is taken
                change.pass_segment(number)

    def go_on(self, segment: Segment) -> None:
        """Adds the records of a segment behind those that the index knows."""
        path = segments.path_of(self._root, segment.label, segment.number)
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
        # A segment whose first record is damaged gets no more records: nothing to cut.
        if is_torn and segments.segment_of(path) is not None:
            logger.warning("%s: they are cut off", path)
            os.truncate(path, segment.size)

    def _learn(self, change: Change, slice: Kept, number: int, found: Found) -> None:
        kind, _, fingerprint, _, sequence, at = found.head
        if kind == "warcinfo":
            return
        change.pass_sequence(sequence)
        had = change.find(fingerprint)
        entry = Entry(number, found.offset, found.length, at, sequence)
        if sequence < self._deleted.get(fingerprint, 0):
            return
        if had is not None:
            newer = (slice, entry) if sequence > had[1].sequence else had
            if newer is had and self._is_whole(*had):
                return
            if newer is not had and not self._is_whole(*newer):
                return  # torn by a power cut, while the page that it replaced may be whole
            change.remove(had[0], fingerprint)
        if kind != "response":
            self._deleted[fingerprint] = sequence
            return
        change.put(slice, fingerprint, entry)
        if had is not None and had[0].start > slice.start:
            self.moved.append(Moved(had[0].label, fingerprint, sequence))

    def _is_whole(self, slice: Kept, entry: Entry) -> bool:
        path = segments.path_of(self._root, slice.label, entry.segment)
        try:
            record.check(segments.read(path, entry.offset, entry.length))
        except (record.Damaged, FileNotFoundError) as error:
            logger.warning("%s: the record at %d: %s", path, entry.offset, error)
            return False
        return True

    def _has_records(self, path: Path) -> bool:
        return any(isinstance(one, Found) for one in segments.scan(path, 0, path.stat().st_size))

    def _start_of(self, path: Path, label: str) -> int | None:
        """The start of a segment's slice (ms); None: tbloom did not write the segment."""
        start = _details(path).get("start")
        if isinstance(start, int):
            return start
        # Its first record is damaged. The time of a page tells the slice.
        for found in segments.scan(path, 0, path.stat().st_size):
            if isinstance(found, Found) and found.head.kind == "response":
                slice = self._config.slice_at(found.head.at // 1000)
                return slice.start if slice.label == label else None
        return None


def _details(path: Path) -> dict[str, object]:
    """The details in a segment's first record; empty where it can't be read."""
    try:
        found = json.loads(record.details_of(segments.first_record(path)))
    except (record.Damaged, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
