"""Servers that are killed and come back, or hang; and scripts that get lost while others add."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.demo.localredis import LocalRedis, find_binary
from tests.helpers.account import FULL, NO_ANSWER, PARAMETERS, Account, names
from tests.helpers.killable import Killable
from tests.helpers.making import Make, missing
from tests.helpers.proxy import LossyProxy

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")
KILLS = 30 if FULL else 4


def _binary() -> str:
    binary = find_binary()
    if binary is None:
        missing("A redis-server")
    return str(binary)


@pytest.fixture(params=[PERSISTENT, ()], ids=["kept", "forgotten"])
def killable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killable]:
    """A server that keeps everything when it is killed, and one that forgets everything."""
    with Killable(_binary(), tmp_path, *request.param) as server:
        yield server


only_kept = pytest.mark.parametrize("killable", [PERSISTENT], ids=["kept"], indirect=True)
only_forgotten = pytest.mark.parametrize("killable", [()], ids=["forgotten"], indirect=True)


@contextmanager
def _again_and_again(do: Any) -> Iterator[None]:
    """Does it in a thread of its own, until the context ends."""
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            do()

    with ThreadPoolExecutor(1) as thread:
        repeating = thread.submit(repeat)
        try:
            yield
        finally:
            done.set()
        repeating.result()


def _kill_again_and_again(killable: Killable, account: Account, add: Callable[[int], None]) -> None:
    """While four threads add, each until it is told to stop by ``account.closed``."""
    with ThreadPoolExecutor(4) as threads:
        adding = [threads.submit(add, thread) for thread in range(4)]
        try:
            for _ in range(KILLS):
                before = account.offered.total()
                # (A thread that is done has failed.)
                while account.offered.total() < before + 2000 and not any(
                    job.done() for job in adding
                ):
                    sleep(0.01)
                killable.kill()
                killable.restart()
        finally:
            account.closed = True
        for job in adding:
            job.result()


def _pieces(items: list[str]) -> list[list[str]]:
    """Some singly, most in batches of several calls."""
    return [
        piece
        for start in range(0, len(items), 500)
        for piece in ([items[start]], [items[start + 1]], items[start + 2 : start + 500])
    ]


async def test_scripts_that_are_forgotten_all_the_time_lose_nothing(
    make: Make, url: str, client: redis.Redis, name: str
) -> None:
    seen, account = make(**PARAMETERS), Account()
    client.config_resetstat()
    with _again_and_again(client.script_flush):
        for piece in _pieces(names(50_000 if FULL else 5000)) * 2:
            await account.offer_async(seen, piece)
    assert client.info("commandstats")["cmdstat_eval"]["calls"] >= 10
    with TimeBloom.from_url(url, name, **PARAMETERS) as right:
        account.check(right)


@only_kept
def test_a_server_that_persists_is_killed_again_and_again_and_nothing_is_lost(
    killable: Killable, name: str
) -> None:
    """4 threads add without a pause, and notice nothing: a call under way gets its first answer."""
    account = Account()
    with TimeBloom.from_url(killable.url, name, **PARAMETERS) as seen:

        def add(thread: int) -> None:
            number = 0
            while not account.closed:
                # Each item is offered by two threads.
                items = names(200, f"of {thread // 2} {number}")
                for piece in ([items[0]], [items[1]], items[2:]):
                    account.offer(seen, piece)
                number += 1

        _kill_again_and_again(killable, account, add)
        account.check(seen)


@pytest.mark.parametrize("size", [1, 500], ids=["singly", "batch"])
async def test_a_call_whose_reply_died_with_the_server_gets_an_answer(
    make: Make, killable: Killable, name: str, size: int
) -> None:
    """Its first one, if the server kept it; if not, its items are new, and are added now."""
    items, account = names(size), Account()
    losing = threading.Event()
    with LossyProxy(killable.url, lambda _: losing.is_set()) as proxy:
        seen = make(url=proxy.url, resend=False, **PARAMETERS)
        await make(url=killable.url, name=f"{name}-other").add("a")  # loads the script
        losing.set()
        with pytest.raises(redis.ConnectionError):
            await seen.add_many(items)
        losing.clear()
        killable.kill()
        killable.restart()
        for _ in range(2):
            # The connections that were open get lost first.
            await account.offer_async(seen, items, repeat_on=NO_ANSWER)
    with TimeBloom.from_url(killable.url, name, **PARAMETERS) as right:
        account.check(right)


@only_forgotten
@pytest.mark.parametrize(
    "parameters",
    [{"shards": 1}, {"shards": 3}, {"capacity": 300}],
    ids=["one shard", "shards", "grown"],
)
async def test_what_a_server_forgets_is_new_once_more(
    make: Make, killable: Killable, name: str, parameters: dict[str, Any]
) -> None:
    """Each life of the server has an exact account, with the same filter object."""
    seen = make(url=killable.url, **PARAMETERS | parameters)
    for life in range(KILLS):
        account = Account()
        for piece in _pieces(names(2000)) * 2:
            await account.offer_async(seen, piece)
        with TimeBloom.from_url(killable.url, name, **PARAMETERS | parameters) as right:
            account.check(right)
        if life < KILLS - 1:
            killable.kill()
            killable.restart()


@only_forgotten
def test_an_item_is_told_new_at_most_once_in_each_life_of_the_server(
    killable: Killable, name: str
) -> None:
    """Killed while 4 threads add the same items again and again."""
    account, items = Account(), names(2000)
    with TimeBloom.from_url(killable.url, name, **PARAMETERS) as seen:

        def add(_: int) -> None:
            while not account.closed:
                for piece in _pieces(items):
                    account.offer(seen, piece)

        _kill_again_and_again(killable, account, add)
        account.offer(seen, items)  # what the last life wasn't offered
        account.check_told(again=KILLS * len(items))
        assert max(account.new.values()) <= 1 + KILLS
        assert seen.info().items == len(items)


@pytest.mark.parametrize("size", [1, 500], ids=["singly", "batch"])
@pytest.mark.parametrize("resend", [True, False], ids=["client resends", "caller repeats"])
async def test_a_server_that_hangs_for_longer_than_the_time_out_loses_nothing(
    make: Make, name: str, *, resend: bool, size: int
) -> None:
    """What reached it meanwhile is executed when it goes on, after the client has given up."""
    account = Account()
    with LocalRedis(_binary()) as server:
        assert server.process is not None
        seen = make(url=f"{server.url}?socket_timeout=0.1", resend=resend, **PARAMETERS)
        for hang in range(10 if FULL else 1):
            await account.offer_async(seen, names(size, f"before {hang}"), repeat_on=NO_ANSWER)
            server.process.send_signal(signal.SIGSTOP)
            waking = threading.Timer(0.5, server.process.send_signal, [signal.SIGCONT])
            waking.start()
            for _ in range(2):
                some = names(size, f"while it hangs {hang}")
                await account.offer_async(seen, some, repeat_on=NO_ANSWER)
            waking.join()
        assert account.repeats or resend
        with TimeBloom.from_url(server.url, name, **PARAMETERS) as right:
            account.check(right)
