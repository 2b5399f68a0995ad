"""Exact filters against a dict: any sequence of verbs by several clients, while the clock goes on."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tbloom.exact import ExactFilter, exchange

START = datetime(2019, 6, 3, tzinfo=timezone.utc)
ITEMS = 400
VERBS = ["add", "add_many", "discard", "look", "wait", "clear", "join"]
TTLS = [1, 2, 5, 30, 300, 3000, 86_400, 10_000_000]


class Model:
    """What a filter must answer."""

    def __init__(self) -> None:
        self.now = 0
        self.expires: dict[str, int] = {}

    def holds(self, item: str) -> bool:
        return self.expires.get(item, 0) > self.now

    def discard(self, item: str) -> bool:
        was_held = self.holds(item)
        self.expires.pop(item, None)
        return was_held

    def add(self, item: str, ttl: int = 60) -> bool:
        if self.holds(item):
            return False
        self.expires[item] = self.now + ttl
        return True


@pytest.mark.parametrize(
    ("shards", "steps"), [(1, 200), (3, 200), pytest.param(3, 1500, marks=pytest.mark.check)]
)
def test_every_sequence_of_verbs_is_answered_as_by_a_dict(
    clockwork: Any, name: str, monkeypatch: pytest.MonkeyPatch, shards: int, steps: int
) -> None:
    """Buckets hold three items here, so that they are split all the time."""
    monkeypatch.setattr(exchange, "_MAX_ENTRIES", 3)
    rng, model, url = random.Random(steps), Model(), clockwork.server.url

    def client() -> ExactFilter:
        return ExactFilter.from_url(url, name, ttl=60, shards=shards)

    clients = [client() for _ in range(3)]
    for step in range(steps):
        seen, ttl = rng.choice(clients), rng.choice(TTLS)
        items = [f"{rng.randrange(ITEMS)}" for _ in range(rng.choice([1, 3, 30, 200]))]
        match rng.choices(VERBS, [40, 15, 10, 15, 9, 1, 2])[0]:
            case "add":
                given = () if ttl == TTLS[-1] else (ttl,)
                assert model.add(items[0], *given) is seen.add(items[0], *given), step
            case "add_many":
                assert [model.add(item, ttl) for item in items] == seen.add_many(items, ttl), step
            case "discard":
                assert [*map(model.discard, items)] == seen.discard_many(items), step
            case "look":
                assert [*map(model.holds, items)] == seen.contains_many(items), step
                assert sum(map(model.holds, model.expires)) == seen.info().items
            case "wait":
                model.now += rng.choice([1, 1, 2, 10, 100, 2000])
                clockwork.set(START + timedelta(seconds=model.now))
            case "clear":
                model.expires.clear()
                seen.clear()
            case "join":
                place = rng.randrange(3)
                clients[place].close()
                clients[place] = client()
    everything = [f"{i}" for i in range(ITEMS)]
    assert [*map(model.holds, everything)] == client().contains_many(everything)
