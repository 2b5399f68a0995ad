"""One writer at a time: the file ``lock`` of a store.

The writer holds the lock (``flock``). Meanwhile the file has its process ID, and the boot ID of the machine. The next
writer learns from it how the last one ended. An empty file: it closed the store, and all is on the disk. This
boot: it was killed, and what it wrote is there. Another boot: the machine went down, and the index can't be trusted,
because its writes were not waited for.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tbloom.errors import ConfigError, StoreLocked
from tbloom.pages.segments import flush

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NAME = "lock"
#: Bytes of the file: more than its text takes.
_LENGTH = 128
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class WriterLock:
    """The lock of a store, held by this object."""

    def __init__(self, root: Path) -> None:
        """Takes the lock. Raises StoreLocked."""
        if fcntl is None:
            raise ConfigError("path", str(root), "a system with file locks, which this one lacks")
        self._fd = os.open(root / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.pid = os.getpid()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            # A writer that rebuilds a suspect index has not written its process ID yet.
            pid = None if is_suspect(root) else _writer(root).get("pid")
            raise StoreLocked(str(root), pid) from None
        self._root = root
        #: True: the last writer has closed the store.
        self.was_closed = not _writer(root)
        #: True: the machine went down before it did.
        self.is_suspect = is_suspect(root)

    def mark(self) -> None:
        """Writes this process' ID, before anything changes."""
        text = json.dumps({"pid": self.pid, "boot": _boot()}).encode()
        # In one write, so that the file is never empty.
        os.pwrite(self._fd, text.ljust(_LENGTH), 0)
        # Else what follows might be on the disk after a power cut, and this not.
        os.fsync(self._fd)
        flush(self._root)

    def release(self, *, is_clean: bool) -> None:
        """Releases the lock; ``is_clean``: all that was written is on the disk."""
        if self.pid == os.getpid():  # in a forked child the lock is the parent's
            if is_clean:
                os.pwrite(
                    self._fd, b" " * _LENGTH, 0
                )  # blanks keep the room that the next ID needs
            # A child that another thread has forked may still have the file open.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def is_suspect(root: Path) -> bool:
    """True: the machine went down while the store was open for writing."""
    writer = _writer(root)
    return bool(writer) and (writer.get("boot") is None or writer["boot"] != _boot())


def is_held(root: Path) -> bool:
    """True: a writer lives, on a system that has no boot ID."""
    if _boot() is not None:
        return False
    fd = os.open(root / _NAME, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _writer(root: Path) -> dict[str, object]:
    """The text of the file; empty where the last writer has closed the store."""
    try:
        text = (root / _NAME).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
    except ValueError:  # torn as the machine went down
        return {"boot": None} if text.strip() else {}
    return found if isinstance(found, dict) else {"boot": None}


def _boot() -> str | None:
    """The boot ID of the machine; None where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None
