"""A filter without a server: its answers, which are those of a filter on Redis."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tbloom import AsyncLocalBloom, ConfigError, FilterFull, LocalBloom, TimeBloom
from tbloom.local import shard
from tbloom.window import to_ms
from tests.helpers import servers

START = datetime(2019, 6, 3, tzinfo=timezone.utc)
DAY = timedelta(days=1)


def set_clock(seen: LocalBloom | AsyncLocalBloom, now: datetime) -> None:
    """Lets the clock of a filter stand still."""
    seen._protocol.clock = lambda: to_ms(now)


@pytest.fixture(params=["memory", "file"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Makes filters, in memory or in a file, whose clock shows the start."""

    def local(kind: Any = LocalBloom, **parameters: Any) -> Any:
        seen = kind(path=tmp_path / "filter" if request.param == "file" else None, **parameters)
        set_clock(seen, START)
        return seen

    return local


def test_the_room_of_slices_that_have_left_is_used_again(local: Callable[..., Any]) -> None:
    """There are never more parts than live slices, and a file stops growing."""
    seen, sizes = local(slices=3, capacity=1000), []
    for day in range(20):
        set_clock(seen, START + day * DAY)
        assert all(seen.add_many(f"{day} {i}" for i in range(900)))
        assert min(day + 1, 3) == len(seen._protocol.store.contents.parts)
        sizes.append(seen.path and Path(seen.path).stat().st_size)
    assert len(set(sizes[4:])) == 1


async def test_other_tasks_run_while_one_adds(local: Callable[..., Any]) -> None:
    async with local(AsyncLocalBloom, capacity=50_000) as seen:
        adding = asyncio.create_task(seen.add_many(str(i) for i in range(20_000)))
        ticks = 0
        while not adding.done():
            ticks += 1
            await asyncio.sleep(0)
        assert all(await adding)
        assert ticks > 5
        assert all(await seen.contains_many(str(i) for i in range(20_000)))
        assert [True, True] == [await seen.add("a"), await seen.contains("a")]
        assert "20190603" == (await seen.last_seen("a")).label
        assert 20_001 == (await seen.info()).items


@pytest.mark.parametrize("verb", ["add", "add_many"])
async def test_a_cancelled_call_s_items_are_new_to_the_next(
    local: Callable[..., Any], verb: str
) -> None:
    """The call ends all the same: what it added without an answer is new to the next one, as on Redis."""
    seen = local(AsyncLocalBloom, capacity=50_000)
    items = [str(i) for i in range(20_000)] if verb == "add_many" else ["0"]
    adding = asyncio.create_task(getattr(seen, verb)(items if verb == "add_many" else items[0]))
    await asyncio.sleep(0)
    adding.cancel()
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert len(items) == (await seen.info()).items
    assert all(await seen.add_many(items))
    assert not any(await seen.add_many(items))


def test_a_large_batch_that_ends_in_an_error_loses_no_answer(
    local: Callable[..., Any],
) -> None:
    seen = local(capacity=12_000, grow=False)
    items = [f"item {i}" for i in range(13_000)]
    with pytest.raises(FilterFull):
        seen.add_many(items)
    left = (items[start : start + 1000] for start in range(0, 12_000, 1000))
    assert all(all(seen.add_many(some)) for some in left)
    assert not any(seen.add_many(items[:12_000]))


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
            yield verb, START + timedelta(days=day, hours=12)
        elif verb in ("clock", "info"):
            yield ("info",)
        else:  # no batch is so large that Redis is asked in several calls
            limits = () if verb == "last_seen_many" else limits
            yield verb, chance.choices(pool, k=chance.choice([3, 30, 60])), *limits


def play(
    seen: Any, sequence: Iterable[tuple[Any, ...]], set_time: Callable[[datetime], Any]
) -> Any:
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
        ("goes on", {"capacity": 100, "error_rate": 0.3}),
        ("goes on", {"capacity": 200, "error_rate": 0.3, "shards": 3}),
        ("goes on", {"bits": 700, "hashes": 2, "error_rate": 0.9}),
        ("jumps", {"bits": 2000, "hashes": 30, "error_rate": 0.1}),
        ("jumps", {"capacity": 100, "error_rate": 0.3}),
        ("goes on", {"capacity": None, "error_rate": 0.3}),
        ("still", {"capacity": 300, "error_rate": 0.5, "grow": False}),
    ],
    ids=str,
)
def test_answers_are_those_of_redis(
    case: tuple[str, dict[str, Any]],
    local: Callable[..., Any],
    clockwork: servers.Clockwork,
) -> None:
    """False positives, growth, slices that change, and what a full slice takes."""
    (time, parameters), name = case, "filter"
    ours, sequence = local(name=name, slices=3, **parameters), [*steps(1, time)]
    with TimeBloom.from_url(clockwork.server.url, name, slices=3, **parameters) as theirs:
        theirs.keys()  # learns the server's time
        expected = play(theirs, sequence, clockwork.set)
        for step, other, own in zip(sequence, expected, play(ours, sequence, partial(set_clock, ours)), strict=True):  # fmt: skip
            assert other == own, step[:1]


WITHOUT_LOCKS = """
import os, sys
sys.modules["fcntl"] = None
del os.fork, os.register_at_fork
from tbloom import ConfigError, LocalBloom
seen = LocalBloom(capacity=1000)
assert seen.add_many(["a", "b"]) == [True, True] and not seen.add("a") and seen.info().items == 2
try:
    LocalBloom(path="filter")
except ConfigError as error:
    assert "file locks" in str(error)
    print("refused")
"""


def test_where_there_is_no_fcntl(tmp_path: Path) -> None:
    """As on Windows: a filter in memory works, and a path is refused."""
    command = [sys.executable, "-c", WITHOUT_LOCKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "refused\n"
    assert [] == list(tmp_path.iterdir())


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
