"""Reads parts of segments for ``rebuild`` and ``verify``: in this process, or in several.

These are begun with a command of their own: a fork would copy transactions and locks (see ``forks``), and
multiprocessing would run the user's script again in each.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING, Any, NamedTuple

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import members, record, segments
from tbloom.pages.rows import LENGTH, Row
from tbloom.pages.segments import Found, Gap

if TYPE_CHECKING:
    from typing_extensions import Self

#: Records per batch.
_BATCH = 2_000
#: Bytes that take one process as long as it takes to begin another one.
_BYTES_PER_JOB = 1 << 26
#: Called with the bytes that are done, and their total.
Progress = Callable[[int, int], object]
#: Where tbloom is: perhaps in a relative place of ``sys.path``, which is another one where the user changed the folder.
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = """
import sys
from multiprocessing.connection import Connection
_, fd, *sys.path = sys.argv
from tbloom.pages.scanning import serve
serve(Connection(int(fd)))
"""


class Part(NamedTuple):
    """A part of a segment."""

    path: Path
    number: int
    begin: int
    end: int
    #: True: each record is compared with its digests.
    is_checked: bool = False


class Batch(NamedTuple):
    """Some records of a part, one after the other."""

    #: The offset behind them.
    end: int
    #: The offset behind the last record: less than ``end`` where a gap follows; 0 where there is none.
    size: int
    #: The rows of pages and deletions (see ``rows``).
    rows: bytes
    #: The highest sequence number.
    sequence: int
    #: A sentence for each problem, with the file and the offset.
    problems: list[str]

    @property
    def records(self) -> int:
        """The number of pages and deletions."""
        return len(self.rows) // LENGTH


def check_jobs(jobs: int | None) -> None:
    """Raises ConfigError where this is no number of processes."""
    if jobs is not None and (not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1):
        raise ConfigError("jobs", jobs, "a whole number of processes, 1 or more")


def scan(parts: Sequence[Part], jobs: int | None) -> Generator[tuple[int, Batch], None, None]:
    """The batches of each part, with its place in ``parts``. Close the iterator: this ends the processes.

    :param jobs: the number of processes; None: as many as are worth it.
    """
    jobs = min(len(parts), jobs or _jobs_for(sum(part.end - part.begin for part in parts)))
    if jobs <= 1:
        for place, part in enumerate(parts):
            for batch in _batches(part):
                yield place, batch
        return
    waiting = iter(enumerate(parts))
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker()) for _ in range(jobs)]
        busy = {worker.connection: worker for worker in workers if worker.begin(waiting)}
        while busy:
            for connection in wait([*busy]):
                worker = busy[connection]  # type: ignore[index]
                if (found := worker.batch()) is not None:
                    yield worker.place, found
                elif not worker.begin(waiting):
                    del busy[worker.connection]


def _jobs_for(size: int) -> int:
    """The number of processes that are worth it, at most one for each CPU that this one may use."""
    if not sys.executable or getattr(sys, "frozen", False):
        return 1  # Python has no command here
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cpus, size // _BYTES_PER_JOB)


def _batches(part: Part) -> Iterator[Batch]:
    found = segments.records(part.path, part.begin, part.end)
    try:
        with part.path.open("rb", buffering=0) as file:
            while some := [*islice(found, _BATCH)]:
                yield _batch(part, some, file.fileno())
    except FileNotFoundError:
        yield Batch(part.end, 0, b"", 0, [f"{part.path}: is missing"])


def _batch(part: Part, some: list[Found | Gap], fd: int) -> Batch:
    size = sequence = 0
    rows, problems = [], []
    for each in some:
        if isinstance(each, Gap):
            problems.append(f"{part.path}: at {each.offset}, {each.length} bytes are no record")
            continue
        size = each.offset + each.length
        if part.is_checked:
            try:
                record.check(os.pread(fd, each.length, each.offset))
            except members.Damaged as error:
                problems.append(f"{part.path}: the record at {each.offset} is damaged: {error}")
        if each.head.kind != "warcinfo":
            rows.append(Row.of(part.number, each).packed)
            sequence = max(sequence, each.head.sequence)
    return Batch(each.offset + each.length, size, b"".join(rows), sequence, problems)


class _Worker:
    """A process, and the part that it scans."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            # Not by the user's environment, and not ended by a Ctrl-C in the terminal, but by this process.
            command = [sys.executable, "-I", f"-Xutf8={sys.flags.utf8_mode}", "-c", _PROGRAM]
            self._process = Popen(  # noqa: S603 - our own words
                [*command, str(theirs.fileno()), *filter(os.path.isabs, sys.path), _ROOT],
                stdin=DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        #: The place of its part.
        self.place = -1

    def begin(self, waiting: Iterator[tuple[int, Part]]) -> bool:
        """Sends it the next part; False: there is none."""
        for self.place, part in waiting:
            try:
                self.connection.send(part)
            except OSError:
                raise self._dead() from None
            return True
        return False

    def batch(self) -> Batch | None:
        """Its next batch; None: the part has ended."""
        try:
            answer: Batch | OSError | None = self.connection.recv()
        except (EOFError, OSError):
            raise self._dead() from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _dead(self) -> TBloomError:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return TBloomError(
            f"a process that read segments {how}; nothing was changed: try again, or with jobs=1 (--jobs 1)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()


def serve(parent: Connection[Any, Any]) -> None:
    """Scans the parts that the parent sends, until it ends."""
    answer: Batch | OSError | None
    with suppress(EOFError, ConnectionError):
        while True:
            batches = _batches(parent.recv())
            while True:
                try:
                    answer = next(batches, None)
                except OSError as error:  # of the disk
                    answer = error
                parent.send(answer)
                if answer is None:
                    break
