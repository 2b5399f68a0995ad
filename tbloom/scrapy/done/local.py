"""``TBLOOM_STORE = "local"`` with ``TBLOOM_MARK = "done"``: claims without a server, for one process at a time.

::

    seen.tbloom          the filter (tbloom.local)
    seen.tbloom.claims   a database of SQLite, which the process that claims has locked: the claims that have a note

A claim lasts until it is committed or released, or the process ends. The next process takes over those with a note, within a window.

**Crash order.** A claim is in the database before it is answered. A commit adds the item to the filter, and then deletes its
claim: what the filter has seen is not taken over. SQLite appends each change to its log (``seen.tbloom.claims-wal``) and does not wait
for the disk, so a change survives a killed process. The kernel writes it to the disk within half a minute or so: a crash of the
machine may lose that. SQLite waits for the disk once the log has 4 MB, so that such a crash damages nothing.

A forked child of the process has neither claims nor the lock.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tbloom import Claim, LocalBloom, Note
from tbloom.bloom.claims.calls import SUSPECT
from tbloom.bloom.claims.notes import History, Taken
from tbloom.engine.forks import call_in_child
from tbloom.errors import TBloomError

try:
    import sqlite3
except ImportError:  # some builds of Python lack it, and no other store of a crawl needs it
    sqlite3 = None  # type: ignore[assignment]

#: Claims outlive a shorter window for so long (ms), as on Redis.
_LEAST_MS = 3_600_000
#: How long to wait for the lock (seconds): two processes that start in the same moment may each find it taken.
_TIMEOUT = 0.1
#: ``owner`` is 0: this process; 1: nobody, a process has left it; 2: nobody, its process has died, which adds 1 to ``deaths``.
_SCHEMA = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS claims (
    item BLOB PRIMARY KEY,
    expires INTEGER NOT NULL, -- ms: if nobody has it, when the slice in which it was left leaves the window, or later
    within INTEGER NOT NULL,  -- the number of newest slices in which the item was looked for; 0: all
    queue TEXT NOT NULL,
    deaths INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    note TEXT NOT NULL,
    owner INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS left ON claims (queue, deaths + (owner = 2)) WHERE owner > 0;
"""


class ClaimsLocked(TBloomError):
    """Another process holds the lock on the claims."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path} is in use by another process, and with TBLOOM_MARK = 'done' only one process may use it at a time: wait "
            "for the end of that crawl, or stop it, or give this one another TBLOOM_PATH, or all TBLOOM_MARK = 'scheduled' (or a "
            "TBLOOM_STORE on Redis, which crawlers share)"
        )


class CrawlLocal(LocalBloom):
    """A crawl's ``LocalBloom``, with claims. Call ``open_claims`` before any other method that handles claims.

    Its methods are those of ``CrawlBloom``, and raise TBloomError where a file can't be written.
    """

    #: There are no other sessions.
    taken_over: int = 0
    is_silent: bool = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.session: str = secrets.token_hex(8)
        #: The items that this process has claimed, each with the number of newest slices in which it was looked for; 0: all.
        self._claimed: dict[bytes, int] = {}
        #: The queue whose requests this process takes; None: none so far.
        self._queue: str | None = None
        self._database: sqlite3.Connection | None = None
        call_in_child(self._drop_database)

    @property
    def keeps_notes(self) -> bool:
        """Whether a later crawl can take requests over."""
        return self.path is not None

    def open_claims(self) -> None:
        """Lock out other processes, and forget claims of earlier ones that have expired, or that the filter has seen.

        Raise ClaimsLocked; OSError; and what any call raises, such as ConfigMismatch.
        """
        if sqlite3 is None:
            raise TBloomError("a crawl without a server needs sqlite3, which this Python lacks")
        self.contains(b"any item")  # raises an error before the file is locked
        try:
            with self._naming_file():
                self._database = _open(self.path)
            with self._changing() as database:
                now = self._protocol.clock()
                database.execute("DELETE FROM claims WHERE owner > 0 AND expires <= ?", (now,))
                self._leave(database, 2)
                claims = database.execute("SELECT within, item FROM claims").fetchall()
                self._end(database, self._seen(claims))
                # Commits, and makes the file shorter. By execute() it would free one page.
                database.executescript("PRAGMA incremental_vacuum")
        except BaseException:
            self.close()
            raise

    def claim_many(
        self,
        items: Iterable[bytes],
        within: int | None = None,
        notes: Iterable[str | Note] | None = None,
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``. An item of which a process may have died stays left to ``take``, which tells of the deaths."""
        items = [*items]
        given = [""] * len(items) if notes is None else [*notes]
        claimed, answers = dict[bytes, Note](), list[Claim]()
        for item, note, is_seen in zip(
            items, given, self.contains_many(items, within), strict=True
        ):
            is_claimed = item in claimed or item in self._claimed
            is_busy = not is_seen and (is_claimed or self._may_kill(item))
            answer = Claim.SEEN if is_seen else Claim.BUSY if is_busy else Claim.NEW
            answers.append(answer)
            if answer is Claim.NEW:
                claimed[item] = note if isinstance(note, Note) else Note(note)
        self._claim(claimed, within)
        return answers

    def note_history(self, histories: Mapping[bytes, History]) -> None:
        """See ``TimeBloom.note_history``."""
        rows = [(*each, item) for item, each in histories.items() if item in self._claimed]
        with self._changing() as database:
            database.executemany(
                "UPDATE claims SET queue = ?, deaths = ?, failures = ? WHERE item = ?", rows
            )

    def commit_many(self, items: Iterable[bytes], keep: int | None = None) -> list[bool]:
        """See ``TimeBloom.commit_many``."""
        items = [*items]
        with self._changing() as database:
            if keep is None:  # also what an older slice holds
                self.add_many(items, within=1)
            else:
                self.add_many(items, keep=keep)
                # What an older slice holds can't be added to it: it is kept for longer.
                self.add_many([item for item in items if self._claimed.get(item)], within=1)
            self._end(database, items)
        return [True] * len(items)

    def release_many(self, items: Iterable[bytes]) -> None:
        """See ``TimeBloom.release_many``."""
        with self._changing() as database:
            self._end(database, [item for item in items if item in self._claimed])

    def take(self, limit: int, queue: str, *, idle: bool, main: bool = True) -> Taken:
        """Claim requests of the queue that earlier processes have left; return their notes."""
        if main:
            self._queue = queue
        with self._changing() as database:
            rows = database.execute(
                "SELECT item, within, note, deaths + (owner = 2), failures FROM claims WHERE owner > 0 AND queue = ?"
                " ORDER BY deaths + (owner = 2), rowid LIMIT ?",
                (queue, limit),
            ).fetchall()
            # It may kill this process, too, and is taken alone.
            suspects = rows[:1] if idle else []
            rows = [row for row in rows if row[3] < SUSPECT] or suspects
            # Whoever ends without work on a suspect leaves a suspect.
            database.executemany(
                "UPDATE claims SET deaths = iif(?1 < ?2, deaths, ?1), owner = 0 WHERE item = ?3",
                [(row[3], SUSPECT, row[0]) for row in rows],
            )
        self._claimed.update(row[:2] for row in rows)
        notes = [
            Note(text, queue, deaths=deaths, failures=failures)
            for _, _, text, deaths, failures in rows
        ]
        return Taken(notes, 1)

    def known(self, item: bytes) -> Claim | None:
        """Return the answer for the item; None: it is new."""
        if item in self._claimed:
            return Claim.BUSY
        return Claim.SEEN if self.contains(item) else None

    def owns(self, item: bytes) -> bool:  # noqa: ARG002 - as CrawlBloom's
        """Return True: what this process has claimed, no other one has."""
        return True

    def live(self) -> None:
        """Do nothing: there are no other sessions."""

    def clear(self) -> None:
        """Forget everything; see ``LocalBloom.clear``."""
        with self._changing() as database:
            super().clear()
            database.execute("DELETE FROM claims")
        self._claimed = {}

    def close(self) -> None:
        """See ``LocalBloom.close``. The next process takes over the claims."""
        if self._database is not None:
            with suppress(TBloomError), self._changing() as database:
                self._leave(database, 1)
            self._database.close()
        self._database = None
        super().close()

    def _claim(self, notes: Mapping[bytes, Note], within: int | None) -> None:
        """Claim the items, each with its note."""
        asked = within or 0
        rows = [
            (item, asked, note.queue, note.deaths, note.failures, note.text)
            for item, note in notes.items()
            if note.text
        ]
        with self._changing() as database:
            # A claim without a note is not in the table.
            self._end(database, [item for item, note in notes.items() if not note.text])
            database.executemany("REPLACE INTO claims VALUES (?, 0, ?, ?, ?, ?, ?, 0)", rows)
        self._claimed.update(dict.fromkeys(notes, asked))

    def _may_kill(self, item: bytes) -> bool:
        """Return whether the item is left in this process's queue, and processes may have died of it."""
        with self._changing() as database:
            query = "SELECT 1 FROM claims WHERE item = ? AND queue = ? AND (owner = 2 OR owner = 1 AND deaths > 0)"
            return database.execute(query, (item, self._queue)).fetchone() is not None

    def _leave(self, database: sqlite3.Connection, owner: int) -> None:
        """Leave the claims of a process that has ended."""
        now, window = self._protocol.clock(), self.config.window
        expires = max(window.expires(window.slice_at(now)), now + _LEAST_MS)
        database.execute(
            "UPDATE claims SET owner = ?, expires = ? WHERE owner = 0", (owner, expires)
        )

    def _end(self, database: sqlite3.Connection, items: Collection[bytes]) -> None:
        """End claims of any process."""
        database.executemany("DELETE FROM claims WHERE item = ?", [(item,) for item in items])
        for item in items:
            self._claimed.pop(item, None)

    def _seen(self, claims: list[tuple[int, bytes]]) -> set[bytes]:
        """Return the items that the filter has seen, each within as many slices as its claim has."""
        seen, slices = set[bytes](), self.config.slices
        for within in {within for within, _ in claims}:
            items = [item for its, item in claims if its == within]
            answers = self.contains_many(items, within if 1 <= within <= slices else None)
            seen.update(item for item, is_seen in zip(items, answers, strict=True) if is_seen)
        return seen

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Commit the changes of the block at its end, or roll them back if it raises. Raise TBloomError as ``_naming_file`` does."""
        if self._database is None:
            raise TBloomError("the claims are closed, or those of the process that forked this one")
        with self._naming_file(), self._database:
            yield self._database

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Raise TBloomError, which ends the crawl, for an error of a file, such as a full disk."""
        try:
            yield
        except OSError as error:
            raise TBloomError(
                f"{error.filename or self.path}: {error.strerror or error}"
            ) from error
        except sqlite3.Error as error:
            # SQLite's other errors are of subclasses.
            hint = ", or damaged: delete it (it then forgets which pages crawls have left)"
            is_damaged = type(error) is sqlite3.DatabaseError
            raise TBloomError(f"{self.path}.claims: {error}{hint * is_damaged}") from error

    def _drop_database(self) -> None:
        """Keep a forked child from closing the connection: SQLite would then remove the log, which is the parent's."""
        if self._database is not None:
            import ctypes  # noqa: PLC0415 - some builds of Python lack it

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))
        self._database = None


def _open(path: str | None) -> sqlite3.Connection:
    """Return the database beside a filter's file, and lock it. Raise ClaimsLocked, OSError or an error of SQLite."""
    file = f"{path}.claims"
    if path is not None:
        # Requests may have passwords in their headers. A file that exists is not opened: to close it would unlock it.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    database = sqlite3.connect(":memory:" if path is None else file, timeout=_TIMEOUT)
    try:
        database.executescript(_SCHEMA)
    except BaseException as error:
        database.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise ClaimsLocked(str(path)) from None
        raise
    return database
