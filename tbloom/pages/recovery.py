"""Brings the index up to the segments: after a writer was killed, or from nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tbloom.errors import TBloomError
from tbloom.pages import segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.database import remove_stale
from tbloom.pages.index import Index
from tbloom.pages.segments import Found, Gap, Segment

logger = logging.getLogger(__name__)


def parameters_in_segments(root: Path) -> str | None:
    """The parameters in the newest segment that has them; None where none has."""
    firsts = map(segments.first_of, reversed(segments.stored(root).values()))
    return next((first.parameters for first in firsts if first.parameters is not None), None)


def rebuild(root: Path, config: PagesConfig) -> None:
    """Makes the index anew from the segments, and puts it in the place of the old one."""
    try:
        with closing(Index.begin(root, config.stored)) as index:
            stored = segments.stored(root).items()
            begun = [_begin(config, number, path) for number, path in stored]
            _learn(root, index, filter(None, begun))
            index.publish()
    finally:
        remove_stale(root)  # or this one, where it was not finished: it may have filled the disk


def reconcile(root: Path, index: Index, config: PagesConfig) -> None:
    """Adds to the index what the last writer had written when it was killed, and cuts off a torn record.

    Raises TBloomError where a segment is shorter than the index knows, unless its slice has left the window.
    """
    known = {segment.number: segment for segment in index.segments()}
    files = segments.stored(root)
    grown: list[Segment] = []
    for segment in known.values():
        path = root / segment.name
        size = path.stat().st_size if files.get(segment.number) == path else 0
        if size < segment.size and segment.start >= config.since():
            raise TBloomError(
                f"{str(path)!r} has {size} bytes, and the index knows of {segment.size}: put the file back, or make "
                "the index anew from what is there with 'tbloom pages rebuild'"
            )
        if size > segment.size:
            grown.append(segment)
    for number, path in files.items():
        if number not in known and (begun := _begin(config, number, path)):
            grown.append(begun)
    if grown:
        _learn(root, index, grown)


def _begin(config: PagesConfig, number: int, path: Path) -> Segment | None:
    """A segment that the index does not know; None: it has no records of tbloom."""
    first = segments.first_of(path)
    if first.start is not None:
        return Segment(number, path.name, first.start)
    found = segments.records(path, 0, path.stat().st_size)
    kinds = {one.head.kind: one.head.at for one in found if isinstance(one, Found)}
    if "response" in kinds:  # its first record is damaged; the time of a page tells the slice
        slice = config.slice_at(kinds["response"] // 1000)
        if slice.label == segments.label_of(path.name):
            return Segment(number, path.name, slice.start)
    if not kinds and segments.is_torn(path):
        logger.warning("%s is removed: its first record is torn", path)
        path.unlink()
    else:
        logger.warning("%s is left out: tbloom did not write it", path)
    return None


def _learn(root: Path, index: Index, known: Iterable[Segment]) -> None:
    """Adds the records that the index does not know, and cuts off torn ones."""
    parts = [(one, one.size, (root / one.name).stat().st_size) for one in known]
    grown = {one.number: one for one, _, _ in parts}
    with index.learning():
        for segment, one in segments.walk(root, parts):
            if isinstance(one, Gap):
                logger.warning("%s: %s", root / segment.name, one.why)
                continue
            is_entry, had = one.head.kind != "warcinfo", grown[segment.number]
            grown[segment.number] = had._replace(
                size=one.offset + one.length,
                records=had.records + is_entry,
                sequence=max(had.sequence, one.head.sequence),
            )
            if is_entry:
                index.learn(segment.number, one)
        for segment in grown.values():
            index.put_segment(segment)
    for segment, _, end in parts:
        path, size = root / segment.name, grown[segment.number].size
        # A segment whose first record is damaged gets no more records: nothing to cut.
        if size < end and segments.first_of(path).segment is not None:
            logger.warning("%s: they are cut off", path)
            os.truncate(path, size)
