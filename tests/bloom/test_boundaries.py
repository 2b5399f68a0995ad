"""The start and end of slices, on a server whose clock the test sets; and filters without a window, which forget nothing.

(Which items are remembered then, and when keys leave: ``tests/simulation``.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.layout import Layout
from tbloom.engine.server import ServerClock
from tests.helpers.commands import tbloom
from tests.helpers.contents import keys_of

NOON = "2019-06-{:02} 12:00:00"


#: The verbs that put an item into the current slice.
WRITES: dict[str, Callable[[TimeBloom, str], Any]] = {
    "add": TimeBloom.add,
    "add_many": lambda seen, item: seen.add_many([item]),
    "commit": TimeBloom.commit,
}


def _at_line(number: int, work: Callable[[], Any], reached: list[Thread]) -> Any:
    """Return a trace function that lets a thread do the work before the n-th line of the filter that is executed."""
    left = number

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if "/tbloom/bloom/" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left == 0 and not reached:
            sys.settrace(None)
            reached.append(Thread(target=work))
            reached[0].start()
            reached[0].join(0.1)  # it may wait for a lock that this thread has
        return trace

    return trace


@pytest.mark.parametrize(
    ("capacity", "every"),
    [(None, 12), *(pytest.param(capacity, 1, marks=pytest.mark.check) for capacity in (None, 10))],
)
def test_no_item_is_lost_between_threads_while_a_slice_begins(
    clockwork: Any, open_one: Callable[..., TimeBloom], capacity: int | None, every: int
) -> None:
    """Two threads of an object add to a new slice. One waits before a line, each in its turn, until the other has its answers."""
    seen, theirs = open_one(capacity=capacity, slices=3), open_one(capacity=capacity, slices=3)
    theirs.add_many(f"earlier {n}" for n in range(50))
    for line in count(1, every):
        clockwork.go_on(86_400)
        own, others = f"own {line}", [f"{n} of another thread, {line}" for n in range(20)]
        reached, answers = list[Thread](), list[bool]()
        was = sys.gettrace()
        sys.settrace(
            _at_line(line, lambda: answers.extend(seen.add_many(others)), reached)  # noqa: B023
        )
        try:
            answers.append(seen.add(own))
        finally:
            sys.settrace(was)
        if not reached:
            break
        reached[0].join()
        assert [True] * 21 == answers
        assert all(theirs.contains_many([own, *others])), line
    assert line > 100


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    ("before", "now"), [("03 00:00", "04 00:00"), ("04 12:00", "03 12:00")], ids=["behind", "ahead"]
)
def test_an_item_goes_into_the_servers_current_slice(
    clockwork: Any, open_one: Callable[..., TimeBloom], verb: str, before: str, now: str
) -> None:
    """The client believes that another slice is current, because a slice begins just now, or the clock was set back."""
    seen = open_one(slices=2)
    clockwork.set(f"2019-06-{before}:00")
    seen.add("shows the client the time")
    clockwork.set(f"2019-06-{now}:00")
    WRITES[verb](seen, "a")
    found = seen.last_seen("a")
    assert found is not None
    assert f"201906{now[:2]}" == found.label


def test_nothing_but_the_server_sets_its_clock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """No late reply, and no clock of the client. Otherwise the local cache would go on answering for a slice that has ended."""
    clock, asked = ServerClock(), time.monotonic_ns() // 1_000_000
    told = clock.now()
    time.sleep(0.02)
    clock.learn(told, asked)
    assert clock.now() >= told + 20
    for change in (86_400_000, -86_400_000):
        clock.learn(told + change, asked)
        assert told + change <= clock.now() <= told + change + 60_000
    told, earlier = clock.now(), time.time_ns() - 10**12
    monkeypatch.setattr("time.time_ns", lambda: earlier)
    assert told <= clock.now() <= told + 60_000


@pytest.mark.parametrize("moved", [["time_ns"], ["time_ns", "monotonic_ns"]])
def test_a_process_that_was_frozen_over_midnight_answers_right(
    clockwork: Any,
    open_one: Callable[..., TimeBloom],
    monkeypatch: pytest.MonkeyPatch,
    moved: list[str],
) -> None:
    """The local cache does not answer for a slice that has ended. The monotonic clock may have stood still (redis-semaphore#24)."""
    seen = open_one(slices=2, cache_size=10)
    assert [True, False, False] == [seen.add("a") for _ in range(3)]
    assert seen.cache_hits == 1
    clockwork.go_on(7 * 86_400)
    for clock in moved:
        later = getattr(time, clock)() + 7 * 86_400 * 10**9
        monkeypatch.setattr(f"time.{clock}", lambda later=later: later)
    assert seen.add("a")


def test_the_oldest_of_many_slices_is_looked_at(
    clockwork: Any, open_one: Callable[..., TimeBloom]
) -> None:
    """A script is told the number of parts in two bytes."""
    ours, theirs = (open_one(granularity="1h", slices=300) for _ in range(2))
    for hour, item in (0, "first"), (1, "second"), (299, "last"):
        clockwork.set(f"2019-06-{3 + hour // 24:02} {hour % 24:02}:00:00")
        ours.add(item)
    assert all(theirs.contains_many(["first", "second", "last"]))
    found = theirs.last_seen("first")
    assert found is not None
    assert found.label == "20190603T000000"


def test_the_state_drops_counts_of_slices_that_have_left(
    clockwork: Any, open_one: Callable[..., TimeBloom], name: str
) -> None:
    seen = open_one(slices=2)
    for day in range(3, 20):
        clockwork.set(NOON.format(day))
        seen.add(f"item of {day}")
    counted = {
        field for field in clockwork.client.hkeys(f"{{{name}}}:state") if field.startswith("2019")
    }
    assert {"20190618", "20190619"} <= counted
    assert len(counted) <= 10


def test_a_layout_has_only_live_slices(name: str) -> None:
    """A filter in a file makes its own layout, for example."""
    config = configure(name, capacity=10, slices=2)
    layout = Layout(config, Layout(config).grown("20190608", ["20190608", "20190607"]))
    grown = layout.grown("20190610", ["20190610", "20190609"])
    assert ["20190610"] == [entry.partition("=")[0] for entry in grown.split(";")]


def test_the_shards_of_a_slice_expire_one_after_another(
    clockwork: Any, open_one: Callable[..., TimeBloom], name: str
) -> None:
    """The server never deletes all of them at once. The parameters at the root key expire last."""
    server = clockwork.client
    open_one(slices=2, shards=20).add_many(map(str, range(1000)))
    [*shards, agreement] = sorted(
        server.pttl(key) for key in [*server.keys("*:201906*"), f"{{{name}}}:config"]
    )
    assert 20 == len(set(shards))
    assert shards[-1] < agreement


FOREVER: dict[str, Any] = {"granularity": None, "capacity": 100}
ITEMS = [f"item {i}" for i in range(1000)]


@pytest.mark.parametrize("shards", [1, 3])
def test_without_a_window_only_lanes_have_a_ttl(
    client: redis.Redis, name: str, url: str, shards: int, tmp_path: Path
) -> None:
    """Also after growth, claims and a restore."""

    def ttls(name: str) -> set[int]:
        return {client.pttl(key) for key in keys_of(client, name)}

    seen = TimeBloom(client, name, shards=shards, **FOREVER)
    for verb, *items in (
        *((seen.add, "a"), (seen.add_many, ITEMS), (seen.claim, "b"), (seen.commit, "b")),
        *((seen.push, "d", "its note"), (seen.take,), (seen.leave_many, ["d"])),
        (seen.import_many, ["c"]),
    ):
        verb(*items)
        assert {-1} == ttls(name)
    file, copy = str(tmp_path / "filter"), f"{name}-copy"
    assert tbloom("export", "--url", url, name, file).returncode == 0
    assert tbloom("import", "--url", url, file, "--name", copy).returncode == 0
    with TimeBloom.open(client, copy) as restored:
        assert not any(restored.add_many([*ITEMS, "a", "b", "c"]))
        assert {-1} == ttls(copy)
        restored.clear()
        assert set() == ttls(copy)


def test_a_filter_without_a_window_forgets_nothing(clockwork: Any, name: str) -> None:
    clockwork.set("2019-06-03 12:00:00")
    with TimeBloom.from_url(clockwork.server.url, name, **FOREVER) as seen:
        assert all(seen.add_many(ITEMS))
        seen._keep_session = lambda: None  # type: ignore[method-assign]
        assert Claim.NEW is seen.claim("claimed", note="its note")
        clockwork.set("2036-02-29 12:00:00")
        assert not any(seen.add_many(ITEMS))
        with TimeBloom.from_url(clockwork.server.url, name, **FOREVER) as other:
            assert ["its note"] == [note.text for note in other.take().notes]
        assert ("all", None, None) == seen.last_seen(ITEMS[0])
        assert seen.warnings() == []
