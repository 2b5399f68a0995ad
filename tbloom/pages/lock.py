"""One writer at a time: the file ``lock`` of a store.

The writer holds it (``flock``), and while it does the file says who it is, and in which run of the machine (its boot ID). Whoever
finds that there knows how the last writer ended: nothing, it closed the store, and all is on the disk; this
run of the machine, it was killed, and what it wrote is there; another run, the machine went down, and the index, whose
writes nobody waited for, can't be trusted.
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
#: More than it says takes.
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
            # Who makes a suspect index anew has not said yet who it is.
            pid = None if is_suspect(root) else _writer(root).get("pid")
            raise StoreLocked(str(root), pid) from None
        self._root = root
        #: Whether the last writer has closed the store; and whether the machine has gone down before it did.
        self.was_closed = not _writer(root)
        self.is_suspect = is_suspect(root)

    def mark(self) -> None:
        """Says who writes, before anything changes."""
        text = json.dumps({"pid": self.pid, "boot": _boot()}).encode()
        # At once, so that it never says less than it did.
        os.pwrite(self._fd, text.ljust(_LENGTH), 0)
        # Or what follows might be on the disk after a power cut, and this not.
        os.fsync(self._fd)
        flush(self._root)

    def release(self, *, is_clean: bool) -> None:
        """Lets the next writer; ``is_clean``: all that was written is on the disk."""
        if self.pid == os.getpid():  # a forked child has its parent's
            if is_clean:
                os.pwrite(self._fd, b" " * _LENGTH, 0)  # the next one need not find room for it
            # Another thread's child may have the file still open.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def is_suspect(root: Path) -> bool:
    """Whether the machine has gone down while the store was written."""
    writer = _writer(root)
    return bool(writer) and (writer.get("boot") is None or writer["boot"] != _boot())


def is_held(root: Path) -> bool:
    """Whether a writer lives, where the machine's runs can't be told apart."""
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
    """Who writes, or was the last to; nothing if it has closed the store."""
    try:
        text = (root / _NAME).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
    except ValueError:  # cut with the machine
        return {"boot": None} if text.strip() else {}
    return found if isinstance(found, dict) else {"boot": None}


def _boot() -> str | None:
    """What tells this run of the machine from others; None where the system does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None
