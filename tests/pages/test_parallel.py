"""Verify and rebuild in several processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tbloom import ConfigError, TBloomError
from tbloom.pages import PageStore, rows
from tests.helpers.pagestores import DAY, NOON, bodies, files, url

pytestmark = pytest.mark.usefixtures("clock")

#: Verifies a store in two processes, and tells their IDs.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from tbloom.pages import PageStore

def progress(done, total):
    if done < total:
        me = os.getpid()
        print(*Path("/proc/self/task", str(me), "children").read_text().split(), flush=True)
        {what}

report = PageStore(sys.argv[1], readonly=True).verify(progress, jobs=2)
print(report.pages, *report.problems)
"""


def filled(path: Path, codec: str = "gzip") -> dict[str, bytes]:
    """Makes a store of many segments in three slices, in which pages were replaced, moved and deleted."""
    chance = random.Random(4)
    with PageStore(path, "d", 3, segment_bytes=4_000, codec=codec) as store:
        for number in range(300):
            if chance.random() < 0.25:
                store.delete(url(chance.randrange(60)))
            else:
                at = NOON - chance.randrange(3) * DAY
                store.put(url(chance.randrange(60)), b"body %d" % number, at=at)
        return bodies(store)


def children() -> list[int]:
    """The processes that read segments for this one."""
    tasks = Path("/proc/self/task").iterdir()
    pids = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [
        pid for pid in pids if b"tbloom.pages.scanning" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def index_of(path: Path) -> dict[bytes, tuple[object, ...]]:
    """All of the index: segments, and the place of each page."""
    with PageStore(path, readonly=True) as store, store._index.reading() as snapshot:
        found = {
            key: (slice.label, value)
            for slice in snapshot.slices
            for key, value in snapshot._txn.cursor(snapshot._tables[slice.table])
        }
        return {b"": (snapshot.state.sequence, *snapshot.segments()), **found}


@pytest.mark.parametrize(("codec", "in_memory"), [("gzip", 1 << 19), ("zstd", 1)])
def test_a_rebuild_in_processes_makes_the_same_index(
    path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, in_memory: int
) -> None:
    """As in one; also where the rows do not fit into memory."""
    pages = filled(path, codec)
    written = index_of(path)
    monkeypatch.setattr(rows, "_IN_MEMORY", in_memory)
    progress: list[tuple[int, int]] = []
    for jobs in (1, 2):
        progress.clear()
        PageStore.rebuild(path, lambda *at: progress.append(at), jobs=jobs)
        assert written == index_of(path)
        total = sum(file.stat().st_size for file in files(path))
        assert (sorted(progress), (total, total)) == (progress, progress[-1])
        with PageStore(path, readonly=True) as store:
            assert pages == bodies(store)
    assert [] == [one for one in path.glob("index-*/*") if one.suffix != ".mdb"]


def test_verify_in_processes_has_the_same_report(path: Path) -> None:
    """The same problems, in the same order."""
    filled(path)
    data = [file.read_bytes() for file in files(path)]
    files(path)[-1].write_bytes(data[-1][:-5])
    files(path)[9].write_bytes(data[9][:1500] + bytes(9) + data[9][1509:])
    files(path)[5].write_bytes(data[5][:900] + bytes(400) + data[5][1300:])
    files(path)[2].unlink()
    with PageStore(path, readonly=True) as store:
        reports = [store.verify(jobs=jobs) for jobs in (1, 2)]
    assert len(reports[0].problems) >= 6
    assert reports[0] == reports[1]
    assert [] == children()


def test_a_process_is_killed(path: Path) -> None:
    """An error says so; the store is as it was, and no process is left."""
    pages = filled(path)

    def kill(*_: int) -> None:
        for pid in children():
            os.kill(pid, signal.SIGKILL)

    with PageStore(path, readonly=True) as store:
        with pytest.raises(TBloomError, match="was killed by SIGKILL"):
            store.verify(kill, jobs=2)
        assert [] == children()
        with pytest.raises(TBloomError, match="was killed by SIGKILL"):
            PageStore.rebuild(path, kill, jobs=2)
        assert [] == children()
        assert pages == bodies(store)


def test_an_interrupt_ends_the_processes(path: Path) -> None:
    filled(path)

    def interrupt(*_: int) -> None:
        assert 2 == len(children())
        raise KeyboardInterrupt

    with PageStore(path, readonly=True) as store:
        with pytest.raises(KeyboardInterrupt):
            store.verify(interrupt, jobs=2)
        assert [] == children()


@pytest.mark.parametrize(
    ("what", "code", "error"),
    [
        ("pass", 0, ""),
        pytest.param(
            "os.killpg(0, signal.SIGINT)", -2, "KeyboardInterrupt", marks=pytest.mark.check
        ),
        pytest.param("os.kill(me, signal.SIGKILL)", -9, "", marks=pytest.mark.check),
    ],
)
def test_a_script(path: Path, what: str, code: int, error: str) -> None:
    """Without a main function; no process outlives it, whatever ends it, nor prints a traceback."""
    with PageStore(path, segment_bytes=1) as store:
        for n in range(30):
            store.put(url(n), b"body")
    script = path.with_name("script.py")
    script.write_text(SCRIPT.format(what=what))
    done = subprocess.run(
        [sys.executable, script, path],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if not code:
        assert "30" == lines[-1]
    assert code == done.returncode
    assert error == "".join(done.stderr.splitlines()[-1:])
    assert done.stderr.count("Traceback") == bool(error)
    pids = lines[0].split()
    assert 2 == len(pids)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_modules_of_the_folder_that_one_is_in_are_not_run(path: Path) -> None:
    """Nor where ``sys.path`` has it, as with ``python -c``."""
    with PageStore(path, segment_bytes=1) as store:
        for number in range(3):
            store.put(url(number), b"body")
    (path.parent / "tbloom.py").write_text("raise SystemExit(7)")
    program = (
        "import os, sys; from tbloom.pages import PageStore; os.chdir(sys.argv[1]); "
        "assert '' in sys.path; PageStore('store', readonly=True).verify(jobs=2)"
    )
    subprocess.run([sys.executable, "-c", program, path.parent], check=True)


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, "2"])
def test_a_number_of_processes_that_can_t_be(path: Path, jobs: int) -> None:
    with PageStore(path) as store:
        store.put(url(1), b"")
        with pytest.raises(ConfigError, match="jobs: expected a whole number of processes"):
            store.verify(jobs=jobs)
    with pytest.raises(ConfigError, match="jobs"):
        PageStore.rebuild(path, jobs=jobs)
    assert ["index-1"] == [one.name for one in path.glob("index-*")]
