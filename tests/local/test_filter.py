"""A filter without a server: its answers, which are those of a filter on Redis."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tbloom import (
    ConfigError,
    FilterFull,
    LocalBloom,
    TimeBloom,
)
from tbloom.local import shard
from tbloom.window import to_ms
from tests.helpers.clock import Clockwork

START = datetime(2019, 6, 3, tzinfo=UTC)
DAY = timedelta(days=1)


def set_day(seen: LocalBloom, day: float) -> None:
    """Lets the clock of a filter stand still, so many days after the start."""
    seen._clock = lambda: to_ms(START + day * DAY)


def opened(path: Path | None = None, day: int = 0, **given: Any) -> Any:
    """A filter whose clock stands at a day."""
    seen = LocalBloom(path=path, **{"slices": 3, "capacity": 300, **given})
    set_day(seen, day)
    return seen


@pytest.fixture(params=["memory", "file"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Makes filters, in memory or in a file, whose clock shows the start."""
    return partial(opened, tmp_path / "filter" if request.param == "file" else None)


def test_the_room_of_slices_that_have_left_is_used_again(local: Callable[..., Any]) -> None:
    """There are never more parts than live slices, and a file stops growing."""
    seen, sizes = local(capacity=1000), []
    for day in range(20):
        set_day(seen, day)
        assert all(seen.add_many(f"{day} {i}" for i in range(900)))
        assert min(day + 1, 3) == len(seen._store.contents.parts)
        sizes.append(seen.path and Path(seen.path).stat().st_size)
    assert len(set(sizes[4:])) == 1


def test_a_slice_keeps_its_parts_in_an_earlier_time(local: Callable[..., Any]) -> None:
    """The list of parts that it has grown lives as long as the newest slice that is in it."""
    seen = local(capacity=50)
    set_day(seen, 1)
    seen.add_many(words("tomorrow", 500))
    set_day(seen, 0)
    seen.add_many(words("today", 500))
    set_day(seen, 3.5)
    assert all(seen.contains_many(words("tomorrow", 500)))


def steps(seed: int, time: str) -> Iterator[tuple[Any, ...]]:
    """A random sequence of verbs; ``time`` goes on, jumps within three days, or stands still."""
    chance, day = random.Random(seed), 0
    pool = [f"item {i}" for i in range(2000)]
    for _ in range(80):
        verb = chance.choice(["contains", "add", "add_many", "add_many", "contains_many", "last_seen_many", "clock", "info"])  # fmt: skip
        limits = chance.choice([(None,), (None,), (1,), (2,)])
        if verb.startswith("add") and limits == (None,):
            # For how many slices items are kept; 4 are more than there are.
            limits = (None, chance.choice([None, 1, 2, 3, 4]))
        if verb in ("add", "contains"):
            yield from ((verb, chance.choice(pool), *limits) for _ in range(5))
        elif verb == "clock" and time != "still":
            day = chance.randrange(3) if time == "jumps" else day + chance.choice([1, 1, 1, 2, 5])
            yield verb, day + 0.5
        elif verb in ("clock", "info"):
            yield ("info",)
        else:  # no batch is so large that Redis is asked in several calls
            limits = () if verb == "last_seen_many" else limits
            yield verb, chance.choices(pool, k=chance.choice([3, 30, 60])), *limits


def play(seen: Any, sequence: Iterable[tuple[Any, ...]], set_time: Callable[[float], Any]) -> Any:
    """The filter's answers to the sequence, or its errors' texts."""
    for verb, *arguments in sequence:
        if verb == "clock":
            set_time(*arguments)
            yield None
        elif verb == "info":
            slices = seen.info().slices
            # Redis' TTLs may be a millisecond off.
            expires = [one.expires and round(one.expires.timestamp()) for one in slices]
            figures = attrgetter("label", "items", "parts", "fill_ratio", "error_rate")
            yield expires, [*map(figures, slices)]
        else:
            try:
                yield getattr(seen, verb)(*arguments)
            except (ConfigError, FilterFull) as error:
                yield str(error)


@pytest.mark.parametrize(
    "case",
    [
        ("goes on", {"capacity": 200, "error_rate": 0.3, "shards": 3}),
        *(
            pytest.param(case, marks=pytest.mark.check)
            for case in (
                ("jumps", {"bits": 2000, "hashes": 30, "error_rate": 0.1}),
                ("goes on", {"capacity": None, "error_rate": 0.3}),
                ("still", {"capacity": 300, "error_rate": 0.5, "grow": False}),
                ("goes on", {"capacity": 100, "error_rate": 0.3}),
                ("goes on", {"bits": 700, "hashes": 2, "error_rate": 0.9}),
                ("jumps", {"capacity": 100, "error_rate": 0.3}),
            )
        ),
    ],
    ids=str,
)
def test_answers_are_those_of_redis(
    case: tuple[str, dict[str, Any]], tmp_path: Path, clockwork: Clockwork
) -> None:
    """In memory and in a file: false positives, growth, slices that change, and what a full slice takes."""
    (time, parameters), name = case, "filter"
    given = {"name": name, "capacity": None, **parameters}
    memory, file = (opened(path, **given) for path in (None, tmp_path / "filter"))
    sequence = [*steps(4, time)]
    with TimeBloom.from_url(clockwork.server.url, name, slices=3, **parameters) as theirs:

        def set_time(day: float) -> None:
            """A server deletes what has expired by and by, or as it is met; before the clock is set back, all of it."""
            clockwork.set(START + day * DAY)
            [*theirs.client.scan_iter()]

        theirs.keys()  # learns the server's time
        expected = play(theirs, sequence, set_time)
        ours = (play(seen, sequence, partial(set_day, seen)) for seen in (memory, file))
        for step, other, *own in zip(sequence, expected, *ours, strict=True):
            assert own == [other] * 2, step[:1]


def test_a_batch_that_is_interrupted_loses_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes while bits are set: items whose bits are set already are new to the next call."""
    with LocalBloom(capacity=1000) as seen:
        seen.add("before")
        add, items = shard.Part.add, [str(i) for i in range(20)]

        def interrupted(part: shard.Part, place: Any) -> None:
            add(part, place)
            if part.items == 10:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(shard.Part, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                seen.add_many(items)
        assert [True] * 20 == seen.add_many(items)
        assert [False] * 20 == seen.add_many(items)


def words(machine: str, count: int) -> list[str]:
    return [f"{machine} {i}" for i in range(count)]
