"""A filter without a server: its answers, which are those of a filter on Redis."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tbloom import AsyncLocalBloom, ConfigError, FilterFull, LocalBloom, TBloomError, TimeBloom
from tbloom.bloom import hasher
from tbloom.bloom.hasher import digest, digests_of
from tbloom.engine import pending
from tbloom.local import protocol, shard
from tbloom.local.protocol import choose_probes
from tbloom.window import to_ms
from tests.helpers import servers
from tests.helpers.forks import in_child, needs_fork

START = datetime(2019, 6, 3, tzinfo=timezone.utc)
DAY = timedelta(days=1)


class Clock:
    """The clock of local filters."""

    def __init__(self) -> None:
        self.now = START

    def set(self, now: datetime) -> None:
        self.now = now

    def give(self, seen: LocalBloom | AsyncLocalBloom) -> Any:
        seen._protocol.clock = lambda: to_ms(self.now)
        return seen


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file"])
def local(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Callable[..., LocalBloom]:
    """Makes filters, in memory or in a file, with the test's clock."""

    def local(**parameters: Any) -> LocalBloom:
        path = tmp_path / "filter" if request.param == "file" else None
        seen: LocalBloom = clock.give(LocalBloom(path=path, **parameters))
        return seen

    return local


@pytest.fixture(params=["numpy", "plain"])
def numpy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy, and without."""
    if request.param == "plain":
        monkeypatch.setattr(protocol, "choose_probes", lambda: shard.PlainProbes)


@pytest.mark.parametrize("hashes", [1, 2, 14, 16, 17, 40])
def test_its_blocks_are_those_of_docs(hashes: int) -> None:
    """Probed for one by one and together, an item has the block and the columns of ``bloom.hasher``, and no other bits."""
    for make in (shard.PlainProbes, choose_probes()):
        seen = LocalBloom(slices=1, capacity=1000, hashes=hashes)
        seen._protocol._probes = make
        items = [f"item {i}" for i in range(20)]
        seen.add_many(items)
        assert all(seen.contains_many(items))
        own, size = seen._protocol._shards[0, 0].current, seen._protocol._shards[0, 0].size
        assert own is not None
        expected = bytearray(own.buffer.nbytes)
        expected[:8] = len(items).to_bytes(8, sys.byteorder)
        for key in map(digest, items):
            [start] = hasher.block_starts(key, [(size.blocks, 32 * hashes)])
            for row, column in enumerate(
                hasher.columns_of(key, hasher.digests_for(hashes))[:hashes]
            ):
                expected[start + 32 * row + (column >> 3)] |= 128 >> (column & 7)
        assert expected == own.buffer


def test_slices_that_leave_free_their_memory(
    local: Callable[..., LocalBloom], clock: Clock
) -> None:
    """There are never more parts than live slices."""
    seen = local(slices=3, capacity=1000)
    for day in range(20):
        clock.now = START + day * DAY
        assert all(seen.add_many(f"{day} {i}" for i in range(900)))
        assert min(day + 1, 3) == len(seen._protocol.store.contents.parts)


async def test_other_tasks_run_while_one_adds(clock: Clock, tmp_path: Path) -> None:
    async with clock.give(AsyncLocalBloom(capacity=50_000, path=tmp_path / "filter")) as seen:
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
        assert 7 == len(await seen.keys())


@pytest.mark.parametrize("verb", ["add", "add_many"])
async def test_a_cancelled_call_s_items_are_new_to_the_next(
    local: Callable[..., LocalBloom], clock: Clock, verb: str
) -> None:
    """The call ends all the same: what it added without an answer is new to the next one, as on Redis."""
    seen = clock.give(AsyncLocalBloom(path=local(capacity=50_000).path, capacity=50_000))
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


async def test_a_cancelled_call_that_fails_is_cancelled(local: Callable[..., LocalBloom]) -> None:
    """What it added before the error is new to the next one."""
    seen = AsyncLocalBloom(path=local(capacity=10, grow=False).path, capacity=10, grow=False)
    adding = asyncio.create_task(seen.add_many(map(str, range(12))))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert all(await seen.add_many(map(str, range(10))))


def test_pending_answers_do_not_slow_others(clock: Clock) -> None:
    """They are kept as long as on Redis; adds of other items still need one batch only."""
    seen = clock.give(LocalBloom(capacity=50_000))

    def unheard(name: str) -> None:
        digests = digests_of([f"{name} {i}" for i in range(100)])
        seen._protocol.keep_pending(seen._protocol.add_many(digests, 7))

    seen.add("first")
    unheard("a")
    assert "other" not in seen
    assert seen._protocol.at_hand(digest("other")) is not None
    assert seen.add("a 0")
    clock.now += timedelta(days=8)
    unheard("b")
    assert seen.add("a 1")
    assert not seen.add("a 1")
    assert seen.add("b 1")


def test_a_large_batch_that_ends_in_an_error_loses_no_answer(
    local: Callable[..., LocalBloom],
) -> None:
    seen = local(capacity=120_000, grow=False)
    items = [f"item {i}" for i in range(130_000)]
    with pytest.raises(FilterFull):
        seen.add_many(items)
    left = (items[start : start + 10_000] for start in range(0, 120_000, 10_000))
    assert all(all(seen.add_many(some)) for some in left)
    assert not any(seen.add_many(items[:120_000]))


def test_more_pending_answers_than_can_be_kept_are_given_before_others(
    local: Callable[..., LocalBloom], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MAX_NEW", 10)
    seen = local(capacity=10, grow=False)
    with pytest.raises(FilterFull):
        seen.add_many(map(str, range(12)))
    with pytest.raises(TBloomError, match="wait to be asked for again"):
        seen.add("other")
    assert seen.add("0")
    with pytest.raises(FilterFull):
        seen.add("other")


@needs_fork
def test_a_forked_child_has_its_own_pending_answers() -> None:
    """The filter is in the memory of each; a thread of the parent may be using the answers."""
    seen = LocalBloom(capacity=10, grow=False)
    with pytest.raises(FilterFull):
        seen.add_many(map(str, range(12)))
    with seen._protocol.pending_answers._lock:
        assert in_child(lambda: [seen.add("0"), seen.add("0")]) == [True, False]
    assert seen.add("0")


def test_pending_answers_do_not_outlive_a_clear_within_their_call(
    local: Callable[..., LocalBloom], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items added before it are gone; those added after it are new to the next call, once."""
    seen = local(capacity=100_000)
    items = [str(i) for i in range(20_000)]
    locked, batches = seen._protocol.store.locked, itertools.count()

    def locking(**how: bool) -> Any:
        batch = next(batches)
        if batch == 2:
            seen.clear()
        elif batch == 5:
            raise KeyboardInterrupt
        return locked(**how)

    with monkeypatch.context() as patch:
        patch.setattr(seen._protocol.store, "locked", locking)
        with pytest.raises(KeyboardInterrupt):
            seen.add_many(items)
    assert 0 < seen.info().items < len(items)
    assert all(seen.add_many(items))
    assert not any(seen.add_many(items))


def test_promised_error_rate(clock: Clock) -> None:
    """Over a full window, half of it in slices that grew, at most error_rate of new items are called seen."""
    rate = 0.01
    seen = clock.give(LocalBloom(slices=5, capacity=4000, error_rate=rate))
    for day in range(5):
        clock.now = START + day * DAY
        count = 4000 if day < 3 else 12_000
        seen.add_many(f"{day} {i}" for i in range(count))
    others = [f"other {i}" for i in range(200_000)]
    called_seen = sum(seen.contains_many(others))
    assert called_seen / len(others) <= rate * 1.1
    assert seen.info().error_rate <= rate * 1.1


def steps(seed: int, time: str) -> Iterator[tuple[Any, ...]]:
    """A random sequence of verbs; ``time`` goes on, jumps within three days, or stands still."""
    chance, day = random.Random(seed), 0
    pool = [f"item {i}" for i in range(2000)]
    for _ in range(80):
        verb = chance.choice(["contains", "add", "add_many", "add_many", "contains_many", "clock", "info"])  # fmt: skip
        within = chance.choice([None, None, 1, 2])
        if verb in ("add", "contains"):
            yield from ((verb, chance.choice(pool), within) for _ in range(5))
        elif verb == "clock" and time != "still":
            day = chance.randrange(3) if time == "jumps" else day + chance.choice([1, 1, 1, 2, 5])
            yield verb, START + timedelta(days=day, hours=12)
        elif verb in ("clock", "info"):
            yield ("info",)
        else:  # no batch is so large that Redis is asked in several calls
            yield verb, chance.choices(pool, k=chance.choice([3, 30, 60])), within


def play(
    seen: Any, sequence: Iterable[tuple[Any, ...]], set_clock: Callable[[datetime], Any]
) -> Any:
    """The filter's answers to the sequence."""
    for verb, *arguments in sequence:
        if verb == "clock":
            set_clock(*arguments)
            yield seen.keys()
        elif verb == "info":
            yield [
                (one.label, one.items, one.parts, _second(one.expires), one.fill_ratio, one.error_rate)
                for one in seen.info().slices
            ]  # fmt: skip
        else:
            yield answer(getattr(seen, verb), *arguments)


def _second(at: datetime | None) -> int | None:
    """Redis' TTLs may be a millisecond off."""
    return at and round(at.timestamp())


def answer(verb: Callable[..., Any], *arguments: Any) -> Any:
    """What the verb returns, or the text of its FilterFull."""
    try:
        return verb(*arguments)
    except FilterFull as error:
        return str(error)


CASES = pytest.mark.parametrize(
    "case",
    [
        ("goes on", {"capacity": 100, "error_rate": 0.3}),
        ("goes on", {"capacity": 200, "error_rate": 0.3, "shards": 3}),
        ("goes on", {"bits": 700, "hashes": 2, "error_rate": 0.9}),
        ("jumps", {"bits": 2000, "hashes": 30, "error_rate": 0.1}),
        ("jumps", {"capacity": 100, "error_rate": 0.3}),
        ("still", {"capacity": 300, "error_rate": 0.5, "grow": False}),
    ],
    ids=str,
)


@CASES
def test_answers_are_those_of_redis(
    case: tuple[str, dict[str, Any]], clockwork: servers.Clockwork, clock: Clock
) -> None:
    """False positives, growth, slices that change, and what a full slice takes, are the same for items that are added
    one after another."""
    (time, parameters), name = case, "filter"
    ours = clock.give(LocalBloom(name=name, slices=3, **parameters))
    sequence = [
        one
        for verb, *rest in steps(1, time)
        for one in ([("add", item, rest[1]) for item in rest[0]] if verb == "add_many" else [(verb, *rest)])
    ]  # fmt: skip
    with TimeBloom.from_url(clockwork.server.url, name, slices=3, **parameters) as theirs:
        theirs.keys()  # learns the server's time
        expected = play(theirs, sequence, clockwork.set)
        for step, other, own in zip(sequence, expected, play(ours, sequence, clock.set), strict=True):  # fmt: skip
            assert other == own, step[:1]


@CASES
def test_stores_and_probes_answer_alike(
    case: tuple[str, dict[str, Any]], clock: Clock, tmp_path: Path
) -> None:
    """In memory and in a file, with numpy and without."""
    time, parameters = case
    ours = [
        clock.give(LocalBloom(path=path, slices=3, **parameters))
        for path in (None, None, tmp_path / "filter")
    ]
    ours[0]._protocol._probes = shard.PlainProbes
    sequence = [*steps(1, time)]
    answers = zip(*(play(own, sequence, clock.set) for own in ours), strict=True)
    for step, (one, *others) in zip(sequence, answers, strict=True):
        assert [one, one] == others, step[:1]


@pytest.mark.usefixtures("numpy")
def test_a_large_batch_grows_the_slice(local: Callable[..., LocalBloom]) -> None:
    """In several batches and parts, each item is new once, and the error rate holds."""
    seen = local(capacity=500, shards=2, error_rate=0.01)
    items = [f"item {i}" for i in range(8000)]
    new = seen.add_many([*items, *items])
    assert not any(new[8000:])
    assert 0.99 * 8000 < sum(new) == seen.info().items
    assert all(seen.contains_many(items))
    assert sum(seen.contains_many([f"other {i}" for i in range(20_000)])) <= 0.011 * 20_000
    assert seen.info().slices[-1].parts >= 4


def test_info_of_before(local: Callable[..., LocalBloom], monkeypatch: pytest.MonkeyPatch) -> None:
    """With an earlier answer, only slices that changed are counted."""
    seen = local(capacity=1000)
    seen.add("a")
    before = seen.info()
    with monkeypatch.context() as patch:
        patch.setattr(shard.Part, "bits", None)  # a call would fail
        assert before == seen.info(before)
    seen.add("b")
    assert 2 == seen.info(before).items


WITHOUT = """
import json, sys
sys.modules["numpy"] = None
from tbloom import LocalBloom
from tbloom.local.shard import PlainProbes
seen = LocalBloom(capacity=300, error_rate=0.3)
assert seen._protocol._probes is PlainProbes
seen._protocol.clock = lambda: 1_559_520_000_000
print(json.dumps([seen.add_many(some) for some in json.load(sys.stdin)]))
"""
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


def run(script: str, folder: Path, text: str = "") -> str:
    """The output of a script in another process."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=folder)  # fmt: skip
    return done.stdout


def test_without_numpy(clock: Clock, tmp_path: Path) -> None:
    """A process that does not have it answers the same."""
    chance = random.Random(5)
    batches = [[f"item {chance.randrange(3000)}" for _ in range(400)] for _ in range(5)] + [["one"]]
    seen = clock.give(LocalBloom(capacity=300, error_rate=0.3))
    answers = [seen.add_many(some) for some in batches]
    assert answers == json.loads(run(WITHOUT, tmp_path, json.dumps(batches)))


def test_where_there_is_no_fcntl(tmp_path: Path) -> None:
    """As on Windows: a filter in memory works, and a path is refused."""
    assert run(WITHOUT_LOCKS, tmp_path) == "refused\n"
    assert [] == list(tmp_path.iterdir())


def test_a_filter_in_memory_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="give it a path"):
        pickle.dumps(LocalBloom(capacity=1000))


def test_a_batch_that_is_interrupted_loses_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes while bits are set: items whose bits are set already are new to the next call."""
    with LocalBloom(capacity=1000) as seen:
        seen.add("before")
        probes = seen._protocol._probes

        class Interrupted:
            def __init__(self, *arguments: Any) -> None:
                self._probes = probes(*arguments)
                self.new = self._probes.new

            def add(self, count: int, current: Any) -> None:
                self._probes.add(count // 2, current)
                raise KeyboardInterrupt

        monkeypatch.setattr(seen._protocol, "_probes", Interrupted)
        items = [str(i) for i in range(20)]
        with pytest.raises(KeyboardInterrupt):
            seen.add_many(items)
        monkeypatch.undo()
        assert [True] * 20 == seen.add_many(items)
        assert [False] * 20 == seen.add_many(items)


@pytest.mark.parametrize("vectors", [False, True])
def test_an_item_leaves_after_the_slices_that_it_is_kept_for(
    local: Callable[..., LocalBloom],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    vectors: bool,
) -> None:
    """Also where its slice grows for it; ``last_seen`` and ``info`` have it in the slice that it leaves with."""
    monkeypatch.setattr(protocol, "_MIN_VECTOR", 1 if vectors else 10_000)
    seen = local(slices=4, capacity=50, error_rate=1e-6)
    items = {
        keep: [f"{keep} {i}" for i in range(10 if keep == 4 else 120)] for keep in (1, 2, 3, 4)
    }
    for keep, some in items.items():
        assert seen.add(some[0], keep=keep)
        assert seen.add_many(some, keep=keep) == [False] + [True] * (len(some) - 1)
        assert not any(seen.add_many(some))
    assert [120, 120, 120, 10] == [slice.items for slice in seen.info().slices]
    assert START - 2 * DAY == getattr(seen.last_seen("2 0"), "start", None)
    for keep in (1, 2, 3, 4):
        assert all(seen.contains_many(items[keep]))
        clock.now = START + keep * DAY
        assert not any(seen.contains_many(items[keep]))
    for wrong in (0, 5, True, "2"):
        with pytest.raises(
            ConfigError, match=r"^keep: expected a whole number of slices from 1 to 4"
        ):
            seen.add("a", keep=wrong)
    with pytest.raises(ConfigError, match=r"^within: expected left out"):
        seen.add_many(["a"], within=2, keep=2)


def test_without_a_capacity_a_slice_is_made_for_what_the_last_one_held(
    local: Callable[..., LocalBloom], clock: Clock
) -> None:
    seen = local()
    capacities = []
    for day, items in enumerate((25_000, 25_000, 2000, 2000)):
        clock.now = START + day * DAY
        assert sum(seen.add_many(f"{day} {i}" for i in range(items))) >= items - 5
        capacities.append(seen.info().slices[-1].capacity)
    first, second, third, fourth = capacities
    assert first == 10_000 + 40_000
    assert 25_000 <= second <= 26_500
    assert second == third
    assert 2000 <= fourth <= 2200
    assert all(seen.contains_many(f"{day} {i}" for day in range(4) for i in range(2000)))
