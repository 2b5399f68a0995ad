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

import errno
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tbloom.claims.calls import Claim
from tbloom.claims.fleet import (
    KEPT,
    MOST_GIVEN_UP,
    KeptPage,
    KeptPages,
    NewNote,
    Pages,
    View,
    failed_queue_of,
    given_up_queue_of,
    kept_page,
    queue_in,
    queues_by_state,
)
from tbloom.claims.notes import History, Note, Taken, with_failure
from tbloom.claims.packed import FAILURE
from tbloom.claims.stored import LEFT, SUSPECT
from tbloom.engine.forks import call_in_child
from tbloom.engine.owned import leave_open
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.local.sync import LocalBloom

try:
    import sqlite3
except ImportError:  # some builds of Python lack it, and no other store of a crawl needs it
    sqlite3 = None  # type: ignore[assignment]

#: Claims outlive a shorter window for so long (ms), as on Redis.
_LEAST_MS = 3_600_000
#: How long to wait for the lock (seconds): two processes that start in the same moment may each find it taken.
_TIMEOUT = 0.1
#: The number of the format is SQLite's ``user_version``.
_FORMAT = 1
#: ``owner`` is 0: this process; -1: this process, which holds it although the work has failed; 1: nobody, a process has left it;
#: 2: nobody, its process has died, which adds 1 to ``deaths``.
_SCHEMA = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA user_version = 1;
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
-- What nobody has; deaths: with that of the process that had it.
CREATE TEMP VIEW kept AS
    SELECT rowid, item, within, queue, note, deaths + (owner = 2) AS deaths, failures FROM claims WHERE owner > 0;
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


class DiskFull(TBloomError):
    """Nothing can be written before there is room on the disk."""


class LocalClaims(LocalBloom):
    """A crawl's ``LocalBloom``, with claims. Call ``open_claims`` before any other method that handles claims.

    Its methods are those of ``CrawlBloom``, and raise TBloomError where a file can't be written.
    """

    #: There are no other sessions.
    is_silent: bool = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.session: str = secrets.token_hex(8)
        #: The items that this process has claimed, each with the number of newest slices in which it was looked for; 0: all.
        self._claimed: dict[bytes, int] = {}
        #: The queue whose requests this process takes; None: none so far.
        self._queue: str | None = None
        self._database: sqlite3.Connection | None = None
        #: The files of the database, by which they are known again.
        self._files: dict[str, os.stat_result] = {}
        call_in_child(self._drop_database)

    def fleet(self, queue: str) -> LocalFleet:
        """Return what is kept in a queue, as ``TimeBloom.fleet`` does."""
        return LocalFleet(self, queue)

    @property
    def keeps_notes(self) -> bool:
        """Whether a later crawl can take requests over."""
        return self.path is not None

    def open_claims(self, look_of: Callable[[bytes, str], bytes] = lambda item, _: item) -> None:
        """Lock out other processes, and forget claims of earlier ones that have expired, or that the filter has seen.

        ``look_of`` returns what was searched for when an item was claimed, from the item and the first line of its note.

        Raise ClaimsLocked; OSError; and what any call raises, such as ConfigMismatch.
        """
        if sqlite3 is None:
            raise TBloomError("a crawl without a server needs sqlite3, which this Python lacks")
        self.contains(b"any item")  # raises an error before the file is locked
        try:
            with self._naming_file():
                self._database = _open(self.path)
                if self.path is not None:
                    names = f"{self.path}.claims", f"{self.path}.claims-wal"
                    self._files = {name: Path(name).stat() for name in names}
            with self.changing() as database:
                now = self._clock()
                database.execute("DELETE FROM claims WHERE owner > 0 AND expires <= ?", (now,))
                self._leave(database, 2)
                query = (
                    "SELECT item, within, substr(note, 1, instr(note, char(10)) - 1) FROM claims"
                )
                seen = [
                    item
                    for item, within, head in database.execute(query)
                    if self.contains(look_of(item, head), min(within, self.config.slices) or None)
                ]
                self._end(database, seen)
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
        looks: Iterable[bytes] | None = None,
    ) -> list[Claim]:
        """See ``CrawlBloom.claim_many``. An item that has failed, or may have killed a process, stays left to ``take``, which says so."""
        items = [*items]
        given = [""] * len(items) if notes is None else [*notes]
        claimed, answers = dict[bytes, Note](), list[Claim]()
        for item, note, is_seen in zip(
            items, given, self.contains_many(looks or items, within), strict=True
        ):
            is_claimed = item in claimed or item in self._claimed
            is_busy = not is_seen and (is_claimed or self._stays_left(item, note))
            answer = Claim.SEEN if is_seen else Claim.BUSY if is_busy else Claim.NEW
            answers.append(answer)
            if answer is Claim.NEW:
                claimed[item] = note if isinstance(note, Note) else Note(note)
        self._claim(claimed, within)
        return answers

    def note_history(self, histories: Mapping[bytes, History]) -> None:
        """See ``TimeBloom.note_history``."""
        with self.changing() as database:
            for item, history in histories.items():
                query = "SELECT note FROM claims WHERE item = ?"
                row = item in self._claimed and database.execute(query, (item,)).fetchone()
                if not row:
                    continue
                failed_at = history.failed_at or int(self.now())
                failure = history._replace(failed_at=failed_at).failure
                text = with_failure(row[0], failure) if failure else row[0]
                database.execute(
                    "UPDATE claims SET owner = ?, queue = ?, deaths = ?, failures = ?, note = ? WHERE item = ?",
                    (-bool(history.reason), *history[:3], text, item),
                )

    def commit_many(self, items: Iterable[bytes], keep: int | None = None) -> list[bool]:
        """See ``TimeBloom.commit_many``."""
        items = [*items]
        with self.changing() as database:
            if keep is None:  # also what an older slice holds
                self.add_many(items, within=1)
            else:
                self.add_many(items, keep=keep)
                # What an older slice holds can't be added to it: it is kept for longer. So is its page in a version, which begins with it.
                lists = (*(item for item in items if self._claimed.get(item)),)
                self.add_many([item for item in items if item.startswith(lists)], within=1)
            self._end(database, items)
        return [True] * len(items)

    def release_many(self, items: Iterable[bytes]) -> None:
        """See ``TimeBloom.release_many``."""
        with self.changing() as database:
            self._end(database, [item for item in items if item in self._claimed])

    def leave_many(self, items: Iterable[bytes]) -> None:
        """See ``TimeBloom.leave_many``."""
        items = [item for item in items if item in self._claimed]
        with self.changing() as database:
            rows = [(self.expiry(), item) for item in items]
            database.executemany("UPDATE claims SET owner = 1, expires = ? WHERE item = ?", rows)
        for item in items:
            self._claimed.pop(item)

    def leave_failed(self, queue: str) -> None:
        """See ``CrawlBloom.leave_failed``."""
        with self.changing() as database:
            query = "UPDATE claims SET queue = ? WHERE queue = ? AND owner > 0"
            database.execute(query, (queue, failed_queue_of(queue)))

    def trim_given_up(self, queue: str) -> None:
        """Keep the newest of the queue's pages that are given up: those that were claimed last."""
        with self.changing() as database:
            database.execute(
                "DELETE FROM claims WHERE rowid IN "
                "(SELECT rowid FROM kept WHERE queue = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
                (given_up_queue_of(queue), MOST_GIVEN_UP),
            )

    def queues(self) -> list[str]:
        """Return the queues of all claims, whatever their states are."""
        with self.changing() as database:
            found = database.execute("SELECT DISTINCT queue FROM claims")
            return sorted({queue_in(name) for (name,) in found})

    def take(self, limit: int, queue: str, *, idle: bool) -> Taken:
        """Claim requests of the queue that earlier processes have left; return their notes."""
        self._queue = queue
        with self.changing() as database:
            query = (
                "SELECT item, within, note, deaths, failures FROM kept WHERE queue = ? "
                "ORDER BY deaths, rowid LIMIT ?"
            )
            rows = database.execute(query, (queue, limit)).fetchall()
            # It may kill this process, too, and is taken alone.
            suspects = rows[:1] if idle else []
            rows = [row for row in rows if row[3] < SUSPECT] or suspects
            # Whoever ends without work on a suspect leaves a suspect.
            database.executemany(
                "UPDATE claims SET deaths = max(deaths, ?), owner = 0 WHERE item = ?",
                [(row[3] if row[3] >= SUSPECT else 0, row[0]) for row in rows],
            )
        self._claimed.update(row[:2] for row in rows)
        notes = [
            Note(text, queue, deaths=deaths, failures=failures)
            for _, _, text, deaths, failures in rows
        ]
        return Taken(notes, 1)

    def known(self, item: bytes, look: bytes = b"") -> Claim | None:
        """Return the answer for the item; None: it is new. ``look``: what is searched for."""
        is_seen = self.contains(look or item)
        # A page waits in another version than one that was seen.
        if item in self._claimed and not (is_seen and look not in (b"", item)):
            return Claim.BUSY
        return Claim.SEEN if is_seen else None

    def now(self) -> float:
        """Return the time of this machine (s since the epoch)."""
        return self._clock() / 1000

    @property
    def claimed(self) -> int:
        """The number of items that this process has claimed, and neither committed nor released."""
        return len(self._claimed)

    def owns(self, item: bytes) -> bool:  # noqa: ARG002 - as CrawlBloom's
        """Return True: what this process has claimed, no other one has."""
        return True

    def live(self) -> None:
        """Do nothing: there are no other sessions."""

    def clear(self) -> None:
        """Forget everything; see ``LocalBloom.clear``."""
        with self.changing() as database:
            super().clear()
            database.execute("DELETE FROM claims")
        self._claimed = {}

    def close(self) -> None:
        """See ``LocalBloom.close``. The next process takes over the claims."""
        try:
            if self._database is not None:
                self._check_files()
                with suppress(TBloomError), self.changing() as database:
                    self._leave(database, 1)
        finally:
            if self._database is not None and self._store.is_ours:
                self._database.close()
                self._database = None
            self._drop_database()
            super().close()

    def _claim(self, notes: Mapping[bytes, Note], within: int | None) -> None:
        """Claim the items, each with its note."""
        asked = within or 0
        rows = [
            (item, asked, note.queue, note.deaths, note.failures, note.text)
            for item, note in notes.items()
            if note.text
        ]
        with self.changing() as database:
            # A claim without a note is not in the table.
            self._end(database, [item for item, note in notes.items() if not note.text])
            database.executemany("REPLACE INTO claims VALUES (?, 0, ?, ?, ?, ?, ?, 0)", rows)
        self._claimed.update(dict.fromkeys(notes, asked))

    def _stays_left(self, item: bytes, note: str | Note) -> bool:
        """Return whether the item is left in this process's queue, and processes may have died of it, or failed.

        If they have failed, it gets the note, as in ``lua/claims/claim.lua``.
        """
        text = note.text if isinstance(note, Note) else note
        with self.changing() as database:
            query = "SELECT failures, note FROM kept WHERE item = ? AND queue = ? AND deaths + failures > 0"
            row = database.execute(query, (item, self._queue)).fetchone()
            failures, old = row or (0, "")
            (line, *_), (new_line, *rest) = old.partition("\n"), text.partition("\n")
            if failures and text and (" v" in new_line or " v" not in line):
                own = "".join((line, *rest))
                database.execute("UPDATE claims SET note = ? WHERE item = ?", (own, item))
        return row is not None

    def _leave(self, database: sqlite3.Connection, owner: int) -> None:
        """Leave the claims of a process that has ended. It was not at work on those that had failed."""
        database.execute(
            "UPDATE claims SET owner = CASE owner WHEN 0 THEN ? ELSE 1 END, expires = ? WHERE owner <= 0",
            (owner, self.expiry()),
        )

    def expiry(self) -> int:
        """Return when claims expire that are left now (ms)."""
        now, window = self._clock(), self.config.window
        return max(window.expires(window.slice_at(now)), now + _LEAST_MS)

    def _end(self, database: sqlite3.Connection, items: Collection[bytes]) -> None:
        """End claims of any process."""
        database.executemany("DELETE FROM claims WHERE item = ?", [(item,) for item in items])
        for item in items:
            self._claimed.pop(item, None)

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Commit the changes of the block at its end, or roll them back if it raises. Raise TBloomError as ``_naming_file`` does."""
        if self._database is None:
            raise TBloomError("the claims are closed, or those of the process that forked this one")
        self._check_files()
        with self._naming_file(), self._database:
            yield self._database

    def _check_files(self) -> None:
        """Raise TBloomError if a file of the database is no longer there: SQLite would go on, in a file without a name.

        The filter's file stands for those of the database, which are SQLite's: what closes one of them closes all.
        """
        if not self._store.is_ours:
            self.contains(b"any item")  # raises the error
        for name, opened in self._files.items():
            try:
                is_there = os.path.samestat(Path(name).stat(), opened)
            except OSError:
                is_there = False
            if not is_there:
                raise TBloomError(
                    f"{name} was deleted or replaced while it was in use; the next crawl knows nothing of the pages that this one "
                    "has left, but for their links"
                )

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Raise TBloomError, which ends the crawl, for an error of a file; DiskFull, for which it waits."""
        try:
            yield
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else TBloomError
            raise kind(f"{error.filename or self.path}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            # SQLite's other errors are of subclasses.
            hint = ", or damaged: delete it (it then forgets which pages crawls have left)"
            is_damaged = type(error) is sqlite3.DatabaseError
            kind = DiskFull if is_full else TBloomError
            raise kind(f"{self.path}.claims: {error}{hint * is_damaged}") from error

    def _drop_database(self) -> None:
        """Do not close the connection: in a forked child its log is the parent's."""
        if self._database is not None:
            leave_open(self._database)
        self._database = None


class LocalFleet(KeptPages):
    """The kept pages of one queue of a filter without a server, as ``Fleet`` has them. While it is open, no crawl runs."""

    def __init__(self, store: LocalClaims, queue: str) -> None:
        super().__init__(queue)
        self._store = store
        self._queues = queues_by_state(queue)

    def now(self) -> float:
        """Return the time by which its pages have failed (s since the epoch): this machine's."""
        return self._store.now()

    def look(self) -> View:
        """Return the numbers of its pages. It has no crawlers."""
        query = "SELECT count(*), coalesce(sum(deaths >= ?), 0) FROM kept WHERE queue = ?"
        with self._store.changing() as database:
            counts = [
                database.execute(query, (SUSPECT, self._queues[state])).fetchone() for state in KEPT
            ]
        (left, suspects), (failed, _), (given_up, _) = counts
        pages = Pages(left=left, suspects=suspects, failed=failed, given_up=given_up)
        return View(self.queue, [], pages)

    def _in_state(self, state: str) -> Iterator[KeptPage]:
        queue = self._queues[state]
        with self._store.changing() as database:
            query = "SELECT item FROM kept WHERE queue = ? ORDER BY rowid"
            items = database.execute(query, (queue,)).fetchall()
        for (item,) in items:
            with self._store.changing() as database:
                query = "SELECT note, deaths, failures FROM kept WHERE item = ? AND queue = ?"
                row = database.execute(query, (item, queue)).fetchone()
            if row:  # nobody has moved it meanwhile
                text, deaths, failures = row
                place = Note("", queue, deaths=deaths, failures=failures).place
                yield kept_page(state, 0, item, f"{LEFT}{0:08x}{place}{text}".encode())

    def _move_some(self, pages: list[KeptPage], queue: str | None, new_note: NewNote) -> int:
        moved = 0
        forget = "DELETE FROM claims WHERE item = ? AND queue = ? AND owner > 0"
        move = (
            "UPDATE claims SET queue = ?, note = ?, expires = ?, owner = 1, deaths = 0, failures = 0 "
            "WHERE item = ? AND queue = ? AND owner > 0"
        )
        with self._store.changing() as database:
            for page in pages:
                which = page.digest, self._queues[page.state]
                if queue is not None:
                    text = new_note(page) or FAILURE.sub("}", page.note)
                    own = queue, text, self._store.expiry()
                    moved += database.execute(move, (*own, *which)).rowcount
                else:
                    moved += database.execute(forget, which).rowcount
        return moved


def _open(path: str | None) -> sqlite3.Connection:
    """Return the database beside a filter's file, and lock it.

    Raise ClaimsLocked; ConfigMismatch if its format is another one; OSError or an error of SQLite.
    """
    file = f"{path}.claims"
    if path is not None:
        # Requests may have passwords in their headers. A file that exists is not opened: to close it would unlock it.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    database = sqlite3.connect(":memory:" if path is None else file, timeout=_TIMEOUT)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        query = "SELECT user_version, EXISTS (SELECT * FROM sqlite_master) FROM pragma_user_version"
        [(found, has_tables)] = database.execute(query)
        if has_tables and found != _FORMAT:
            raise ConfigMismatch(file, {"layout": (found, _FORMAT)})  # noqa: TRY301 - the database is closed below
        database.executescript(_SCHEMA)
    except BaseException as error:
        database.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise ClaimsLocked(str(path)) from None
        raise
    return database
