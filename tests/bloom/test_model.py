"""Any sequence of adds, look-ups and clock steps answers as a pure-Python model does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tbloom import Claim, TimeBloom
from tests.helpers import servers
from tests.helpers.making import clock_needed

ITEMS = st.sampled_from([f"item {i}" for i in range(12)])
CLIENTS = st.integers(0, 1)
KEEPS = st.none() | st.integers(1, 5)
PERIODS = {"h": timedelta(hours=1), "d": timedelta(days=1), "90s": timedelta(seconds=90)}


class Model:
    """For each item the periods in which it was written; a period is its number since the epoch."""

    def __init__(self, period: timedelta, slices: int) -> None:
        self.period, self.slices = period, slices
        self.written: dict[str, set[int]] = {}

    def current(self, now: datetime) -> int:
        return (now - datetime(1970, 1, 1, tzinfo=timezone.utc)) // self.period

    def contains(self, item: str, now: datetime, within: int) -> bool:
        oldest = self.current(now) - within + 1
        return any(period >= oldest for period in self.written.get(item, ()))

    def last_seen(self, item: str, now: datetime) -> datetime | None:
        if not self.contains(item, now, self.slices):
            return None
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + max(self.written[item]) * self.period

    def add(self, item: str, now: datetime, within: int, keep: int | None = None) -> bool:
        new = not self.contains(item, now, within)
        if new:
            self.write(item, now, keep)
        return new

    def commit(self, item: str, now: datetime, keep: int | None) -> bool:
        """True: it was written."""
        new = not self.contains(item, now, 1 + self.slices - (keep or self.slices))
        if new:
            self.write(item, now, keep)
        return new

    def write(self, item: str, now: datetime, keep: int | None) -> None:
        """In the slice that leaves after ``keep`` periods."""
        age = self.slices - (keep or self.slices)
        self.written.setdefault(item, set()).add(self.current(now) - age)


class FilterMachine(RuleBasedStateMachine):
    """Two clients, one of whose clocks is 30 hours off, on a server whose clock the test steps."""

    clock: servers.Clockwork
    now = datetime(2019, 6, 3, tzinfo=timezone.utc)  # goes on from run to run

    @initialize(
        granularity=st.sampled_from(sorted(PERIODS)),
        slices=st.integers(1, 5),
        capacity=st.sampled_from([None, 2, 100]),
        shards=st.sampled_from([1, 3]),
        hashes=st.sampled_from([None, 7]),
    )
    def start(self, granularity: str, slices: int, **sizes: Any) -> None:
        """Of a capacity of 2, slices grow all the time, to parts of many sizes."""
        self.model = Model(PERIODS[granularity], slices)
        url, name = self.clock.server.url, secrets.token_hex(8)
        parameters = {"granularity": granularity, "slices": slices, "error_rate": 1e-12, **sizes}
        right = TimeBloom.from_url(url, name, **parameters)
        off = int((self.now + timedelta(hours=30)).timestamp() * 1e9)
        with patch("tbloom.engine.clock.time.time_ns", lambda: off):
            wrong = TimeBloom.from_url(url, name, **parameters)
        self.clients = [right, wrong]
        for client in self.clients:
            client._keep_session = lambda: None  # type: ignore[method-assign] # no heartbeats

    def teardown(self) -> None:
        for client in getattr(self, "clients", ()):
            client.close()

    @rule(client=CLIENTS, item=ITEMS, within=st.integers(1, 5))
    def add(self, client: int, item: str, within: int) -> None:
        within = min(within, self.model.slices)
        expected = self.model.add(item, self.now, within)
        assert expected == self.clients[client].add(item, within=within)

    @rule(client=CLIENTS, items=st.lists(ITEMS, max_size=8), keep=KEEPS)
    def add_many(self, client: int, items: list[str], keep: int | None) -> None:
        slices, keep = self.model.slices, keep and min(keep, self.model.slices)
        expected = [self.model.add(item, self.now, slices, keep) for item in items]
        assert expected == self.clients[client].add_many(items, keep=keep)

    @rule(client=CLIENTS, item=ITEMS, keep=KEEPS)
    def commit(self, client: int, item: str, keep: int | None) -> None:
        keep = keep and min(keep, self.model.slices)
        self.model.commit(item, self.now, keep)
        self.clients[client].commit(item, keep=keep)

    @rule(client=CLIENTS, item=ITEMS, within=st.integers(1, 5))
    def claim(self, client: int, item: str, within: int) -> None:
        within = min(within, self.model.slices)
        expected = Claim.SEEN if self.model.contains(item, self.now, within) else Claim.NEW
        assert expected is self.clients[client].claim(item, within=within)
        self.clients[client].release(item)

    @rule(client=CLIENTS, items=st.lists(ITEMS, max_size=8), keep=st.integers(1, 5))
    def import_many(self, client: int, items: list[str], keep: int) -> None:
        """Into the slice with this label."""
        keep = min(keep, self.model.slices)
        *_, key = self.clients[client].keys()[: keep * self.clients[client].config.shards]
        written = sum([self.model.commit(item, self.now, keep) for item in items])
        assert written == self.clients[client].import_many(items, key.split(":")[-1])

    @rule(client=CLIENTS, items=st.lists(ITEMS, max_size=4), within=st.integers(1, 5))
    def contains_many(self, client: int, items: list[str], within: int) -> None:
        within = min(within, self.model.slices)
        expected = [self.model.contains(item, self.now, within) for item in items]
        assert expected == self.clients[client].contains_many(items, within=within)

    @rule(client=CLIENTS, items=st.lists(ITEMS, max_size=4))
    def last_seen_many(self, client: int, items: list[str]) -> None:
        expected = [self.model.last_seen(item, self.now) for item in items]
        found = self.clients[client].last_seen_many(items)
        assert expected == [period and period.start for period in found]

    @rule(periods=st.floats(0, 2.5) | st.sampled_from([7.0, 50.0]))
    def step(self, periods: float) -> None:
        self.wait(int(self.model.period.total_seconds() * periods))

    @rule(periods=st.integers(1, 5), seconds=st.sampled_from([-1, 0, 0]))
    def step_to_the_end(self, periods: int, seconds: int) -> None:
        """Of a slice, or to the second before."""
        end = (self.model.current(self.now) + periods) * self.model.period
        left = datetime(1970, 1, 1, tzinfo=timezone.utc) + end - self.now
        self.wait(max(0, int(left.total_seconds()) + seconds))

    def wait(self, seconds: int) -> None:
        FilterMachine.now = self.now + timedelta(seconds=seconds)
        self.clock.set(self.now)

    @rule(client=CLIENTS)
    def clear(self, client: int) -> None:
        self.model.written.clear()
        self.clients[client].clear()
        self.wait(1)  # generations are named by the clock, which stands still here


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Clockwork]:
    clock_needed()
    clock = servers.Clockwork(tmp_path_factory.mktemp("clock"))
    with clock.server:
        yield clock


@pytest.mark.parametrize("examples", [15, pytest.param(100, marks=pytest.mark.check)])
def test_every_sequence_answers_as_the_model_does(clock: servers.Clockwork, examples: int) -> None:
    FilterMachine.clock = clock
    run_state_machine_as_test(
        FilterMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        ),
    )
