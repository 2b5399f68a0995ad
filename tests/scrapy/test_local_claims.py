"""Claims without a server (``TBLOOM_STORE = "local"``): what one process leaves, the next one takes over; two don't work at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tbloom import Claim, ConfigMismatch, History, LocalBloom, Note, TBloomError
from tbloom.claims.fleet import Pages, failed_queue_of
from tbloom.local import claims as local
from tbloom.local.claims import ClaimsLocked, DiskFull, LocalClaims, LocalFleet
from tests.helpers.forked import Forked
from tests.helpers.keptpages import Model, note_of

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
A, B, C, D = (letter * 20 for letter in (b"a", b"b", b"c", b"d"))
DAY = 86_400_000
_FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.tbloom"


@pytest.fixture
def start(path: Path) -> Iterator[Any]:
    """Open the claims on the test's own file, as a crawl does."""
    opened = list[LocalClaims]()

    def start(path: Path | None = path, now: int | None = None, **parameters: Any) -> LocalClaims:
        seen = LocalClaims(path=path, **{"capacity": 1000, "error_rate": 1e-9, **parameters})
        opened.append(seen)
        if now is not None:
            seen._clock = lambda: now
        seen.open_claims()
        return seen

    yield start
    for seen in opened:
        seen.close()


def taken(seen: LocalClaims, limit: int, queue: str = "") -> list[str]:
    """Take what earlier processes have left, and return the texts."""
    return [note.text for note in seen.take(limit, queue, idle=True).notes]


def open_claims(path: Path) -> None:
    LocalClaims(path=path, capacity=1000, error_rate=1e-9).open_claims()


def in_another_process(work: Callable[[], Any]) -> Any:
    """Return what a forked process answers; None if it was killed."""
    answer, send = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=lambda: send.send(work()))
    process.start()
    send.close()
    with suppress(EOFError):
        return answer.recv()
    process.join()
    return None


# The answers


@pytest.mark.parametrize("where", ["a file", "memory"])
def test_an_item_is_new_once_until_it_is_released(start: Any, path: Path, where: str) -> None:
    seen = start(path if where == "a file" else None)
    assert [NEW, BUSY, NEW] == seen.claim_many([A, A, B], notes=["1", "2", "3"])
    assert [BUSY, BUSY, None] == [*map(seen.known, (A, B, C))]
    seen.commit_many([A, C])
    assert [SEEN, BUSY, SEEN] == [*map(seen.known, (A, B, C))]
    seen.release_many([B])
    assert [SEEN, NEW, SEEN] == seen.claim_many([A, B, C])
    assert [] == taken(seen, 9)


def test_within_and_keep(start: Any) -> None:
    """A list page counts as seen in the newest slice only, in its version, too; what is kept for one slice is not seen in the next."""
    now, look = DAY * 20_000, D + b"version1"
    first = start(now=now)
    first.commit_many([A, B, D, look])
    first.commit_many([C], keep=1)
    first.close()
    second = start(now=now + DAY)
    assert [NEW, SEEN, NEW] == second.claim_many([A], within=1) + second.claim_many([B, C])
    second.commit_many([A])
    assert [SEEN] == second.claim_many([A], within=1)
    second.claim_many([B], within=1)
    second.commit_many([B], keep=2)
    assert [SEEN] == second.claim_many([B], within=1)
    assert [NEW] == second.claim_many([D], within=1, looks=[look])
    second.commit_many([D, look], keep=2)
    assert [SEEN, SEEN] == second.claim_many([D, D], within=1, looks=[look, D])


# What is left


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_claims_with_a_note_are_taken_over_once(start: Any, end: str) -> None:
    """In their order, by their beginnings; those without a note have ended, and what is done or released does not come back."""

    def work() -> None:
        seen = start()
        items = [bytes([i]) * 20 for i in range(8)]
        kinds = ["run" if i % 2 else "left" for i in range(8)]
        notes = [Note(f"{kind} {i}", kind) for i, kind in enumerate(kinds)]
        assert [NEW] * 8 == seen.claim_many(items, notes=notes)
        assert [NEW, NEW] == seen.claim_many([A, B])
        seen.commit_many(items[:2])
        seen.release_many(items[2:4])
        history = History("left", failures=1)
        seen.note_history(dict.fromkeys([items[0], items[2], items[5], A, C], history))
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        seen.close()

    in_another_process(work)
    for _ in range(2):
        seen = start()
        assert [NEW, NEW] == seen.claim_many([A, B])
        assert ["left 4"] == taken(seen, 1, "left")
        last = seen.take(9, "left", idle=True).notes
        assert {("run 5", 1), ("left 6", 0)} == {(note.text, note.failures) for note in last}
        assert [] == taken(seen, 9, "left")
        assert ["run 7"] == taken(seen, 9, "run")
        assert [BUSY] == seen.claim_many([bytes([4]) * 20])
        seen.close()  # nothing of it is done
    seen = start()
    seen.commit_many([bytes([i]) * 20 for i in range(8)])
    assert [] == taken(seen, 9)
    seen.close()
    assert [] == taken(start(), 9)


def test_seen_pages_are_not_taken_over(start: Any) -> None:
    """As after a kill between a commit and the end of the claim. The claim of a list page asks the newest slices only."""
    now = DAY * 20_000
    first = start(now=now)
    first.commit_many([A, B])
    first.close()
    second = start(now=now + DAY)
    second.claim_many([A, B], 1, ["A", "B"])
    LocalBloom.add_many(second, [B], within=1)
    second.close()
    assert ["A"] == taken(start(now=now + DAY), 9)


@pytest.mark.parametrize(
    ("own", "minutes"),
    [
        ({"granularity": "d", "slices": 7}, 7 * 24 * 60),
        ({"granularity": "1min", "slices": 1}, 60),
        ({"granularity": None}, None),
    ],
    ids=["seven days", "a short window", "no window"],
)
def test_a_claim_ends_a_window_after_it_was_left(
    start: Any, own: dict[str, Any], minutes: int | None
) -> None:
    """But not within an hour. A process may have it for longer, and who has taken it leaves it anew (Find#299)."""
    now = DAY * 20_000
    first = start(now=now, **own)
    first.claim_many([A], notes=["A"])
    lasts = (minutes or 10**6) * 60_000
    now += 3 * lasts
    first._clock = lambda: now
    first.close()
    for later in (lasts - 1, lasts * 3 // 2):
        second = start(now=now + later, **own)
        assert ["A"] == taken(second, 9)
        second.close()
    if minutes:
        assert [] == taken(start(now=now + 3 * lasts, **own), 9)


def test_a_dead_process_has_not_died_of_earlier_failures(start: Any) -> None:
    def die() -> None:
        seen = start()
        seen.claim_many([A, B], notes=[Note("a", "q"), Note("b", "q")])
        seen.note_history({A: History(failed_queue_of("q"), failures=1, reason="status/503")})
        os.kill(os.getpid(), signal.SIGKILL)

    in_another_process(die)
    fleet = LocalFleet(start(), "q")
    assert {"a": 0, "b": 1} == {page.note: page.deaths for page in fleet.kept()}
    assert Pages(left=1, failed=1) == fleet.look().pages


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.check) for n in (1, 2, 3))]
)
def test_counts_and_lists_agree_whatever_is_done_with_pages(start: Any, seed: int) -> None:
    """As ``queue`` and ``failed`` show them: of a crawl that has ended."""
    model, seen = Model(seed, str.encode), start()
    seen.take(0, "shop", idle=False)
    for n in range(60):
        model.step(seen, LocalFleet(seen, "shop"))
        if n % 10 == 9:
            seen.close()
            seen = start()
            seen.take(0, "shop", idle=False)
            model.known = {url: (queue, None, False) for url, (queue, *_) in model.known.items()}
        fleet = LocalFleet(seen, "shop")
        assert model.shown(is_held=False) == {page.url: page.state for page in fleet.kept()}
        assert model.numbers(is_held=False) == fleet.look().pages


def test_a_page_has_failed_by_the_clock_of_the_store(start: Any) -> None:
    """A program may say another time. A page that is tried again has no failure any more."""
    now, failed = DAY * 20_000, History(failed_queue_of("q"), failures=1, reason="status/503")
    seen = start(now=now)
    seen.claim_many([A, B], notes=[note_of("a", "q"), note_of("b", "q")])
    seen.note_history({A: failed, B: failed._replace(failed_at=7)})
    seen.leave_many([A, B])
    fleet = LocalFleet(seen, "q")
    assert now / 1000 == fleet.now()
    assert {"a": now // 1000, "b": 7} == {page.url: page.failed_at for page in fleet.kept()}
    assert 2 == fleet.retry(fleet.kept()).moved
    assert {("left", "")} == {(page.state, page.reason) for page in fleet.kept()}


def test_what_a_dead_process_had_may_have_killed_it(start: Any) -> None:
    """What it had not taken has not. After two deaths, a page is taken alone, by a crawl that has nothing else to do. Until then, a link
    does not claim it: its deaths would be forgotten."""

    def work() -> None:
        seen = start()
        assert ["A"] == taken(seen, 1)
        seen.note_history({A: History("", 1, 2), C: History("", 3, 3)})
        os.kill(os.getpid(), signal.SIGKILL)

    first = start()
    first.claim_many([A, B, C], notes=["A", "B", "C"])
    first.close()
    in_another_process(work)
    for _ in range(2):  # the first one has not died of it
        later = start()
        assert [Note("B"), Note("C")] == later.take(9, "", idle=True).notes
        assert [] == later.take(9, "", idle=False).notes
        suspect = Note("A", deaths=2, failures=2)
        assert ([BUSY], [suspect]) == (later.claim_many([A]), later.take(9, "", idle=True).notes)
        later.close()


# The database


@pytest.mark.parametrize("content", [b"a line\n", b"SQLite format 3\0" + b"x" * 4096, None])
def test_a_file_that_is_damaged_or_anothers_is_named(
    start: Any, path: Path, content: bytes | None
) -> None:
    file = Path(f"{path}.claims")
    first = start()
    first.claim_many([A, B], notes=["A" * 5000, "B"])
    first.close()
    content = content or file.read_bytes()[:5000]
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(TBloomError, match=f"{file}: .* delete it"):
            start()
    assert content == file.read_bytes()
    file.unlink()
    assert [NEW] == start().claim_many([A], notes=["A"])


@pytest.mark.parametrize("name", ["seen.tbloom", "seen.tbloom.claims", "seen.tbloom.claims-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_lost_meanwhile_is_an_error(path: Path, name: str, how: str) -> None:
    """better-sqlite3#1237: SQLite goes on without an error. It is one of the next claim and commit, and of the end: the next crawl
    would know nothing of it."""
    file = path.with_name(name)
    calls: list[Callable[[LocalClaims], object]] = [
        lambda seen: seen.commit_many([A]),
        lambda seen: seen.claim_many([B], notes=["B"]),
        LocalClaims.close,
    ]
    for call in calls:
        seen = LocalClaims(path=path, capacity=1000)
        seen.open_claims()
        seen.claim_many([A], notes=["A"])
        if how == "replaced":
            file.with_name("other").write_bytes(file.read_bytes())
            file.with_name("other").replace(file)
        else:
            file.unlink()
        with pytest.raises(TBloomError, match=f"{name}'? was deleted or replaced while it was in"):
            call(seen)
        with suppress(TBloomError):
            seen.close()
        for each in path.parent.iterdir():
            each.unlink()


def test_room_of_claims_that_have_ended_is_used_again(start: Any, path: Path) -> None:
    """The next crawl gives it back to the disk."""
    file, note = Path(f"{path}.claims"), "x" * 500
    seen = start()
    seen.claim_many([b"%20d" % i for i in range(1000)], notes=[note] * 1000)
    for i in range(1000):
        seen.commit_many([b"%20d" % i])
        seen.claim_many([b"%20d" % (i + 1000)], notes=[note])
    for i in range(1000, 1990):
        seen.release_many([b"%20d" % i])
    seen.close()
    assert file.stat().st_size < 1000 * 1000
    seen = start()
    assert 10 == len(taken(seen, 99))
    seen.close()
    assert file.stat().st_size < 100 * 1000
    assert [file] == [*path.parent.glob(f"{file.name}*")]


def test_a_full_disk_is_an_error_and_changes_nothing(start: Any, path: Path) -> None:
    seen = start()
    seen.claim_many([A], notes=["A"])
    seen._database.execute("PRAGMA max_page_count = 8")
    with pytest.raises(DiskFull, match=f"{path}.claims: database or disk is full"):
        seen.claim_many([B, C], notes=["B", "x" * 60_000])
    assert [NEW] == seen.claim_many([C], notes=["C"])
    seen.close()
    assert ["A", "C"] == taken(start(), 9)


def test_python_without_sqlite_is_an_error_that_says_so(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "sqlite3", None)
    with pytest.raises(TBloomError, match="sqlite3"):
        start()


def test_only_its_owner_may_read_the_file_by_default(start: Any, path: Path) -> None:
    file = Path(f"{path}.claims")
    for mode in (0o600, 0o640):
        seen = start()
        seen.claim_many([A], notes=["A"])
        files = [*path.parent.glob(f"{file.name}*")]
        assert [mode] * 2 == [each.stat().st_mode & 0o777 for each in files]
        seen.close()
        file.chmod(0o640)


# The lock


def test_a_second_process_is_locked_out(start: Any, path: Path) -> None:
    seen = start()

    def second() -> str:
        with pytest.raises(ClaimsLocked) as caught:
            start()
        return str(caught.value)

    # In this process, too.
    for text in (second(), in_another_process(second), second()):
        assert f"{path} is in use by another process" in text
        assert "TBLOOM_PATH" in text
    with pytest.raises(RuntimeError, match="ClaimsLocked"):
        Forked(open_claims, path).result()  # no child of the one that has it open
    # It has changed nothing, and other uses of the filter go on.
    assert [NEW] == seen.claim_many([A], notes=["A"])
    with LocalBloom(path=path, capacity=1000, error_rate=1e-9) as other:
        assert other.add("x")
    seen.close()
    assert ["A"] == taken(start(), 9)


def test_a_dead_process_does_not_block(start: Any) -> None:
    """Also not if a child that it has forked lives on."""
    tests, childs = _FORK.Pipe()

    def live() -> None:
        tests.close()
        childs.send("alive")
        with suppress(EOFError):
            childs.recv()

    def work() -> None:
        start().claim_many([A], notes=["A"])
        _FORK.Process(target=live).start()
        signal.pause()

    process = _FORK.Process(target=work)
    process.start()
    assert tests.recv() == "alive"
    process.kill()
    process.join()
    assert ["A"] == taken(start(), 9)
    tests.close()  # and the child ends


def test_a_forked_child_has_no_claims(start: Any) -> None:
    seen = start()
    seen.claim_many([A], notes=["A"])

    def work() -> None:
        for call in (seen.claim_many, seen.commit_many, seen.release_many):
            with pytest.raises(TBloomError, match="those of the process that forked this one"):
                call([B])
        seen.close()

    in_another_process(work)
    with pytest.raises(ClaimsLocked):
        start()
    assert [BUSY, NEW] == seen.claim_many([A, B], notes=["A", "B"])


def test_a_filter_with_other_parameters_is_not_locked(start: Any) -> None:
    first = start()
    first.commit_many([A])
    first.close()
    with pytest.raises(ConfigMismatch):
        start(capacity=2000)
    assert [SEEN] == start().claim_many([A])
