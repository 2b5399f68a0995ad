"""The segments that a writer appends to."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from tbloom.pages import record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.index import Index
from tbloom.pages.members import SUFFIXES
from tbloom.pages.snapshot import Change, Kept, Segment

#: Segments that stay open: a process may have few files, and a store 1,024 slices.
_MAX_OPEN = 16


class OpenSegments:
    """The segment of each slice that gets its next records, and what the current change has written."""

    def __init__(self, root: Path, config: PagesConfig, segment_bytes: int, codec: str) -> None:
        self._root, self._config, self._segment_bytes = root, config, segment_bytes
        self.codec = codec
        #: By slice, in the order of use.
        self._appenders: OrderedDict[str, Appender] = OrderedDict()
        #: The segments to which the current change writes, by number.
        self._changed: dict[int, Path] = {}
        #: Segments that may not be on the disk yet.
        self.unflushed: set[Path] = set()

    def of(self, change: Change, slice: Kept) -> Appender:
        """The segment for the slice's next record."""
        found = self._appenders.get(slice.label) or self._last(change, slice)
        if found is not None and found.segment.size >= self._segment_bytes:
            self._end(change, found)
            found = None
        if found is None:
            found = self._new(change, slice)
        self._appenders.move_to_end(slice.label)
        while len(self._appenders) > _MAX_OPEN:
            self._end(change, next(iter(self._appenders.values())))
        self._changed[found.segment.number] = found.path
        self.unflushed.add(found.path)
        return found

    def write(self, change: Change) -> None:
        """Writes the records that were added, and notes it in the index. Raises OSError."""
        for appender in self._appenders.values():
            if appender.segment.number in self._changed:
                appender.write()
                change.put_segment(appender.segment)

    def done(self) -> None:
        """Ends a change that was committed."""
        self._changed.clear()

    def take_back(self, index: Index) -> None:
        """After a failure, cuts off records that the index does not know, and removes segments that it does not know."""
        self.close()
        with index.reading() as snapshot:
            for number, path in self._changed.items():
                ours = snapshot.segment(number)
                if ours is not None:
                    os.truncate(path, ours.size)
                else:
                    self.unlink([path])
        self._changed.clear()

    def close_slice(self, label: str) -> None:
        """Closes the segment of a slice."""
        if label in self._appenders:
            self._appenders.pop(label).close()

    def close(self) -> None:
        """Closes all files."""
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()

    def flush(self) -> None:
        """Waits until all is on the disk."""
        for path in self.unflushed:
            with suppress(FileNotFoundError):  # its slice has left the window
                segments.flush(path)
        self.unflushed.clear()
        segments.flush(self._root)

    def unlink(self, paths: list[Path]) -> None:
        """Removes segments."""
        for path in paths:
            self.unflushed.discard(path)
            path.unlink(missing_ok=True)

    def _last(self, change: Change, slice: Kept) -> Appender | None:
        """The slice's last segment; None where there is none, or it can't get records of this codec."""
        ours = change.segments_of(slice)
        if not ours:
            return None
        path = segments.path_of(self._root, slice.label, ours[-1].number)
        identity = segments.segment_of(path)
        if identity is None or not path.name.endswith(SUFFIXES[self.codec]):
            return None
        appender = self._appenders[slice.label] = Appender(path, ours[-1], identity)
        return appender

    def _new(self, change: Change, slice: Kept) -> Appender:
        number, label = change.state.segment, slice.label
        change.pass_segment(number)
        name = segments.name_of(label, number, SUFFIXES[self.codec])
        identity = record.new_id()
        details = {"parameters": self._config.stored, "slice": label, "start": slice.start}
        path = self._changed[number] = self._root / name
        try:
            appender = Appender(path, Segment(number, label, 0, 0), identity, is_new=True)
        except FileExistsError:
            del self._changed[number]
            raise
        self._appenders[label] = appender
        first = record.of_segment(name, json.dumps(details), identity, self.codec)
        appender.append(first, records=0)
        return appender

    def _end(self, change: Change, appender: Appender) -> None:
        appender.write()
        change.put_segment(appender.segment)
        self.close_slice(appender.segment.label)


class Appender:
    """A segment that is being written."""

    def __init__(self, path: Path, known: Segment, identity: str, *, is_new: bool = False) -> None:
        """Opens a segment, and removes what is behind the bytes that the index knows."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self.path, self.identity = path, identity
        #: With the records that are not written yet.
        self.segment = known
        self._waiting: list[bytes] = []
        self._written = known.size
        self._fd = os.open(path, flags, 0o666)
        os.ftruncate(self._fd, known.size)

    def append(self, data: bytes, records: int = 1) -> int:
        """Adds a record to those that ``write`` writes, and returns its offset."""
        offset = self.segment.size
        self._waiting.append(data)
        self.segment = self.segment._replace(
            size=offset + len(data), records=self.segment.records + records
        )
        return offset

    def write(self) -> None:
        """Writes the added records at the end. Raises OSError; then some may be written."""
        view = memoryview(b"".join(self._waiting))
        self._waiting.clear()
        while view:
            written = os.pwrite(self._fd, view, self._written)
            self._written += written
            view = view[written:]

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):
            os.close(self._fd)
        self._fd = -1
