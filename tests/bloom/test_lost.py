"""A server that has lost a filter: whoever knew it says so, and the filter shows it for as long as the window that was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tbloom import ConfigMismatch, TimeBloom
from tbloom.engine.pending import now_ms
from tbloom.metrics import FilterCollector
from tests.helpers.clock import Clockwork
from tests.helpers.commands import tbloom
from tests.helpers.flows import flow_of, replies_to, run, script_of


@pytest.fixture(params=[1, 3], ids="{} shards".format)
def opened(request: Any, own_url: str) -> Any:
    def opened(**more: Any) -> TimeBloom:
        return TimeBloom.from_url(own_url, "news", shards=request.param, capacity=1000, **more)

    return opened


def losses(seen: TimeBloom) -> tuple[int, bool]:
    """How many warnings of a loss there are, and whether ``info`` knows its time."""
    info = seen.info()
    return sum("the server has lost" in each for each in info.warnings), info.lost_at is not None


@pytest.mark.parametrize("lost", ["*", "*state"], ids=["emptied", "evicted"])
def test_a_loss_is_told_of_by_whoever_adds_next(opened: Any, own: Any, lost: str) -> None:
    """Also to clients that know nothing of the older filter, and once: further calls add nothing to it."""
    with opened() as seen, opened() as other:
        items = [str(n) for n in range(50)]
        seen.add_many(items)
        assert (0, False) == losses(seen)
        own.delete(*own.keys(lost))
        for _ in range(2):
            seen.add_many(items)
            assert (1, True) == losses(seen) == losses(other)
        first = seen.info().lost_at
        seen.add_many([f"later {n}" for n in range(50)])
        assert first == other.info().lost_at


def test_a_loss_shows_though_another_client_begins_the_filter(opened: Any, own: Any) -> None:
    with opened() as seen, opened() as other:
        items = [str(n) for n in range(50)]
        seen.add_many(items)
        own.flushall()
        other.add_many(items)
        assert (0, False) == losses(other)  # it knows no older one
        seen.add_many([f"later {n}" for n in range(50)])
        assert (1, True) == losses(other)


def test_two_threads_that_meet_a_loss_count_it_once(opened: Any, own: Any) -> None:
    """Also if the other one has stored items again before this one goes on."""
    with opened() as seen:
        seen.add("a")
        own.flushall()
        flow = flow_of(seen, "add", "a")
        calls = next(flow)
        while ("bloom/open", 2) != (script_of(calls[0]), int(calls[0].command[2])):
            calls = flow.send(replies_to(own, calls))
        seen.add("a")
        run(own, flow, replies_to(own, calls))
        assert 1 == seen._dispatcher.lost


def test_a_cleared_filter_is_not_lost(opened: Any) -> None:
    """By this client, or by another one."""
    with opened() as seen, opened() as other:
        for clearing in (seen, other):
            seen.add_many(map(str, range(50)))
            clearing.clear()
            seen.add_many(map(str, range(50)))
            other.add_many(map(str, range(100)))
            assert (0, False) == losses(seen) == losses(other)


@pytest.mark.parametrize(("days", "is_lost"), [(1, True), (3, False)])
def test_what_has_left_the_window_is_no_loss(
    clockwork: Clockwork, days: int, is_lost: bool
) -> None:
    """Nor does a filter show a loss for longer than that."""
    seen = TimeBloom(clockwork.client, "news", slices=3, capacity=1000)
    seen.add("a")
    clockwork.go_on(86_400 * days)
    clockwork.client.flushall()
    assert seen.add("a")
    assert (int(is_lost), is_lost) == losses(seen)
    clockwork.go_on(86_400 * 3)
    assert (0, False) == losses(seen)


def test_work_that_is_not_done_is_no_loss(clockwork: Clockwork) -> None:
    """Claims outlive a filter without items, whose state ends with its window."""
    with TimeBloom(clockwork.client, "news", slices=3, capacity=1000) as seen:
        seen.add("a")
        for day in range(6):
            seen.push(f"pushed {day}", "its note")
            seen.claim_many([f"claimed {day}", f"released {day}"])
            seen.release(f"released {day}")
            assert (0, False) == losses(seen)
            clockwork.go_on(86_400)


def test_a_filter_that_was_cleared_long_ago_is_not_lost(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another client; the state, which says so, ends with the calls' answers."""
    with TimeBloom(clockwork.client, "news", slices=3, capacity=1000) as seen:
        seen.add("a")
        TimeBloom.open(clockwork.client, "news").clear()
        clockwork.go_on(5 * 3600)
        monkeypatch.setattr("tbloom.bloom.dispatcher.now_ms", lambda: now_ms() + 5 * 3_600_000)
        assert seen.add("a")
        assert (0, False) == losses(seen)


def test_commands_show_a_loss(opened: Any, own: Any, own_url: str) -> None:
    with opened() as seen:
        seen.add("a")
        own.flushall()
        seen.add("a")
        for words in (["info", "news"], ["queue", "news"]):
            shown = " ".join(tbloom(*words, "--url", own_url).stdout.split())
            assert "warning: the server has lost the filter" in shown
        registry = CollectorRegistry()
        registry.register(FilterCollector(seen))
        metric = "tbloom_lost_timestamp_seconds", {"filter": "news"}
        assert seen.info().lost_at == registry.get_sample_value(*metric)


def test_a_filter_that_was_restored_is_not_lost(
    opened: Any, own: Any, own_url: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "filter")
    with opened() as seen:
        seen.add_many(map(str, range(50)))
        assert 0 == tbloom("export", "--url", own_url, "news", file).returncode
        own.flushall()
        assert 0 == tbloom("import", "--url", own_url, file, "--name", "news").returncode
        assert not any(seen.add_many(map(str, range(50))))
        seen.add_many(map(str, range(50, 100)))
        assert (0, False) == losses(seen)


def test_a_filter_whose_root_key_was_dropped_goes_on(opened: Any, own: Any) -> None:
    """Its shards refuse other parameters, also where the root has them since; a clear forgets it all the same."""
    items = [f"item {i}" for i in range(50)]
    with opened(error_rate=1e-9) as old, opened(error_rate=1e-8) as new:
        old.add_many(items)
        own.delete("{news}:config")
        with opened(error_rate=1e-9) as other:
            assert not any(other.add_many(items))
        own.delete("{news}:config")
        if old.config.shards == 1:  # its only copy
            return
        with pytest.raises(ConfigMismatch):
            new.add_many(items)
        new.clear()
        assert all(new.add_many(items))
