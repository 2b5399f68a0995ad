"""The contents of a filter without a server in one file, which several processes map.

::

    0     16 bytes: "tbloom local ", the number of the format, and the byte order
    16    a sequence number, 64 bits: the number of changes of the directory
    32    two slots, for even and odd sequence numbers, of 3 x 64 bits each:
          where a directory begins, its length, and its CRC-32
    4096  regions, each at a multiple of 4096: parts (see ``parts``), and the two directories
          (the text of ``contents``)

Processes change a file under an exclusive lock, and read it under a shared one (``flock``), which needs no right to write.

**Crash order.** A change of the directory first writes zeros where new parts will be: then a full disk is an OSError now,
and no SIGBUS later. Next it writes the other directory and its slot, and last the sequence number, one word. A process
that is killed before that has changed nothing: the old directory is intact, and so is all that it names. (Therefore only
the next change reuses the room of an expired part.) ``add`` raises a part's count and then
sets bits: a kill in between leaves a count that is too high by one, and loses no item that was answered.
The same holds for a crash of the machine as far as its kernel has written the file: it does so every half minute
or so, and writes the directory at once.

A new file appears with its head: a file without one is another program's, or has lost what it held.

Other programs may copy the file, also while it is in use, if they take the lock (``flock -s FILE cp ...``). They
must not write to it, cut it, or put another one in its place; to forget what it holds, use ``clear()``. Each call, and ``close``,
looks whether the file is still there, as long as it was: bits in a deleted file are lost, and a part that is cut off kills the
process when it is used (SIGBUS).

A forked child opens the file again: a lock belongs to an open file, so it would share its parent's.
The mapping is made through another open file than the lock, so that a child does not keep a dead
parent's lock alive.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import stat
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from functools import partial
from pathlib import Path

from tbloom.engine.owned import OwnFile
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.local.contents import Contents
from tbloom.local.memory import Store

FORMAT = 1
MAGIC = b"tbloom local %d %c" % (FORMAT, b"<" if sys.byteorder == "little" else b">")
#: Regions begin at multiples of this.
GRID = 4096
_SEQUENCE_AT, _SLOTS_AT = 16, 32
_SEQUENCE, _SLOT = struct.Struct("=Q"), struct.Struct("=3Q")


class FileStore(Store):
    """Contents in a file."""

    #: The open file that is locked; None: it is closed.
    _file: OwnFile | None = None
    #: The device and the inode of the file when it was opened first, by which it is known again.
    _identity: tuple[int, int] | None = None

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False) -> None:
        if not isinstance(path, str | bytes | os.PathLike) or not os.fspath(path):
            raise ConfigError("path", path, "the path of a file, or None")
        self.path: str = str(Path(os.fsdecode(path)).absolute())
        super().__init__()
        self._readonly = readonly
        if not readonly and not Path(self.path).exists():
            self._make_file()
        fd = self._open_to_lock().fd
        try:
            try:
                flock(fd, LOCK_SH)
            except OSError as error:  # such as some network file systems
                expected = f"a file on a file system that has locks ({error.strerror})"
                raise ConfigError("path", self.path, expected) from error
            self._check_head(fd)
            self._read()
            self.unlock()
        except BaseException:
            self._release()
            raise

    def reset(self) -> None:
        """Close an open file, whose lock is the parent's."""
        super().reset()
        self._close_file()

    def __del__(self) -> None:
        """Close the file. The mapping closes itself."""
        self._close_file()

    def lock(self, *, is_change: bool = False) -> None:
        """Lock out other processes, and read the directory if another one has changed it.

        Raise TBloomError if the file is no longer at its path, or is shorter than its mapping.
        """
        file = self._file
        if file is None:  # closed, or in a forked child
            self._check_open()
            file = self._open_to_lock()
        if not file.is_ours:
            self.unlock = bool
            file.check()
        if is_change and self._readonly:
            raise TBloomError(f"{self.path!r} was opened to be read only")
        flock(file.fd, LOCK_EX if is_change else LOCK_SH)
        try:
            status = os.stat(self.path)  # noqa: PTH116 - in less time
        except OSError as error:
            raise self._gone(error.strerror) from error
        if (status.st_dev, status.st_ino) != self._identity:
            raise self._gone()
        if status.st_size < len(self._view):
            raise self._damaged()
        if self._sequence[0] != self.version:
            self._read()

    def buffer(self, key: str) -> memoryview:
        """Return the bytes of a part."""
        part = self.contents.parts[key]
        return self._view[part.offset : part.offset + part.size]

    def save(self, contents: Contents) -> None:
        """Replace the contents. The module's docstring has the order."""
        file = self._file
        assert file is not None  # noqa: S101 - it is locked
        kept = self.contents.parts if contents.epoch == self.contents.epoch else {}
        # The regions of expired parts stay taken, because this change may be cut short.
        taken = [(0, GRID), self._directory(self.version)[:2]]
        taken += [(part.offset, part.size) for part in self.contents.parts.values()]
        for key, part in contents.parts.items():
            if key in kept:
                contents.parts[key] = part._replace(offset=kept[key].offset)
            else:
                place = _take(taken, part.size)
                contents.parts[key] = part._replace(offset=place)
                file.write(place, bytes(part.size))
        text = contents.to_text().encode()
        place, sequence = _take(taken, len(text)), self.version + 1
        file.write(place, text)
        slot = _SLOT.pack(place, len(text), zlib.crc32(text))
        file.write(_SLOTS_AT + sequence % 2 * _SLOT.size, slot)
        os.fsync(file.fd)
        file.write(_SEQUENCE_AT, _SEQUENCE.pack(sequence))
        os.fsync(file.fd)
        self._map()
        self.contents, self.version = contents, sequence

    def close(self) -> None:
        """Release the file. Its mapping ends with the last view of a part.

        Raise TBloomError if the file of a writer is no longer there: what it added is lost.
        """
        try:
            if self._file and not self._readonly:
                self.lock()
        finally:
            self._release()

    @property
    def is_ours(self) -> bool:
        """See ``Store.is_ours``."""
        return self._file is not None and self._file.is_ours

    def _close_file(self) -> None:
        if self._file:
            self._file.close()
        self._file, self.unlock = None, bool

    def _release(self) -> None:
        self._close_file()
        self._is_closed = True
        self._view = memoryview(b"")
        self.contents = Contents()

    def _make_file(self) -> None:
        """Make the file, with its head, unless another process does."""
        with self._refusing():
            target = Path(self.path).resolve()  # of a link
            new = target.with_name(f".tbloom.{secrets.token_hex(4)}")
            file = OwnFile(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), new)
        try:
            file.write(0, MAGIC.ljust(GRID, b"\0"))
            try:
                target.hardlink_to(new)
            except FileExistsError:
                pass
            except OSError:  # a file system without links: of two processes at once, one is told that its file was replaced
                new.rename(target)
        finally:
            file.close()
            new.unlink(missing_ok=True)

    def _open_to_lock(self) -> OwnFile:
        self._file = file = OwnFile(self._open(), self.path)
        self.unlock = partial(flock, file.fd, LOCK_UN)
        return file

    def _open(self) -> int:
        """Open the file. Raise ConfigError if that can't be done, TBloomError if it is not the same file as before."""
        with self._refusing():
            fd = os.open(self.path, os.O_NONBLOCK | (os.O_RDONLY if self._readonly else os.O_RDWR))
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise ConfigError("path", self.path, "a regular file")
        identity = status.st_dev, status.st_ino
        self._identity = self._identity or identity
        if identity != self._identity:
            os.close(fd)
            raise self._gone()
        return fd

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn the error of a file that can't be opened into ours."""
        try:
            yield
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            if self._identity is not None:
                raise self._gone(why) from error
            how = "read" if self._readonly else "read and write"
            expected = f"a file that this user may {how} ({why})"
            raise ConfigError("path", self.path, expected) from error

    def _gone(self, why: object = "another file is there") -> TBloomError:
        return TBloomError(
            f"{self.path!r} was deleted or replaced while it was in use ({why}); what was added since is lost: open the filter again "
            "(to empty a filter, use clear())"
        )

    def _damaged(self) -> TBloomError:
        return TBloomError(
            f"the file {self.path!r} is damaged: another program changed it or cut it; put back a copy, or "
            "delete the file (the filter then forgets everything)"
        )

    def _check_head(self, fd: int) -> None:
        """Raise ConfigError if the file is another program's, or empty; ConfigMismatch if it has another format."""
        size, head = os.fstat(fd).st_size, os.pread(fd, len(MAGIC), 0)
        number = re.match(rb"tbloom local (\d+)", head)
        if number and int(number[1]) != FORMAT:
            raise ConfigMismatch(self.path, {"layout": (int(number[1]), FORMAT)})
        if size < GRID or head != MAGIC:
            remedy = "choose another path, or delete the file"
            if not size:
                remedy = "this one is empty: put back a copy, or delete it to make a new filter"
            expected = f"a file of tbloom's LocalBloom, of this machine's byte order ({remedy})"
            raise ConfigError("path", self.path, expected)

    def _map(self) -> None:
        """Map the whole file as it is now. Views of an earlier mapping stay valid: both show the file."""
        fd, access = self._open(), mmap.ACCESS_READ if self._readonly else mmap.ACCESS_WRITE
        try:
            self._view = memoryview(mmap.mmap(fd, 0, access=access))
            self._sequence = self._view[_SEQUENCE_AT : _SEQUENCE_AT + _SEQUENCE.size].cast("Q")
        finally:
            os.close(fd)

    def _read(self) -> None:
        """Read the directory."""
        self._map()
        sequence = self._sequence[0]
        begin, length, checksum = self._directory(sequence)
        text, contents = bytes(self._view[begin : begin + length]), Contents()
        if sequence:
            if zlib.crc32(text) == checksum:
                contents = Contents.from_text(text.decode())
            ends = [part.offset + part.size for part in contents.parts.values()]
            if zlib.crc32(text) != checksum or max(ends, default=0) > len(self._view):
                raise self._damaged()
        self.contents: Contents = contents
        self.version: int = sequence

    def _directory(self, sequence: int) -> tuple[int, int, int]:
        """Return the offset, the length and the checksum of the directory with this sequence number."""
        begin, length, checksum = _SLOT.unpack_from(
            self._view, _SLOTS_AT + sequence % 2 * _SLOT.size
        )
        return begin, length, checksum


def _take(taken: list[tuple[int, int]], length: int) -> int:
    """Take the first free region of this length, and return its offset. ``taken`` has the offsets and lengths of the others."""
    begin = 0
    for other, size in sorted(taken):
        if other - begin >= length:
            break
        begin = max(begin, -(-(other + size) // GRID) * GRID)
    taken.append((begin, length))
    return begin
