"""A filter in a file: shared by processes, through kills and restarts; and the errors for other files."""

from __future__ import annotations

import errno
import faulthandler
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import compress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tbloom import ConfigError, ConfigMismatch, LocalBloom, TBloomError
from tbloom.local import file, shard
from tbloom.window import to_ms
from tests.helpers.making import Child, Partner, missing
from tests.helpers.pagestores import mounted

START = to_ms(datetime(2019, 6, 3, 12, tzinfo=UTC))
DAY = 86_400_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "filter.tbloom"


def at(now: int, path: Path, **parameters: Any) -> LocalBloom:
    """A filter whose clock stands at ``now`` (ms)."""
    seen = LocalBloom(path=path, **{"capacity": 1000, **parameters})
    seen._clock = lambda: now
    return seen


def offer(seen: LocalBloom, items: list[str], seed: int) -> list[str]:
    """Adds the items in an order of its own, half one by one, half in batches; returns the new ones."""
    own = random.Random(seed).sample(items, len(items))
    half = len(own) // 2
    new = [item for item in own[:half] if seen.add(item)]
    for start in range(half, len(own), 100):
        new += compress(own[start : start + 100], seen.add_many(own[start : start + 100]))
    return new


@pytest.mark.parametrize("is_forked", [False, True])
def test_of_many_processes_exactly_one_answers_new(path: Path, is_forked: bool) -> None:
    """4 processes make the filter, or go on with their parent's, and offer the same items while it grows: each is new once."""
    items = [f"item {i}" for i in range(2000)]
    queue = multiprocessing.get_context("fork").SimpleQueue()
    parents = LocalBloom(path=path, capacity=1000, error_rate=1e-9) if is_forked else None

    def child(seed: int) -> None:
        with parents or LocalBloom(path=path, capacity=1000, error_rate=1e-9) as seen:
            queue.put(offer(seen, items, seed))

    children = [Child(partial(child, seed)) for seed in range(4)]
    new = offer(parents, items, 9) if parents else []
    new += [item for _ in children for item in queue.get()]
    for process in children:
        assert 0 == process.wait()
    assert dict.fromkeys(items, 1) == Counter(new)
    with LocalBloom(path=path, capacity=1000, error_rate=1e-9) as seen:
        assert all(seen.contains_many(items))
        assert len(items) == seen.info().items


def _write_on(path: Path, seed: int, out: int) -> None:
    """Offers items for ever that other writers offer too, and writes the new ones to ``out``, where no line is cut short."""
    chance, seen = random.Random(seed), at(0, path, capacity=300, error_rate=1e-6, slices=3)
    number = 0
    seen._clock = lambda: START + number // 2000 * DAY // 2
    while True:
        items = [f"{number}-{i}" for i in range(chance.choice([1, 1, 50]))]
        new = seen.add_many(items) if len(items) > 1 else [seen.add(items[0])]
        line = " ".join(item for item, is_new in zip(items, new, strict=True) if is_new)
        os.write(out, line.encode() + b"\n")
        number += 1


def test_no_answered_item_is_lost_when_writers_are_killed(path: Path) -> None:
    """Eight writers of the same items are killed at any moment: none that was answered is lost, or new twice."""
    chance = random.Random(7)
    for run in range(3):
        path.unlink(missing_ok=True)
        inbox, outbox = os.pipe()
        writers = [Child(partial(_write_on, path, seed, outbox)) for seed in range(8)]
        os.close(outbox)
        with os.fdopen(inbox) as lines:
            answered = [
                item for _ in range(chance.randrange(1, 300)) for item in next(lines).split()
            ]
            for writer in writers:
                writer.kill()
            answered += [item for line in lines for item in line.split()]
        with at(START, path, capacity=300, error_rate=1e-6, slices=3) as seen:
            assert all(seen.contains_many(answered))
            # Each of the killed may have added one batch of items without an answer.
            assert len(answered) <= seen.info().items <= len(answered) + 8 * 50
        assert len(answered) == len(set(answered)) > run


def test_other_parameters_are_refused(path: Path) -> None:
    """They are refused, until all slices have left the window or the filter is cleared. A new slice may have the label of an old one."""
    opened = partial(at, START, path, slices=1)
    with opened(granularity="1h") as seen, opened(granularity="2h") as other:
        seen.add("a")
        for verb in (other.info, partial(other.add, "a"), partial(other.contains_many, ["a"])):
            with pytest.raises(ConfigMismatch) as caught:
                verb()
            assert caught.value.differences["granularity"] == ("3600s", "7200s")
        other._clock = seen._clock = lambda: START + DAY // 24
        assert [True, True] == [other.add("b"), other.add("a")]
        with pytest.raises(ConfigMismatch):
            seen.add("a")
        seen.clear()
        assert seen.add("b")


_FOREIGN, _DAMAGED = (
    "a file of tbloom's LocalBloom",
    "is damaged: .*; put back a copy, or delete",
)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"hello"), _FOREIGN),
        (lambda path: path.write_bytes(b"SQLite 3\0" * 2000), _FOREIGN),
        (lambda path: path.write_bytes(file.MAGIC), _FOREIGN),
        (
            lambda path: path.write_bytes(b""),
            "this one is empty: put back a copy, or delete it to make a new filter",
        ),
        (lambda path: os.truncate(path, 0), "this one is empty"),
        (lambda path: os.truncate(path, 4096), _DAMAGED),
        (Path.mkdir, "directory"),
        (os.mkfifo, "a regular file"),
        (lambda path: path.symlink_to("/nowhere/at/all"), "No such file"),
        (lambda path: os.truncate(path, 8192), _DAMAGED),
        (lambda path: _change(path, lambda data: b"x".join(data.rsplit(b'["', 1))), _DAMAGED),
        (lambda path: _change(path, lambda data: data[:32] + b"\xff" * 48 + data[80:]), _DAMAGED),
    ],
)
def test_a_damaged_file_is_an_error_with_a_remedy(
    path: Path, make: Callable[[Path], object], error: str
) -> None:
    """So is one of another program; it stays as it is."""
    with at(START, path, capacity=50) as seen:
        seen.add_many(map(str, range(200)))
    if error in (_FOREIGN, "directory", "a regular file", "No such file"):
        path.unlink()
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TBloomError, match=error):
        LocalBloom(path=path, capacity=50)
    assert before is None or before == path.read_bytes()


def test_a_wrong_count_is_an_error_until_a_clear(path: Path) -> None:
    with at(START, path) as seen, at(START, path) as other:
        seen.add("a")
        [part] = seen._store.contents.parts
        seen._store.buffer(part)[:8] = b"\xff" * 8
        with pytest.raises(TBloomError, match=r"is damaged; clear\(\) the filter"):
            other.add("a")
        other.clear()
        assert seen.add("a")


#: What is done to a file while it is open, and the error.
GONE, CUT = "was deleted or replaced while it was in use", "another program changed it or cut it"
LOSSES: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, GONE),
    (lambda path: path.rename(path.with_suffix(".old")), GONE),
    (lambda path: _replace(path, Path.touch), GONE),
    (lambda path: _replace(path, lambda new: LocalBloom(path=new, capacity=1000).close()), GONE),
    (lambda path: path.parent.rename(path.parent.with_suffix(".moved")), GONE),
    (lambda path: os.truncate(path, 0), CUT),
    (lambda path: os.truncate(path, 8192), CUT),
]


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    new = path.with_suffix(".new")
    make(new)
    new.replace(path)


@pytest.mark.parametrize(("lose", "error"), LOSSES)
def test_a_lost_file_is_an_error_of_the_next_call(
    path: Path, lose: Callable[[Path], object], error: str
) -> None:
    """As by rm, rsync or logrotate; and of the end, where it was the last call. Nobody adds into nothing."""

    def use() -> None:
        opened = partial(LocalBloom, path=path, capacity=1000)
        seen, other, of_block, reader = opened(), opened(), opened(), opened(readonly=True)
        seen.add_many(["a", "b"])
        assert reader.contains("a")
        assert not other.add("a")
        lose(path)
        for call in (
            partial(seen.add, "c"),
            partial(seen.add_many, ["c"]),
            partial(seen.contains, "a"),
            partial(reader.last_seen, "a"),
            seen.info,
            seen.clear,
            seen.close,
            other.close,
        ):
            with pytest.raises(TBloomError, match=error):
                call()
        with pytest.raises(LookupError, match="the cause"), of_block:
            raise LookupError("the cause")
        seen.close()  # it is closed
        reader.close()  # it has nothing to lose

    with Child(use) as child:  # SIGBUS would kill the whole run
        assert 0 == child.wait()


def test_a_file_cut_within_a_call_kills_the_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """toolong#9: the kernel has no page for the bits, and sends SIGBUS. The next process is told that the file is damaged."""
    with at(START, path) as seen:
        seen.add("a")

    def cut() -> None:
        child = at(START, path)
        add = shard.Part.add

        def cut_first(part: shard.Part, place: Any) -> None:
            os.truncate(path, 4096)
            add(part, place)

        monkeypatch.setattr(shard.Part, "add", cut_first)
        faulthandler.disable()
        child.add("b")

    with Child(cut) as child:
        assert -signal.SIGBUS == child.wait()
    with pytest.raises(TBloomError, match=CUT):
        at(START, path)


def test_processes_that_make_a_file_at_once_share_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a link to where no file is yet; without hard links, too."""
    link = path.with_name("link")
    link.symlink_to(path)
    with at(START, link) as seen, at(START, path) as other:
        assert [True, False] == [seen.add("a"), other.add("a")]

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    path.unlink()
    monkeypatch.setattr(Path, "hardlink_to", refused)
    with at(START, path) as seen, at(START, path) as other:
        assert [True, False] == [seen.add("a"), other.add("a")]
    assert {path, link} == {*path.parent.iterdir()}


def _change(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_a_full_disk_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OSError, before anything is changed; once there is room again, it goes on."""
    with at(START, path, capacity=50) as seen:
        seen.add_many(f"item {i}" for i in range(49))
        before = seen.info()

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            many = [f"more {i}" for i in range(500)]
            with pytest.raises(OSError, match="No space left"):
                seen.add_many(many)
            added = seen.info()
            assert before.items <= added.items < 549
            seen._clock = lambda: START + DAY
            with pytest.raises(OSError, match="No space left"):
                seen.add("one")
            assert "one" not in seen
            seen._clock = lambda: START
            assert added == seen.info()
        assert all(seen.add_many(many))
        assert not any(seen.add_many(many))
        assert 549 == seen.info().items


def test_room_is_reserved_without_holes(path: Path) -> None:
    """A hole would be filled when a bit is set; on a full disk the system would kill the process."""
    with at(START, path, capacity=100_000) as seen:
        seen.add("a")
        status = path.stat()
        assert status.st_blocks * 512 >= status.st_size


class Disk:
    """What the disk has of a file whose writes the kernel puts off, until fsync. It may write any of them earlier."""

    def __init__(
        self,
        path: Path,
        monkeypatch: pytest.MonkeyPatch,
        items: Iterable[str] = (),
        **parameters: Any,
    ) -> None:
        self.parameters = {"capacity": 1000, **parameters}
        self.image = bytearray(path.read_bytes())
        self.waiting: list[tuple[int, bytes]] = []
        self.copy = path.with_name("after a crash")
        #: What the file must still have after a crash before the first change.
        self.items = [*items]
        self._before = -1
        self._before = self.crashed([])
        self._write, self._sync = os.pwrite, os.fsync
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def pwrite(self, fd: int, data: Any, place: int) -> int:
        written = self._write(fd, data, place)
        self.waiting.append((place, bytes(data[:written])))
        for one in self.waiting:
            self.crashed([one])
        return written

    def fsync(self, fd: int) -> None:
        self._sync(fd)
        self.image = self.after(self.waiting)
        self.waiting = []

    def after(self, writes: list[tuple[int, bytes]]) -> bytearray:
        image = bytearray(self.image)
        for place, data in writes:
            image.extend(bytes(max(0, place + len(data) - len(image))))
            image[place : place + len(data)] = data
        return image

    def crashed(self, writes: list[tuple[int, bytes]]) -> int:
        """The number of changes that the file has after a crash, if these writes are on the disk. Raises if it can't be read."""
        self.copy.write_bytes(self.after(writes))
        with LocalBloom(path=self.copy, readonly=True, **self.parameters) as seen:
            seen._clock = lambda: START
            version = seen._store.version
            assert version != self._before or all(seen.contains_many(self.items))
            return version


def test_a_crash_of_the_machine_leaves_a_readable_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of before the change or that of after it, whichever writes the kernel has done; and once the call has its answer,
    that of after it."""
    with at(START, path, capacity=50) as seen:
        disk = Disk(path, monkeypatch)
        for number in range(300):
            seen.add(f"item {number}")
            assert seen._store.version == disk.crashed([])
        assert seen._store.version > 3


def test_a_crash_while_a_slice_begins_loses_no_slice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a part that has left the window: the clock may be set back. The change after it takes its room."""
    items = [f"item {i}" for i in range(50)]
    with at(START, path, slices=1) as seen:
        seen.add_many(items)
        disk = Disk(path, monkeypatch, items, slices=1)
        seen._clock = lambda: START + DAY
        seen.add("tomorrow")
        assert seen._store.version == disk.crashed([])


@pytest.fixture
def open_path() -> Iterator[Path]:
    """In a folder that other users may pass."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        (Path(folder) / "filters").mkdir()
        yield Path(folder) / "filters" / "filter.tbloom"


@pytest.mark.parametrize("is_mount", [False, True], ids=["another user", "read-only mount"])
def test_a_reader_needs_no_write_permission(open_path: Path, *, is_mount: bool) -> None:
    """pybloomfiltermmap3#88: many read while one writes, and see what it adds and grows."""
    if not is_mount and os.geteuid():
        missing("The right to become another user")
    folder, items = open_path.parent, [f"item {i}" for i in range(5000)]
    readonly = mounted(folder.with_name("seen"), "--bind", "-o", "ro", folder)
    with at(START, open_path) as seen, readonly if is_mount else nullcontext(folder) as mount:
        seen.add("a")

        def read(parent: Connection) -> None:
            if not is_mount:
                os.setgid(65534)
                os.setuid(65534)
            with pytest.raises(TBloomError, match=r"read and write \(.*(Read-only|Permission)"):
                at(START, mount / open_path.name)
            with at(START, mount / open_path.name, readonly=True) as reader:
                parent.send("a" in reader and "b" not in reader and reader.info().items)
                parent.recv()
                parent.send(sum(reader.contains_many(items)))

        readers = [Partner(read) for _ in range(4)]
        assert [1] * 4 == [reader.connection.recv() for reader in readers]
        new = sum(seen.add_many(items))  # nobody holds a lock
        before = open_path.read_bytes()
        for reader in readers:
            reader.connection.send("written")
        assert [5000] * 4 == [reader.connection.recv() for reader in readers]
        assert [0] * 4 == [reader.wait() for reader in readers]
        assert before == open_path.read_bytes()
        assert [open_path] == [*folder.iterdir()]
        assert new + 1 == seen.info().items


def _state(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), path.stat().st_mtime_ns


def test_a_reader_changes_nothing(path: Path) -> None:
    with LocalBloom(path=path) as writer:
        writer.add("a")
        before = _state(path)
        reader = LocalBloom(path=path, readonly=True)
        for change in (
            partial(reader.add, "a"),
            partial(reader.add_many, ["b"]),
            reader.clear,
        ):
            with pytest.raises(TBloomError, match=f"^'{path}' was opened to be read only$"):
                change()
        assert [True, False] == reader.contains_many(["a", "b"])
        assert reader.info().items == 1
        assert reader.last_seen("a")
        assert before == _state(path)
        assert reader._store._view.readonly
        reader.close()


def test_a_reader_makes_no_file(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"may read \(No such file or directory\)"):
        LocalBloom(path=path, readonly=True)
    assert not path.exists()
    path.touch()  # by a writer that was killed
    with pytest.raises(ConfigError, match=_FOREIGN):
        LocalBloom(path=path, readonly=True)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"readonly": True}, "readonly: expected True with a path, or False, got"),
        ({"path": "/nowhere", "readonly": 1}, "readonly: expected True with a path, or False, got"),
        ({"path": ""}, "path: expected the path of a file, or None, got ''$"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=f"^{error}"):
        LocalBloom(**given)


def test_a_file_system_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nipype#1370: of an error that names no file, nobody knows what to change."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file, "flock", refused)
    with pytest.raises(ConfigError, match=rf"^path: .* \(No locks available\), got '{path}'"):
        LocalBloom(path=path)
