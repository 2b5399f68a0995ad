"""What fleets meet, with distinct counters: bad networks, servers that forget, refuse or die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom.distinct import DistinctCounter
from tbloom.engine.tree import Tree
from tests.helpers import servers
from tests.helpers.account import NO_ANSWER, names
from tests.helpers.contents import contents, set_maxmemory
from tests.helpers.ids import check
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import Make
from tests.helpers.proxy import LossyProxy


def _noting(make: Any, sent: list[tuple[Any, ...]]) -> Any:
    def noted(*arguments: Any, **more: Any) -> Any:
        call = make(*arguments, **more)
        sent.append(call.words)
        return call

    return noted


@contextmanager
def _losing(url: str, name: str) -> Iterator[tuple[list[bool], DistinctCounter, DistinctCounter]]:
    """Which of the next replies are lost, the last one first; the client that loses them; and another one."""
    loses: list[bool] = []
    with (
        LossyProxy(url, lambda _: bool(loses and loses.pop())) as proxy,
        DistinctCounter.from_url(proxy.url, "one", name, retry_for=0) as counter,
        DistinctCounter.from_url(url, "one", name) as other,
    ):
        yield loses, counter, other


def test_a_stray_copy_of_a_call_changes_nothing(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of adds and discards; the last one gets its first answer."""
    sent: list[tuple[Any, ...]] = []
    with redis.Redis.from_url(url) as own, DistinctCounter.from_url(url, "one", name) as counter:
        counter.add("first")
        exchange = counter._exchange
        monkeypatch.setattr(exchange, "_call", _noting(exchange._call, sent))
        counter.add_many(names(10))
        counter.discard_many(names(5))
        counter.add_many(names(20))
        before = contents(url)
        replies = [own.execute_command(*words) for words in sent]
        assert before == contents(url)
        assert [3, 3] == [reply[0] for reply in replies[:-1]]
        assert [0, b"1" * 5 + b"0" * 5 + b"1" * 10] == replies[-1][:2]
        assert 21 == counter.count()


def test_a_copy_of_a_discard_that_found_nothing_discards_nothing(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    with redis.Redis.from_url(url) as own, DistinctCounter.from_url(url, "one", name) as counter:
        other = DistinctCounter(own, "one", name)
        other.add("first")
        DistinctCounter(own, "two", name).add("known")
        exchange = counter._exchange
        for member in ("known", "never met"):
            with monkeypatch.context() as patched:
                patched.setattr(exchange, "_call", _noting(exchange._call, sent))
                assert not counter.discard(member)
            assert other.add(member)
            for words in sent:
                own.execute_command(*words)
            assert member in other
        assert 3 == counter.count()


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_copy_of_a_call_from_before_a_clear_counts_nothing(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch, *, is_new: bool, mapping: bool
) -> None:
    """Whether it answered True, or only False, so that the server has noted nothing of it."""
    sent: list[tuple[Any, ...]] = []
    with redis.Redis.from_url(url) as own, DistinctCounter.from_url(url, "one", name) as counter:
        counter.add_many(names(20))
        exchange = counter._exchange
        monkeypatch.setattr(exchange, "_call", _noting(exchange._call, sent))
        assert [is_new] * 20 == counter.add_many(names(20, "more" if is_new else "item"))
        other = DistinctCounter(own, "one", name)
        other.clear(mapping=mapping)
        for _ in range(2):
            for words in sent:
                own.execute_command(*words)
            assert 0 == other.count()
        assert [True] * 20 == other.add_many(names(20))
        for words in sent:
            own.execute_command(*words)
        assert 20 == other.count()


def test_an_add_to_a_past_day_without_an_answer_is_answered_when_it_is_repeated(
    url: str, name: str
) -> None:
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    loses: list[bool] = []
    with (
        LossyProxy(url, lambda _: bool(loses and loses.pop())) as proxy,
        DistinctCounter.from_url(
            proxy.url, "one", name, granularity="d", slices=3, retry_for=0
        ) as counter,
    ):
        counter.add("first")
        loses.append(True)
        with pytest.raises(redis.ConnectionError):
            counter.add_many(["a", "b"], at=yesterday)
        for is_new in (True, False):
            assert [is_new] * 2 == counter.add_many(["a", "b"], at=yesterday)
        assert [0, 2, 1] == [one.count for one in counter.info().slices]


@pytest.mark.parametrize("mapping", [False, True])
def test_an_answer_that_is_known_does_not_outlast_a_clear(
    url: str, name: str, *, mapping: bool
) -> None:
    """Of a call that failed after the first answer had been fetched; another client has cleared, and added, since."""
    with _losing(url, name) as (loses, counter, other):
        counter.add("first")
        for lost in ([True], [True, False]):
            loses.extend(lost)
            with pytest.raises(redis.ConnectionError):
                counter.add("a")
        assert not loses
        other.clear(mapping=mapping)
        assert other.add("a")
        assert [False, 1] == [counter.add("a"), other.count()]


@pytest.mark.parametrize("mapping", [False, True])
async def test_a_clear_that_ends_in_an_error_is_done_by_the_next_one(
    make_counter: Make, url: str, name: str, *, mapping: bool
) -> None:
    """Whichever of its calls gets no answer, or is never made: nothing is left, no bucket either."""
    with redis.Redis.from_url(url) as right:
        turn, failed = 0, True
        while failed:
            turn, failed = turn + 1, False
            with DistinctCounter.from_url(url, "one", name) as filling:
                filling.add_many(names(5000))
            with LossyProxy(url, lambda number, turn=turn: number >= turn) as proxy:
                try:
                    await make_counter("one", url=proxy.url, resend=False).clear(mapping=mapping)
                except NO_ANSWER:
                    failed = True
            await make_counter("one").clear(mapping=mapping)
            left = [key for key in right.scan_iter(f"{{{name}}}*") if b":lane:" not in key]
            if not mapping:
                left = [key for key in left if b":chunks:" in key]
            assert [] == left
        assert turn > 2


def test_a_crash_between_forgetting_and_deleting_is_mended_by_the_next_clear(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by kill -9 of the process that clears the mapping; others have begun anew meanwhile."""
    own.flushall()
    one = DistinctCounter(own, "one")
    one.add_many(names(1000))
    before = {*own.scan_iter("*:ids:*")}

    def die(_: Any, tree: Tree) -> list[str]:
        if tree.generation:
            raise SystemExit
        return []

    with monkeypatch.context() as patched:
        patched.setattr("tbloom.distinct.storage.bucket_keys", die)
        with pytest.raises(SystemExit):
            one.clear(mapping=True)
    assert before == {*own.scan_iter("*:ids:*")}
    other = DistinctCounter(own, "one")
    assert all(other.add_many(names(100)))
    assert 100 == other.count() == other.info().members
    other.clear(mapping=True)
    assert [] == [key for key in own.scan_iter() if b":lane:" not in key]


@pytest.mark.parametrize(("size", "held"), [(1, 5000), (300, 4090)])
async def test_without_memory_nothing_is_changed(
    make_counter: Make, server: LocalRedis, name: str, size: int, held: int
) -> None:
    """What is counted is still answered; what the mapping knows, and the counter does not, is refused too. The second time,
    a batch splits buckets and makes a bitmap."""
    counter, knowing = (make_counter(own, url=server.url) for own in ("one", "knowing"))
    everything = names(5000, "before")
    await knowing.add_many(everything)
    await counter.add_many(everything[:held])
    before = contents(server.url)
    set_maxmemory(server, 1)
    try:
        for members in (names(size), names(held + size, "before")[held:]):
            with pytest.raises(OutOfMemoryError):
                await counter.add_many(members)
        with pytest.raises(OutOfMemoryError):
            await make_counter("new", url=server.url).add("item 0")
        assert (held, held) == (await counter.count(), await counter.count_and(knowing))
        assert not any(await counter.add_many(everything[:held]))
        assert before == contents(server.url)
        await knowing.clear()  # needs no memory
        assert 0 == await knowing.count()
    finally:
        set_maxmemory(server, 0)
    for is_new in (True, False):
        assert [is_new] * size == await counter.add_many(names(size))
    assert all(await knowing.add_many(everything))
    check(server.url, name, {"one": [*everything[:held], *names(size)], "knowing": everything})


async def test_a_replica_counts_and_changes_nothing(
    make_counter: Make, server: LocalRedis, binary: str
) -> None:
    """Nor does it count for a counter what the mapping knows of another one."""
    before = names(5000, "before")
    await make_counter("one", url=server.url).add_many(before)
    await make_counter("few", url=server.url).add_many(before[:100])
    with servers.replica(binary, server) as client:
        url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
        one, few = [make_counter(counter, url=url, retry_for=0.1) for counter in ("one", "few")]
        held = contents(url)
        for members in (before[100:101], before[100:400]):
            with pytest.raises(ReadOnlyError):
                await few.add_many(members)
        with pytest.raises(ReadOnlyError):
            await one.clear()
        assert (5000, 100) == (await one.count(), await one.count_and(few))
        assert 5000 == (await one.info()).members
        assert held == contents(url)


def test_a_replica_that_takes_over_has_mapping_and_counters_of_one_moment(
    server: LocalRedis, binary: str, name: str
) -> None:
    """It has missed what came last. The clients, which know of that, go on with it: no id is given twice."""
    one, two = names(5000, "one"), names(5000, "two")
    with (
        servers.replica(binary, server) as replica,
        redis.Redis(port=server.port) as client,
        redis.Redis(port=server.port) as direct,
    ):
        counter, other = DistinctCounter(client, "one", name), DistinctCounter(client, "two", name)
        counter.add_many(one[:3000])
        other.add_many([*two[:100], *one[:200]])
        direct.wait(1, 0)
        replica.replicaof("NO", "ONE")
        assert all(counter.add_many([*one[3000:], *two[:4000]]))
        assert all(other.add_many(two[100:]))
        pool, port = client.connection_pool, replica.connection_pool.connection_kwargs["port"]
        pool.disconnect()
        pool.reset()  # the next connection is made anew
        pool.connection_kwargs["port"] = port
        url = f"redis://127.0.0.1:{port}/0"
        check(url, name, {"one": one[:3000], "two": [*two[:100], *one[:200]]})
        assert [True] * 4900 == other.add_many(two[100:])
        assert [True] * 2000 == counter.add_many(one[3000:])
        assert not any(counter.add_many(one))
        check(url, name, {"one": one, "two": [*two, *one[:200]]})
