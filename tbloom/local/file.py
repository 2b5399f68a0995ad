"""Where a filter without a server keeps its contents: in one file, which several processes map.

::

    0     16 bytes "tbloom local 1", and the byte order
    16    a sequence number, 64 bits: the number of changes of the directory
    32    two slots, for even and odd sequence numbers, of 3 x 64 bits each:
          where a directory begins, its length, and its CRC-32
    4096  regions, each at a multiple of 4096: parts (see ``parts``), and the two directories
          (the text of ``contents``)

A file is changed under an exclusive lock, and read under a shared one (``flock``).

**Crash order.** A change of the directory first reserves all the room that it needs, without holes where the
system can do so: then a full disk is an OSError now, and no SIGBUS later. Next the new parts are zeroed, and the
other directory is written, then its slot, and last the sequence number, one word. A process that is killed before
that has changed nothing: the old directory is intact, and so is all that it names. (Therefore the room of a part that
has left the window is used again by the next change only.) ``add`` raises a part's count and then sets bits: a kill
in between leaves a count that is too high by the items of one batch of probes at most, and loses no item that was answered.
The same holds for a crash of the machine as far as its kernel has written the file: it does so every half minute
or so, and writes the directory at once.

Other programs may copy the file, also while it is in use, if they take the lock (``flock -s FILE cp ...``). They
must not write to it, cut it, or put another one in its place; to forget what it holds, use ``clear()``.

A forked child opens the file again: a lock belongs to an open file, so it would share its parent's.
The mapping is made through another open file than the lock, so that a child does not keep a dead
parent's lock alive.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tbloom.errors import ConfigError, TBloomError
from tbloom.local.contents import Contents
from tbloom.local.memory import Store
from tbloom.local.regions import GRID, end_of, reserve, take, zero

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAGIC = b"tbloom local 1 <" if sys.byteorder == "little" else b"tbloom local 1 >"
_SEQUENCE, _SLOTS, _SLOT_WORDS = 2, 4, 3  # words of 64 bits
#: Errors of ``open`` that another path, or other rights, would avoid; the others are raised as they are.
_PATH_ERRORS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOENT, errno.ENOTDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO, errno.EINVAL),
}


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class FileStore(Store):
    """Contents in a file."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if fcntl is None:
            raise ConfigError("path", path, "None: files need file locks, which this system lacks")
        try:
            self.path = str(Path(os.fsdecode(path)).absolute())
        except TypeError:
            raise ConfigError("path", path, "the path of a file, or None") from None
        super().__init__()
        self._fd = self._open(os.O_CREAT)
        try:
            self._own = _identity(self._fd)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._check()
            self._map()
            self._read()
            self._fill()
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Closes an open file, whose lock is the parent's."""
        self.guard, self.process = threading.Lock(), os.getpid()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        """Closes the file. (The mapping closes itself.)"""
        if self._fd >= 0:
            os.close(self._fd)

    @contextmanager
    def locked(self, *, is_change: bool = False) -> Iterator[None]:
        """Locks out other processes, and reads the newest directory."""
        with self.guard:
            try:
                self.lock(fcntl.LOCK_EX if is_change else fcntl.LOCK_SH)
                yield
            finally:
                try:
                    self.unlock()
                except BaseException:  # KeyboardInterrupt, before it was unlocked
                    self.unlock()
                    raise

    def lock(self, how: int) -> None:
        """Waits for the file's lock, and reads the directory if another process has changed it."""
        self._check_open()
        if self._fd < 0:  # in a forked child
            self._fd = self._open_same()
        fcntl.flock(self._fd, how)
        # The system kills a process that touches mapped bytes beyond the end of a file.
        is_whole = os.lseek(self._fd, 0, os.SEEK_END) >= len(self._view)
        if not is_whole or self._head[_SEQUENCE] != self.version:
            self._read()

    def unlock(self) -> None:
        """Ends the lock; also after a ``lock`` that has failed or was interrupted."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part."""
        part = self.contents.parts[key]
        return self._view[part.offset : part.offset + part.size]

    def save(self, contents: Contents) -> None:
        """Replaces the contents: see above for the order."""
        had, begun = os.fstat(self._fd).st_size, []
        kept = self.contents.parts if contents.epoch == self.contents.epoch else {}
        # What has left the window is taken too: this change may be cut short.
        taken = [(0, GRID), self._active_region(self.version)]
        taken += [(part.offset, part.size) for part in self.contents.parts.values()]
        for key, part in contents.parts.items():
            place = kept[key].offset if key in kept else take(taken, part.size)
            contents.parts[key] = part._replace(offset=place)
            if key not in kept:
                begun.append((place, part.size))
        text = contents.to_text().encode()
        place, end = take(taken, len(text)), end_of(taken)
        if end > had:
            reserve(self._fd, had, end - had)
        if max(end, had) > len(self._view):
            self._map()
        for begin, size in begun:
            if begin < had:  # what is beyond the old end is zero
                zero(self._fd, begin, min(begin + size, had))
                self._flush(begin, size)
        self._view[place : place + len(text)] = text
        self._flush(place, len(text))
        sequence = self.version + 1
        slot = self._slot(sequence)
        for word, value in enumerate((place, len(text), zlib.crc32(text))):
            self._head[slot + word] = value
        self._flush(0, GRID)
        self._head[_SEQUENCE] = sequence
        self._flush(0, GRID)
        self.contents, self.version = contents, sequence

    def close(self) -> None:
        """Releases the file. (Its mapping ends with the last view of a part.)"""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._is_closed = -1, True
        self._head = self._view = memoryview(b"")
        self.contents = Contents()

    def _open(self, flags: int = 0) -> int:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | flags, 0o666)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _PATH_ERRORS:
                raise
            why = getattr(error, "strerror", None) or error
            expected = f"a file that this user may read and write ({why})"
            raise ConfigError("path", self.path, expected) from error
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise ConfigError("path", self.path, "a regular file")

    def _open_same(self) -> int:
        """Opens the same file once more. Raises ConfigError where that can't be done, TBloomError where it is another one."""
        fd = self._open()
        if _identity(fd) == self._own:
            return fd
        os.close(fd)
        raise TBloomError(
            f"{self.path!r} was deleted or replaced while it was in use; open the filter anew (to forget what it holds, clear() it)"
        )

    def _check(self) -> None:
        """Begins an empty file; refuses one that tbloom did not write."""
        size = os.fstat(self._fd).st_size
        head = os.pread(self._fd, GRID, 0)
        if not head.strip(b"\0") and size <= GRID:  # new, or a process was killed while it made it
            reserve(self._fd, 0, GRID)
            os.pwrite(self._fd, MAGIC, 0)
        elif head[: len(MAGIC)] != MAGIC or size < GRID:
            expected = "a file of tbloom's LocalBloom (not of another version or byte order); choose another path, or delete it"
            raise ConfigError("path", self.path, expected)

    def _fill(self) -> None:
        """Fills the holes of a copy now: later the disk may be full."""
        status = os.fstat(self._fd)
        if status.st_blocks * 512 < status.st_size:
            reserve(self._fd, 0, status.st_size)

    def _map(self) -> None:
        """Maps the whole file as it is now. Views of an earlier mapping stay valid: both show the file."""
        fd = self._open_same()
        try:
            self._view = memoryview(mmap.mmap(fd, 0))
        finally:
            os.close(fd)
        self._head = self._view[:GRID].cast("Q")

    def _read(self) -> None:
        """Reads the directory."""
        size = os.fstat(self._fd).st_size
        if size < len(self._view):
            raise self._damaged(f"it was cut to {size} bytes")
        if size > len(self._view):
            self._map()
        sequence = self._head[_SEQUENCE]
        begin, length = self._active_region(sequence)
        contents = Contents()
        if sequence:
            if begin < GRID or begin + length > size:
                raise self._damaged("its directory lies beyond its end")
            text = bytes(self._view[begin : begin + length])
            if zlib.crc32(text) != self._head[self._slot(sequence) + 2]:
                raise self._damaged("its directory's checksum is wrong")
            try:
                contents = Contents.from_text(text.decode())
            except (ValueError, TypeError, AttributeError):
                raise self._damaged("its directory can't be read") from None
        for key, part in contents.parts.items():
            if part.offset < GRID or part.offset + part.size > size:
                raise self._damaged(f"its part {key!r} lies beyond its end")
        self.contents, self.version = contents, sequence

    def _slot(self, sequence: int) -> int:
        return _SLOTS + sequence % 2 * _SLOT_WORDS

    def _active_region(self, sequence: int) -> tuple[int, int]:
        """Where the directory of this sequence number begins, and its length."""
        slot = self._slot(sequence)
        return self._head[slot], self._head[slot + 1]

    def _flush(self, begin: int, size: int) -> None:
        start = begin - begin % mmap.PAGESIZE
        mapping: mmap.mmap = self._view.obj  # type: ignore[assignment]
        mapping.flush(start, begin + size - start)

    def _damaged(self, why: str) -> TBloomError:
        return TBloomError(
            f"the file {self.path!r} is damaged: {why}; put back a copy of it, or delete it, and with it "
            "what the filter has seen"
        )
