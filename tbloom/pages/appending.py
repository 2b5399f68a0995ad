"""The segments that a writer appends to."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from tbloom.pages import record, segments
from tbloom.pages.config import PagesConfig
from tbloom.pages.database import flush
from tbloom.pages.index import Index
from tbloom.pages.members import SUFFIXES
from tbloom.pages.page import MAX_BYTES
from tbloom.pages.segments import Segment
from tbloom.window import Slice

#: If fewer bytes are free on the disk, a put waits until the bytes of removed segments are freed.
_LOW_SPACE = 4 * MAX_BYTES
#: So many removed segments are held open until a thread frees their bytes: a process may open few files.
_HELD_FILES = 32


class Appender:
    """A segment to which a writer appends records."""

    def __init__(self, path: Path, segment: Segment, identity: str) -> None:
        self.path: Path = path
        self.identity: str = identity
        self.segment: Segment = segment
        #: True: bytes beyond the size that the index knows are from this writer.
        self.has_written: bool = False

    def append(self, data: bytes, sequence: int | None) -> int:
        """Append a record, and return its offset. A segment's first record has no sequence number.

        Raise TBloomError if another program has changed the file, or OSError.
        """
        known, view = self.segment, memoryview(data)
        offset = known.size
        fd = os.open(self.path, os.O_WRONLY)
        try:
            size = os.fstat(fd).st_size
            if size != offset:
                raise segments.size_error(self.path, size, offset)
            self.has_written = True
            while view:
                written = os.pwrite(fd, view, offset)
                offset += written
                view = view[written:]
        finally:
            os.close(fd)
        self.segment = known._replace(size=offset)
        if sequence is not None:
            last = max(known.sequence, sequence)
            self.segment = self.segment._replace(records=known.records + 1, sequence=last)
        return known.size


class OpenSegments:
    """For each slice, the segment that gets its next records; and the segments that the current change has written to."""

    def __init__(
        self, root: Path, config: PagesConfig, index: Index, segment_bytes: int, codec: str
    ) -> None:
        self._root, self._config, self._index = root, config, index
        self.codec: str = codec
        self._segment_bytes = segment_bytes
        stored = segments.files_in(root)
        #: The number of the next segment.
        self._next_number = 1 + max([*stored, index.last_number])
        #: By the start of the slice (ms).
        self._appenders: dict[int, Appender] = {}
        #: Those to which the current change writes, by the number of the segment.
        self._changed: dict[int, Appender] = {}
        #: Segments that may not be on the disk yet; at first also those of a killed writer.
        self._unflushed = {*stored.values()}

    def appender_for(self, slice: Slice) -> Appender:
        """Return the segment for the next record of a slice; begin one if necessary."""
        appender = self._appenders.get(slice.start) or self._last_appender(slice.start)
        if appender is None or appender.segment.size >= self._segment_bytes:
            appender = self._new_appender(slice)
        self._appenders[slice.start] = self._changed[appender.segment.number] = appender
        return appender

    def update_index(self) -> None:
        """Update the index's entries of the segments that the current change has written to."""
        for appender in self._changed.values():
            self._unflushed.add(appender.path)
            self._index.put_segment(appender.segment)

    def finish(self) -> None:
        """End a change that was committed."""
        for appender in self._changed.values():
            appender.has_written = False
        self._changed.clear()

    def roll_back(self) -> None:
        """Undo a change that failed: cut off the records, and remove the segments, that the index does not know."""
        self._appenders.clear()
        known = {segment.number: segment for segment in self._index.segments()}
        for number, appender in self._changed.items():
            if number in known:
                if appender.has_written:
                    os.truncate(appender.path, known[number].size)
            else:
                self.remove([appender.path])
        self._changed.clear()

    def flush(self) -> None:
        """Wait until all records are on the disk."""
        for path in self._unflushed:
            with suppress(FileNotFoundError):  # its slice has left the window
                flush(path)
        self._unflushed.clear()
        flush(self._root)

    def remove(self, paths: list[Path]) -> None:
        """Remove segments. A thread frees the bytes of the first ones, because that takes a third of a second for a GB.

        If the process forks meanwhile, the bytes are freed only when the child ends.
        """
        self._appenders.clear()
        self._unflushed.difference_update(paths)
        open_files = ExitStack()
        removed = [*paths, *segments.asides(self._root, [path.name for path in paths])]
        for number, file in enumerate(removed):
            if number < _HELD_FILES:
                with suppress(OSError):  # then ``unlink`` frees the bytes
                    open_files.enter_context(file.open("rb"))
            file.unlink(missing_ok=True)
        freeing = threading.Thread(target=open_files.close, name="tbloom-pages-freeing")
        try:
            freeing.start()
        except RuntimeError:  # the interpreter ends
            open_files.close()
        else:
            if shutil.disk_usage(self._root).free < _LOW_SPACE:
                freeing.join()

    def _last_appender(self, start: int) -> Appender | None:
        """Return the slice's last segment; None if there is none, or if it holds records of another codec."""
        known = [one for one in self._index.segments(start) if one.start == start]
        if not known or not known[-1].name.endswith(SUFFIXES[self.codec]):
            return None
        path = self._root / known[-1].name
        identity = segments.first_of(path).segment
        return None if identity is None else Appender(path, known[-1], identity)

    def _new_appender(self, slice: Slice) -> Appender:
        number, identity = self._next_number, record.new_id()
        name = segments.name_of(slice.label, number, SUFFIXES[self.codec])
        own = (record.PARAMETERS, self._config.stored), (record.START, f"{slice.start}")
        fields = ("WARC-Filename", name), *own
        appender = Appender(self._root / name, Segment(number, name, slice.start), identity)
        self._next_number += 1  # first, because an interrupt may come at any line
        appender.path.open("xb").close()  # raises if another program has made the file
        self._changed[number] = appender
        self._index.put_segment(appender.segment)  # so that this change finds its pages
        appender.append(record.of_info(identity, self.codec, fields), None)
        return appender
