"""What must hold, under what happens to real fleets. "What must hold" in the design, point by point."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import pytest
import redis

from tbloom import AsyncTimeBloom, TimeBloom
from tests.helpers.account import FULL
from tests.helpers.proxy import LossyProxy, every

SPAWN = multiprocessing.get_context("spawn")


def _claim(url: str, name: str, items: list[str], seed: int) -> list[str]:
    """Adds the items in an order of its own: half one by one, half in batches."""
    random.Random(seed).shuffle(items)
    with TimeBloom.from_url(url, name, capacity=20_000, error_rate=1e-9) as seen:
        half = len(items) // 2
        claimed = [item for item in items[:half] if seen.add(item)]
        for start in range(half, len(items), 100):
            some = items[start : start + 100]
            claimed += [item for item, new in zip(some, seen.add_many(some), strict=True) if new]
    return claimed


def test_of_eight_processes_exactly_one_is_told_new(url: str, name: str) -> None:
    """8 processes add the same items in different orders: True exactly once per item.

    (Error rate 1e-9, so that a false positive doesn't pass for a lost item.)
    """
    items = [f"https://site.example/{i}" for i in range(20_000 if FULL else 5000)]
    with SPAWN.Pool(8) as pool:
        claims = pool.starmap(_claim, [(url, name, items, seed) for seed in range(8)])
    times = Counter(item for claimed in claims for item in claimed)
    assert dict.fromkeys(items, 1) == times


def test_a_lost_reply_loses_no_item(url: str, name: str) -> None:
    """The reply of every 10th call is lost; redis-py's default retry sends the call again."""
    with LossyProxy(url, every(10)) as proxy, redis.Redis(port=proxy.port) as client:
        seen = TimeBloom(client, name)
        assert [True] * 1000 == [seen.add(f"item {i}") for i in range(1000)]
        assert [False] * 1000 == [seen.add(f"item {i}") for i in range(1000)]
        assert [True] * 5000 == seen.add_many(f"other {i}" for i in range(5000))
        assert proxy.lost >= 200


def test_a_lost_reply_loses_no_item_of_many_threads(url: str, name: str) -> None:
    """16 threads share one filter through the same proxy, each offering every item."""
    items = [f"item {i}" for i in range(500)]
    with (
        LossyProxy(url, every(10)) as proxy,
        TimeBloom.from_url(proxy.url, name) as seen,
        ThreadPoolExecutor(16) as threads,
    ):
        answers = [threads.submit(seen.add, item) for _ in range(4) for item in items]
        assert len(items) == sum(answer.result() for answer in answers)
        assert proxy.lost >= 100


async def test_a_lost_reply_loses_no_item_of_many_tasks(url: str, name: str) -> None:
    """16 tasks share one filter through the same proxy, each offering every item."""
    items = [f"item {i}" for i in range(500)]
    at_once = asyncio.Semaphore(16)
    with LossyProxy(url, every(10)) as proxy:
        async with AsyncTimeBloom.from_url(proxy.url, name) as seen:

            async def add(item: str) -> bool:
                async with at_once:
                    return await seen.add(item)

            answers = await asyncio.gather(*(add(item) for _ in range(4) for item in items))
        assert len(items) == sum(answers)
        assert proxy.lost >= 100


@pytest.mark.parametrize("group", [1, 3000])
async def test_after_an_error_a_repeat_gets_the_first_answer(
    make: Any, url: str, group: int
) -> None:
    """The caller never learnt that the items were new, so it is told when it asks again."""
    items = [f"item {i}" for i in range(3000)]
    # Some of the calls of each batch, while the others were answered; the client doesn't resend.
    with LossyProxy(url, {1, 3, 4, 8, 15, 23, 50, 51, 52, 200}.__contains__) as proxy:
        lossy = make(url=proxy.url, resend=False, capacity=10_000)
        for i in range(0, len(items), group):
            some = items[i : i + group]
            answers = None
            while answers is None:
                with suppress(redis.ConnectionError):
                    answers = (
                        [await lossy.add(some[0])] if group == 1 else await lossy.add_many(some)
                    )
            assert [True] * group == answers
        assert proxy.lost >= 3
    assert not any(await make(capacity=10_000).add_many(items))


async def test_after_a_cancellation_a_repeat_gets_the_first_answer(url: str, name: str) -> None:
    async with AsyncTimeBloom.from_url(url, name, capacity=100_000) as seen:
        await seen.add("warm up")
        unanswered = 0
        for i in range(300):
            adding = asyncio.create_task(seen.add(f"item {i}"))
            for _ in range(i % 7):  # gets a little further each time
                await asyncio.sleep(0)
            adding.cancel()
            try:
                told = await adding
            except asyncio.CancelledError:
                unanswered += 1
                told = await seen.add(f"item {i}")
            assert told is True
            assert await seen.add(f"item {i}") is False
        assert unanswered > 0


def test_a_forked_process_does_not_get_its_parents_answers(url: str, name: str) -> None:
    """Parent and child use the same filter object; each call keeps its own token."""
    with TimeBloom.from_url(url, name) as seen:
        assert seen.add("parent's") is True
        read, write = os.pipe()
        if os.fork() == 0:  # the child: never returns to pytest
            answers = [seen.add("parent's"), seen.add("child's"), seen.add("both's")]
            os.write(write, repr(answers).encode())
            os._exit(0)
        os.wait()
        assert b"[False, True, True]" == os.read(read, 100)
        assert [False, False, True] == [seen.add("child's"), seen.add("both's"), seen.add("more")]


def test_a_stray_copy_of_an_answered_call_changes_nothing(
    url: str, client: redis.Redis, name: str
) -> None:
    """A copy that the network held back arrives after the lane's next call was answered."""
    with redis.Redis.from_url(url) as our_own, TimeBloom(our_own, name) as seen:
        sent: list[tuple[Any, ...]] = []
        original = our_own.execute_command

        def record(*words: Any) -> Any:
            sent.append(words)
            return original(*words)

        with patch.object(our_own, "execute_command", record):  # listens in, changes nothing
            assert [True, True] == [seen.add("first"), seen.add("second")]
        first, second = [words for words in sent if words[0] == "EVALSHA"][-2:]
        [key] = [key for key in client.keys(f"*{name}*") if ":lane:" in key]
        before = client.get(key)
        assert 3 == original(*first)[0]
        assert [0, b"1"] == original(*second)
        assert before == client.get(key)


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "commit", "release"])
def test_a_verb_is_one_round_trip(url: str, client: redis.Redis, name: str, verb: str) -> None:
    """Once the client knows the server's clock: one command per call, new or seen, and no other."""
    with TimeBloom.from_url(f"{url}?client_name={name}", name) as seen:
        call = getattr(seen, verb)
        call("warm up")
        with client.monitor() as monitor:
            for i in range(100):
                call(f"item {i}")
            client.echo(name)
            received = list(takewhile(lambda each: "ECHO" != each["command"][:4], monitor.listen()))
        ours = {each["addr"] for each in client.client_list() if each["name"] == name}
    commands = [
        each["command"].split()[0]
        for each in received
        if f"{each['client_address']}:{each['client_port']}" in ours
    ]
    assert ["EVALSHA"] * 100 == commands


@pytest.mark.parametrize("days_off", [-1, 1, 400])
def test_wrong_clocks_share_slices_with_right_ones(url: str, name: str, days_off: int) -> None:
    """Which slice is current is the server's to say, so a client's clock doesn't matter."""
    import time  # noqa: PLC0415 - the module is patched below

    wrong = time.time_ns() + days_off * 86_400 * 10**9
    with TimeBloom.from_url(url, name) as right:
        with patch("tbloom.engine.clock.time.time_ns", lambda: wrong):
            off = TimeBloom.from_url(url, name)
        with off:
            assert [True, False] == [right.add("a"), off.add("a")]
            assert [True, False] == [off.add("b"), right.add("b")]
            assert right.keys() == off.keys()
            assert [0, 2] == [slice.items for slice in right.info().slices][-2:]


@pytest.mark.busy
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("capacity", "error_rate", "grow", "looks"),
    [
        (10_000, 1e-2, True, 100_000),
        pytest.param(50_000, 1e-3, False, 1_000_000, marks=pytest.mark.check),
        pytest.param(50_000, 1e-4, True, 500_000, marks=pytest.mark.check),
    ],
)
def test_the_promised_error_rate_is_kept_at_capacity(
    clockwork: Any, name: str, *, capacity: int, error_rate: float, looks: int, grow: bool
) -> None:
    """7 full slices; of ``looks`` other items at most 1.1 * error_rate are called seen."""
    parameters = {"slices": 7, "capacity": capacity, "error_rate": error_rate, "grow": grow}
    with TimeBloom.from_url(clockwork.server.url, name, **parameters) as seen:
        for day in range(7):
            clockwork.set(f"2019-06-{3 + day:02} 12:00:00")
            fresh = 0
            while fresh < capacity:  # items that are taken for seen don't fill the slice
                some = (f"added {day} {fresh} {i}" for i in range(capacity - fresh))
                fresh += sum(seen.add_many(some))
        info = seen.info()
        assert [capacity] * 7 == [slice.items for slice in info.slices]
        wrong = 0
        for start in range(0, looks, 100_000):
            wrong += sum(seen.contains_many(f"other {start + i}" for i in range(100_000)))
    print(
        f"error_rate {error_rate:g}: measured {wrong / looks:.3g}, estimated {info.error_rate:.3g}"
    )
    assert wrong / looks <= 1.1 * error_rate
    # A filter that may grow keeps half of the rate for its further parts.
    assert info.error_rate == pytest.approx(error_rate / 2 if grow else error_rate, rel=0.02)


def test_every_key_has_a_ttl_at_every_moment(url: str, name: str) -> None:
    """Watched while four threads add over several slices of one second."""
    done = threading.Event()
    ttls: dict[str, list[int]] = {"config": [], "lane": [], "slice": []}

    def watch() -> None:
        with redis.Redis.from_url(url, decode_responses=True) as watcher:
            while not done.is_set():
                for key in watcher.keys(f"*{name}*"):
                    part = key.split(":")[1]
                    ttls[part if part in ttls else "slice"].append(watcher.pttl(key))

    with TimeBloom.from_url(url, name, granularity="1s", slices=2, capacity=10_000) as seen:
        watcher = threading.Thread(target=watch)
        watcher.start()
        with ThreadPoolExecutor(4) as threads:
            answers = [threads.submit(seen.add, f"item {i}") for i in range(8000)]
        done.set()
        watcher.join()
    assert 7990 < sum(answer.result() for answer in answers) <= 8000
    for part, seen_ttls in ttls.items():
        assert len(seen_ttls) > 10, part
        assert -1 not in seen_ttls, part  # -2: gone between the two looks
        assert max(seen_ttls) <= 2000, part


def test_the_parameters_live_as_long_as_the_newest_slice(clockwork: Any, name: str) -> None:
    """Also when the server's clock was set back between two slices."""
    with (
        TimeBloom.from_url(clockwork.server.url, name, slices=3) as seen,
        redis.Redis.from_url(clockwork.server.url) as client,
    ):
        for day in ("2019-06-03", "2019-06-05", "2019-06-04"):
            clockwork.set(f"{day} 12:00:00")
            assert seen.add(f"on {day}") is True
        ends = {key: client.pttl(key) for key in client.keys("*")}
        slices = [ttl for key, ttl in ends.items() if key.split(b":")[1].isdigit()]
        assert len(slices) == 3
        assert ends[f"{{{name}}}:config".encode()] == max(slices)


def test_an_idle_filter_is_gone_after_its_window(url: str, client: redis.Redis, name: str) -> None:
    with TimeBloom.from_url(url, name, granularity="3s", slices=1, capacity=1000) as seen:
        seen.add_many(["a", "b"])
        for _ in range(300):
            if not client.keys(f"*{name}*"):
                break
            threading.Event().wait(0.02)
    assert [] == client.keys(f"*{name}*")


@pytest.mark.parametrize("batch", [False, True])
async def test_scripts_load_themselves_when_the_server_forgot_them(
    make: Any, client: redis.Redis, *, batch: bool
) -> None:
    seen = make(capacity=100_000)
    client.script_flush()
    if batch:  # several calls in one pipeline, all of which meet NOSCRIPT
        assert all(await seen.add_many(map(str, range(2000))))
    else:
        assert await seen.add("1") is True
    client.script_flush()
    assert await seen.contains("1") is True
    client.script_flush()
    await seen.clear()
    assert await seen.contains("1") is False


def test_scripts_may_be_forgotten_in_the_middle_of_batches(
    url: str, client: redis.Redis, name: str
) -> None:
    """SCRIPT FLUSH again and again while 8 threads add batches of several calls."""
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            client.script_flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    items = [f"item {i}" for i in range(2000)]
    with TimeBloom.from_url(url, name, capacity=100_000) as seen, ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(seen.add_many, items) for _ in range(16)]
        new = sum(sum(answer.result()) for answer in answers)
    done.set()
    flusher.join()
    assert len(items) == new


async def test_a_call_carries_fewer_items_the_more_each_costs(
    make: Any, client: redis.Redis
) -> None:
    """What keeps a call within 5 ms: slices and hashes count against what it may carry."""
    for slices, hashes in ((7, 10), (366, 10), (1024, 64)):
        seen = make(
            slices=slices, hashes=hashes, capacity=1000, name=f"size-{slices}-{os.getpid()}"
        )
        client.config_resetstat()
        assert len(await seen.add_many(map(str, range(300)))) == 300
        calls = sum(
            stats["calls"]
            for command, stats in client.info("commandstats").items()
            if command in ("cmdstat_eval", "cmdstat_evalsha")
        )
        assert calls >= 300 * 2 * (slices + hashes) / 6_000
        await seen.clear()
