"""What a process calls while it ends, or in a signal handler, is done or refused by a clear error. Nothing hangs."""

from __future__ import annotations

import fcntl
import linecache
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tbloom
from tbloom import Claim, LocalBloom, TimeBloom

_ATEXIT = """
import atexit
for store in {stores}:
    atexit.register(lambda store=store: print(store.add("a"), store.add_many(["a", "b"])))
store = {stores}[0]
atexit.register(lambda: print(store.claim("c"), store.commit("c"), store.claim("c"), store.close()))
"""
_DAEMONS = """
import atexit, threading
from time import sleep
stores = {stores}
atexit.register(lambda: [store.add("b") for store in stores])
def call(store):
    while True:
        store.contains("a")
for store in stores * 2:
    threading.Thread(target=call, args=[store], daemon=True).start()
sleep(0.1)
print("ended")
"""
#: Handlers interrupt calls again and again, and make a call themselves.
_SIGNALS = """
import signal, threading
def call(*_):
    try:
        answers.append(store.contains("a"))
    except Exception as error:
        answers.append("a signal handler can't use" in str(error))
    if len(answers) == 50:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    else:
        threading.Timer(0.001, signal.raise_signal, [signal.SIGUSR1]).start()
for store in {stores}:
    answers = []
    store.add("a")
    signal.signal(signal.SIGUSR1, call)
    threading.Timer(0.001, signal.raise_signal, [signal.SIGUSR1]).start()
    while len(answers) < 50:
        store.add("b")
    print(all(answers))
"""


#: What makes each kind of store.
BLOOM, ONE, EXACT, COUNTER, LOCAL, FILE = STORES = (
    "TimeBloom.from_url({url!r}, {name!r})",
    "TimeBloom.from_url({url!r} + '?max_connections=1', {name!r} '-one')",
    "ExactFilter.from_url({url!r}, {name!r} '-exact')",
    "DistinctCounter.from_url({url!r}, 'one', {name!r} '-counter')",
    "LocalBloom()",
    "LocalBloom(path={path!r})",
)


@pytest.fixture
def ended(url: str, name: str, tmp_path: Path) -> Callable[..., list[str]]:
    """Runs a program with some stores, and returns the lines that it prints."""

    def ended(program: str, *stores: str) -> list[str]:
        names = {"url": url, "name": name, "path": str(tmp_path / "filter")}
        made = "[" + ", ".join(stores).format(**names) + "]"
        imports = "from tbloom import *\nfrom tbloom.distinct import DistinctCounter\n"
        words = [sys.executable, "-c", imports + program.format(**names, stores=made)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout.splitlines()

    return ended


def test_an_atexit_handler_can_add(ended: Callable[..., list[str]]) -> None:
    """And claim: from Python 3.12 on, no thread for heartbeats can be started then."""
    claims = "Claim.NEW True Claim.SEEN None"
    assert ended(_ATEXIT, *STORES) == [claims, *["True [False, True]"] * 6]


def test_daemon_threads_hold_nothing_up(ended: Callable[..., list[str]]) -> None:
    """They stop in the midst of a call, after the atexit handlers."""
    assert ended(_DAEMONS, BLOOM, ONE, EXACT, LOCAL, FILE) == ["ended"]


def test_a_signal_handler_interrupts_a_call_of_its_own_store(
    ended: Callable[..., list[str]],
) -> None:
    stores = BLOOM, EXACT, COUNTER, LOCAL, FILE
    assert ended(_SIGNALS, *stores) == ["True"] * 5


OF_LOCAL, OF_CLAIMS = (f"{tbloom.__path__[0]}/{package}/" for package in ("local", "claims"))
#: Lines before which Python raises no KeyboardInterrupt, so that a lock is always released.
NEVER = re.compile(r"\s*(with |try:|.*unlock\(\)$)")
#: A file and the number of a line, and how many times a call comes to it.
Place = tuple[str, int, int]


def _interrupted(
    package: str, call: Callable[[], object], place: Place | None = None
) -> dict[Place, None]:
    """Call, and return the places of the package that it comes to, up to the one at which it gets a KeyboardInterrupt."""
    times, places = Counter[tuple[str, int]](), dict[Place, None]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name, number = line = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and not NEVER.match(linecache.getline(name, number)):
            times[line] += 1
            places[name, number, times[line]] = None
            if (name, number, times[line]) == place:
                raise KeyboardInterrupt
        return trace if name.startswith(package) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return places


def _first_and_last(places: Iterable[Place]) -> list[Place]:
    """Return the places at which a call comes to a line for the first time, and for the last one."""
    last = {(name, number): times for name, number, times in places}
    return [each for each in places if each[2] in (1, last[each[:2]])]


@pytest.mark.parametrize("is_file", [pytest.param(False, marks=pytest.mark.check), True])
@pytest.mark.parametrize(
    "verb",
    [
        "add",
        *(
            pytest.param(verb, marks=pytest.mark.check)
            for verb in ("contains", "contains_many", "add_many", "clear")
        ),
    ],
)
def test_an_interrupt_at_any_line_leaves_the_filter_whole(
    tmp_path: Path, verb: str, is_file: bool
) -> None:
    """The call is the first one in a slice, so that all is read again, and ``add`` begins a part, ``add_many`` two."""
    old, new, hour = [*"abcd"], [*"klmno"], 1_800_000_000_000
    items: list[Any] = [old] if verb == "contains_many" else [new]
    if verb in ("add", "contains"):
        items = ["k"]
    elif verb == "clear":
        items = []

    def filled() -> LocalBloom:
        path = tmp_path / str(len([*tmp_path.iterdir()])) if is_file else None
        store = LocalBloom(path=path, granularity="1h", slices=3, capacity=3)
        store._clock = lambda: hour
        store.add_many(old)
        store._clock = lambda: hour + 3_600_000
        return store

    with filled() as store:
        places = _interrupted(OF_LOCAL, partial(getattr(store, verb), *items))
    for place in _first_and_last(places):
        with filled() as store:
            assert place in _interrupted(OF_LOCAL, partial(getattr(store, verb), *items), place)
            for path in tmp_path.iterdir():  # no other process is locked out
                with path.open() as other:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if verb != "clear":
                assert store.contains_many(old) == [True] * 4, place
            assert store.add_many(new) == [True] * 5, place
            assert [store.add(item) for item in new] == [False] * 5, place
            assert store.contains_many(new) == [True] * 5, place
            store.clear()
            assert store.contains_many(old + new) == [False] * 9, place
        for path in tmp_path.iterdir():
            path.unlink()


def test_an_interrupted_commit_takes_nothing_for_anothers(url: str, name: str) -> None:
    """The repeated one says so, and no lease is left."""
    numbers = count()
    with TimeBloom.from_url(url, name) as seen:

        def claimed() -> list[str]:
            items = [*map(str, islice(numbers, 9))]
            assert seen.claim_many(items) == [Claim.NEW] * 9
            return items

        seen.commit_many(claimed())
        for place in _first_and_last(_interrupted(OF_CLAIMS, partial(seen.commit_many, claimed()))):
            items = claimed()
            assert place in _interrupted(OF_CLAIMS, partial(seen.commit_many, items), place)
            assert seen.commit_many(items) == [True] * 9, place
            assert seen.claim_many(items) == [Claim.SEEN] * 9, place
