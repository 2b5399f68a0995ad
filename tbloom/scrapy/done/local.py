"""``TBLOOM_STORE = "local"`` with ``TBLOOM_MARK = "done"``: claims without a server, for one process at a time.

::

    seen.tbloom          the filter (tbloom.local)
    seen.tbloom.claims   the claims that have a note: a line for each claim, one for each change of its history, one for its end
    seen.tbloom.lock     locked (flock) by the process that claims: its ID and host, and since when

A claim lasts until it is committed or released, or the process ends. The next process takes over those with a note.

**Crash order.** A claim is in the file before it is answered. A commit adds the item to the filter, and then the end of its
claim to the file: what the filter has seen is not taken over. Each line is one write, so that a process that is killed leaves at
most half a line, at the end. The kernel writes all to disk within half a minute or so; a crash of the machine may lose that.

The file is written anew when it is opened, and when the ends are more than the claims: it is never much longer than twice
what it holds.

A forked child of the process has neither claims nor the lock.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from tbloom import Claim, LocalBloom, Note
from tbloom.bloom.claims.calls import SUSPECT
from tbloom.bloom.claims.notes import History, Taken, read_stored, stored_note
from tbloom.engine.forks import call_in_child
from tbloom.errors import TBloomError

try:
    import fcntl
except ImportError:  # Windows, on which a filter has no path
    fcntl = None  # type: ignore[assignment]

#: The file of claims may be so much longer than twice what it holds (bytes).
_SLACK = 1 << 24
#: Claims outlive a shorter window for so long (ms), as on Redis.
_LEAST_MS = 3_600_000
_FLAGS = os.O_RDWR | os.O_APPEND


class ClaimsLocked(TBloomError):
    """Another process holds the lock on the claims. ``holder`` has its ``pid``, ``host`` and ``since``; it is empty if they are not known."""

    def __init__(self, path: str, holder: Mapping[str, Any]) -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        known = (
            "process {pid} on {host}, since {since}".format_map(self.holder)
            if self.holder
            else "a process"
        )
        return (
            f"{self.path} is in use by {known}, and with TBLOOM_MARK = 'done' only one process may use it at a time: wait for "
            "the end of that crawl, or stop it, or give this one another TBLOOM_PATH (or a TBLOOM_STORE on Redis, which "
            "crawlers share)"
        )


class _Entry(NamedTuple):
    """A claim in the file."""

    #: When the claim expires (ms): when its slice leaves the window, or later.
    expires: int
    #: The number of newest slices in which the item was looked for; 0: all.
    within: int
    note: str

    def changed(self, history: str) -> Self:
        """Return the claim with another history."""
        return self._replace(note=history[:9] + self.note[9:13] + history[9] + self.note[14:])


class CrawlLocal(LocalBloom):
    """A crawl's ``LocalBloom``, with claims. Call ``open_claims`` before any other method that handles claims.

    Its methods are those of ``CrawlBloom``, and raise TBloomError where a file can't be written.
    """

    #: There are no other sessions.
    session_ttl: float = 60.0
    taken_over: int = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.session: str = secrets.token_hex(8)
        #: The items that this process has claimed, each with the number of newest slices in which it was looked for; 0: all.
        self._claimed: dict[bytes, int] = {}
        #: The claims that earlier processes have left.
        self._left: dict[bytes, _Entry] = {}
        self._file: _ClaimsFile | None = None

    @property
    def keeps_notes(self) -> bool:
        """Whether a later crawl can take requests over."""
        return self.path is not None

    def open_claims(self) -> None:
        """Lock out other processes, and read what earlier ones have left.

        Raise ClaimsLocked; OSError; and what any call raises, such as ConfigMismatch.
        """
        if self.path is None or self._file:
            return
        try:
            self.contains(b"any item")  # raises an error before the file is locked
            self._file = _ClaimsFile(self.path)
            entries, now = self._file.read(), self._now()
            live = {item: entry for item, entry in entries.items() if now < entry.expires}
            done = self._seen(live)
            left = [(item, entry) for item, entry in live.items() if item not in done]
            # Those with the fewest deaths come first in each queue.
            self._left = dict(sorted(left, key=lambda each: each[1].note[:9]))
            self._file.rewrite(self._left)
        except BaseException:
            self.close()
            raise

    def claim_many(
        self,
        items: Iterable[bytes],
        within: int | None = None,
        notes: Iterable[str | Note] | None = None,
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``."""
        items = [*items]
        texts = [""] * len(items) if notes is None else [*map(stored_note, notes)]
        claimed, answers = dict[bytes, str](), list[Claim]()
        for item, note, is_seen in zip(
            items, texts, self.contains_many(items, within), strict=True
        ):
            is_busy = item in claimed or item in self._claimed
            answer = Claim.SEEN if is_seen else Claim.BUSY if is_busy else Claim.NEW
            answers.append(answer)
            if answer is Claim.NEW:
                claimed[item] = note
        self._claim(claimed, within)
        return answers

    def note_history(self, histories: Mapping[bytes, History]) -> None:
        """See ``TimeBloom.note_history``."""
        own = [(item, history) for item, history in histories.items() if item in self._claimed]
        self._write([f"{item.hex()} {history.stored}\n".encode() for item, history in own])

    def commit_many(self, items: Iterable[bytes], keep: int | None = None) -> list[bool]:
        """See ``TimeBloom.commit_many``."""
        items = [*items]
        with self._naming_path():
            if keep is None:  # also what an older slice holds
                self.add_many(items, within=1)
            else:
                self.add_many(items, keep=keep)
                # What an older slice holds can't be added to it: it is kept for longer.
                self.add_many([item for item in items if self._claimed.get(item)], within=1)
        self._end(item for item in items if item in self._claimed or item in self._left)
        return [True] * len(items)

    def release_many(self, items: Iterable[bytes]) -> None:
        """See ``TimeBloom.release_many``."""
        self._end(item for item in items if item in self._claimed)

    def take(self, limit: int, queue: str, *, idle: bool, main: bool = True) -> Taken:  # noqa: ARG002 - as CrawlBloom's
        """Claim requests of the queue that earlier processes have left; return their notes."""
        found = dict[bytes, Note]()
        died = self._file is not None and self._file.has_died
        for item, entry in self._left.items() if limit else ():
            note = read_stored(entry.note, queue)
            is_suspect = note is not None and note.deaths + died >= SUSPECT
            if note is None or (is_suspect and (found or not idle)):
                continue
            found[item] = note._replace(deaths=note.deaths + died)
            if is_suspect or len(found) == limit:
                break
        for item in found:
            self._claimed[item] = self._left.pop(item).within
        return Taken([*found.values()], 1)

    def known(self, item: bytes) -> Claim | None:
        """Return the answer for the item; None: it is new."""
        if item in self._claimed:
            return Claim.BUSY
        return Claim.SEEN if self.contains(item) else None

    def uncommitted(self, items: Iterable[bytes]) -> set[bytes]:  # noqa: ARG002 - as CrawlBloom's
        """Return no item: a commit that fails ends the crawl."""
        return set()

    def clear(self) -> None:
        """Forget everything; see ``LocalBloom.clear``."""
        super().clear()
        self._claimed, self._left = {}, {}
        if self._file:
            self._file.rewrite({})

    def close(self) -> None:
        """See ``LocalBloom.close``. The next process takes over the claims."""
        if self._file:
            self._file.close()
        self._file = None
        super().close()

    def _claim(self, notes: Mapping[bytes, str], within: int | None) -> None:
        """Claim the items, each with its note."""
        now, window, asked = self._now(), self.config.window, within or 0
        expires = max(window.expires(window.slice_at(now)), now + _LEAST_MS)
        entries = {item: _Entry(expires, asked, note) for item, note in notes.items() if note}
        # A claim without a note has no line, so an earlier claim's line is ended.
        others = notes.keys() - entries
        ended = [item for item in others if item in self._left or item in self._claimed]
        self._write([*map(_line, entries.items()), *map(_end_line, ended)])
        for item in notes:
            self._claimed[item] = asked
            self._left.pop(item, None)

    def _end(self, items: Iterable[bytes]) -> None:
        """End claims."""
        ended = [*dict.fromkeys(items)]
        self._write([*map(_end_line, ended)])
        for item in ended:
            self._claimed.pop(item, None)
            self._left.pop(item, None)

    def _write(self, lines: list[bytes]) -> None:
        """Append lines to the file."""
        if self._file is None or not lines:
            return
        with self._naming_path():
            self._file.append(b"".join(lines))
            if self._file.is_long:
                self._file.rewrite(self._file.read())

    def _seen(self, entries: Mapping[bytes, _Entry]) -> set[bytes]:
        """Return the items that the filter has seen, each within as many slices as its claim has."""
        seen, slices = set[bytes](), self.config.slices
        for within in {entry.within for entry in entries.values()}:
            items = [item for item, entry in entries.items() if entry.within == within]
            answers = self.contains_many(items, within if 1 <= within <= slices else None)
            seen.update(item for item, is_seen in zip(items, answers, strict=True) if is_seen)
        return seen

    def _now(self) -> int:
        return self._protocol.clock()

    @contextmanager
    def _naming_path(self) -> Iterator[None]:
        """Raise TBloomError, which ends the crawl, for an error of a file, such as a full disk."""
        try:
            yield
        except OSError as error:
            raise TBloomError(
                f"{error.filename or self.path}: {error.strerror or error}"
            ) from error


class _ClaimsFile:
    """The file of claims beside a filter's file, and its lock."""

    def __init__(self, path: str) -> None:
        """Open the file, and lock it. Raise ClaimsLocked or OSError."""
        self._path = Path(f"{path}.claims")
        self._fd = -1
        #: Whether the process that held the lock before has died.
        self._lock, self.has_died = _lock(path)
        try:
            # Requests may have passwords in their headers.
            self._fd = os.open(self._path, _FLAGS | os.O_CREAT, 0o600)
        except BaseException:
            self.close()
            raise
        self._size = os.fstat(self._fd).st_size
        #: Beyond this size (bytes), the file is written anew.
        self._limit = 2 * self._size + _SLACK
        self._pid = os.getpid()
        call_in_child(self._reset)

    @property
    def is_long(self) -> bool:
        """Whether the file has much that has ended."""
        return self._size > self._limit

    def read(self) -> dict[bytes, _Entry]:
        """Return the claims that have not ended."""
        entries: dict[bytes, _Entry] = {}
        with self._path.open("rb") as file:
            for line in file:
                with suppress(ValueError, RecursionError):  # half a line, or another program's
                    item, entry = _parse(line)
                    if entry is None:
                        entries.pop(item, None)
                    elif isinstance(entry, _Entry):
                        entries[item] = entry
                    elif before := entries.get(item):
                        entries[item] = before.changed(entry)
        return entries

    def append(self, lines: bytes) -> None:
        """Append whole lines. Where that fails, none are there."""
        self._check_owner()
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._fd, left) :]
        except BaseException:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)

    def rewrite(self, entries: Mapping[bytes, _Entry]) -> None:
        """Write the file anew, with these claims."""
        self._check_owner()
        new = self._path.with_name(f"{self._path.name}.new")
        with new.open("wb") as file:
            new.chmod(stat.S_IMODE(os.fstat(self._fd).st_mode))
            file.writelines(map(_line, entries.items()))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        os.close(self._fd)
        self._fd = os.open(self._path, _FLAGS)
        self._size = os.fstat(self._fd).st_size
        self._limit = 2 * self._size + _SLACK

    def close(self) -> None:
        """Close the file, and unlock it."""
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            # A child that another library has forked may still have the file open.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._close()

    def _reset(self) -> None:
        """Close the files in a forked child: the lock is the parent's, and would outlive it."""
        self._close()

    def _close(self) -> None:
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _check_owner(self) -> None:
        if self._fd < 0:
            raise TBloomError(
                f"{self._path} is closed here: its claims are those of process {self._pid}"
            )


def _lock(path: str) -> tuple[int, bool]:
    """Return the open lock file of a filter's file, and whether its last holder has died: it has not emptied it. Raise ClaimsLocked."""
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        has_died = bool(os.pread(fd, 1, 0))
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(holder).encode(), 0)
    except BlockingIOError:
        holder = {}
        with suppress(ValueError, TypeError):  # it has only just locked it
            holder = dict(json.loads(os.pread(fd, 4096, 0)))
            holder = {name: holder.get(name, "?") for name in ("pid", "host", "since")}
        os.close(fd)
        raise ClaimsLocked(path, holder) from None
    except BaseException:
        os.close(fd)
        raise
    return fd, has_died


def _line(claim: tuple[bytes, _Entry]) -> bytes:
    item, entry = claim
    return f"{item.hex()} {entry.expires} {entry.within} {json.dumps(entry.note)}\n".encode()


def _end_line(item: bytes) -> bytes:
    return f"{item.hex()}\n".encode()


def _parse(line: bytes) -> tuple[bytes, _Entry | str | None]:
    """Return the claim of a line, or its new history; None: its end. Raise ValueError for half a line."""
    item, *rest = line.decode().removesuffix("\n").split(" ", 3)
    if not line.endswith(b"\n") or len(rest) not in (0, 1, 3):
        raise ValueError(line)
    if not rest:
        return bytes.fromhex(item), None
    if len(rest) == 1:
        return bytes.fromhex(item), rest[0]
    expires, within, note = rest
    text: object = json.loads(note)
    return bytes.fromhex(item), _Entry(int(expires), int(within), str(text))
