"""Everything at once; in the end the account of each store is exact: offered = new + seen, none lost, none twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import redis

from tbloom import Claim
from tests.helpers.account import FULL, NO_ANSWER, PARAMETERS, Account, Hasty, insist, new_seed
from tests.helpers.killable import Killable, again_and_again
from tests.helpers.localredis import find_binary
from tests.helpers.making import missing
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, STORES, Store

SPAWN = multiprocessing.get_context("spawn")
#: In full 10 minutes. The server is cleared before every other round, and reconfigured before the others.
ROUNDS, SECONDS = (30, 20.0) if FULL else (3, 3.0)
#: So small that the filter grows.
CAPACITIES = (1000, 3000)
TIMEOUT, LATE = "?socket_timeout=0.2", 0.4
#: Longer (s) than a server is away on a busy machine.
RETRY_FOR = 60.0
#: New items a second, and how many of them are offered at the same time.
RATE, AT_ONCE = 200, 400

Answers = tuple[Counter[str], Counter[str], Counter[str]]


def _parameters(store: Store, capacity: int) -> dict[str, Any]:
    return {**store.sharded, **({**PARAMETERS, "capacity": capacity} if store is BLOOM else {})}


def _open(store: Store, url: str, name: str, capacity: int, **options: Any) -> Any:
    return store.open(url, f"{name}-{store}", **_parameters(store, capacity), **options)


def _offers(seed: int, began: float) -> Iterator[list[str]]:
    """Until the round ends: about the same items for all who ask at about the same time."""
    rng = random.Random(seed)
    while (passed := monotonic() - began) < SECONDS:
        first = int(RATE * passed)
        numbers = rng.sample(range(first, first + AT_ONCE), rng.choice((1, 1, 2, 20, 300)))
        yield [f"item {n}" for n in numbers]


def _add(seen: Any, account: Account, offers: Iterator[list[str]]) -> None:
    for items in offers:
        account.offer(seen, items, repeat_on=NO_ANSWER)


async def _add_from_tasks(
    open_one: Callable[..., Any], account: Account, seed: int, began: float
) -> None:
    async def add(seen: Any, offers: Iterator[list[str]]) -> None:
        for items in offers:
            await account.offer_async(seen, items, repeat_on=(*NO_ANSWER, asyncio.TimeoutError))

    async with open_one(driver="async", retry_for=0) as seen:
        rng = random.Random(seed)
        hasty = Hasty(seen, lambda: rng.choice((0.001, 0.01, *[None] * 8)))
        await asyncio.gather(*(add(hasty, _offers(seed + i, began)) for i in range(6)))
        await add(seen, filter(None, [[*account.offered]]))  # what is pending


def _claim(seen: Any, account: Account, seed: int, began: float) -> None:
    """Does the items that it can claim, but for some that it releases."""
    rng = random.Random(seed)
    for item, *_ in _offers(seed, began):
        claimed = item.replace("item", "claimed")
        match insist(seen.claim, claimed):
            case Claim.NEW if rng.random() < 0.2:
                insist(seen.release, claimed)
            case Claim.NEW:
                insist(seen.commit, claimed)
                account.note([claimed], [True])
            case Claim.SEEN:
                account.note([claimed], [False])


def _crowd(url: str, name: str, capacity: int, seed: int) -> list[Answers]:
    """One process: of each store an object that threads share, and one that tasks share."""
    began, accounts = monotonic(), [Account() for _ in STORES]
    with ExitStack() as stack, ThreadPoolExecutor(20) as threads:
        jobs, shared = [], []
        for store, account in zip(STORES, accounts, strict=True):
            open_one = partial(_open, store, url + TIMEOUT, name, capacity)
            seen = stack.enter_context(open_one(retry_for=RETRY_FOR))
            shared.append((seen, account))
            tasks = _add_from_tasks(open_one, account, seed + 20, began)
            jobs.append(threads.submit(asyncio.run, tasks))
            offers = [_offers(seed + i, began) for i in range(10, 13)]
            jobs += [threads.submit(_add, seen, account, some) for some in offers]
            if store is BLOOM:
                jobs += [threads.submit(_claim, seen, account, seed + i, began) for i in range(2)]
        for job in jobs:
            job.result()
        for seen, account in shared:
            _add(seen, account, filter(None, [[*account.offered]]))  # what is pending
    return [(account.offered, account.new, account.seen) for account in accounts]


def _disturb(server: Killable, rng: random.Random) -> None:
    """Waits a moment, and then harms all clients."""
    sleep(rng.uniform(0.05, 0.5))
    with redis.Redis.from_url(server.url) as admin:
        match rng.randrange(8):
            case 0:
                server.kill()
                server.restart()
            case 1 | 2 | 3:
                admin.script_flush()
            case _:
                admin.client_kill_filter(_type="normal", skipme=True)


def _begin(number: int, url: str, name: str, capacity: int) -> None:
    """Clears the stores, or gives the filter another capacity."""
    for store in STORES:
        with _open(store, url, name, capacity, retry_for=RETRY_FOR) as seen:
            if store is BLOOM and number % 2:
                seen.reconfigure()
            elif number % 2 == 0:
                seen.clear(**({"mapping": True} if store is DISTINCT else {}))


def _check(store: Store, account: Account, url: str, name: str, capacity: int) -> None:
    """Does what nobody has claimed, or kept; then the account is exact."""
    if store is BLOOM:
        items = [f"claimed {n}" for n in range(int(RATE * SECONDS) + AT_ONCE)]
        with _open(store, url, name, capacity) as seen:
            claims = seen.claim_many(items)
            assert Claim.BUSY not in claims
            left = [item for item, claim in zip(items, claims, strict=True) if claim is Claim.NEW]
            seen.commit_many(left)
        account.note(left, [True] * len(left))
    store.check(account, url, f"{name}-{store}", **_parameters(store, capacity))


@pytest.mark.check
@pytest.mark.timeout(3600)
def test_the_accounts_are_exact_whatever_happens_at_once(name: str, tmp_path: Path) -> None:
    """Threads, cancelled tasks, processes; a bad network, killed connections, forgotten scripts, a server that dies."""
    binary = find_binary()
    if binary is None:
        missing("A redis-server")
    seed, capacities, accounts = new_seed(), cycle(CAPACITIES), list[Account]()
    rng, faults = random.Random(seed), [*Fault, *[None] * 30 * len(Fault)]
    with (
        Killable(binary, tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server,
        Proxy(server.url, lambda _: rng.choice(faults), late=LATE) as proxy,
        ProcessPoolExecutor(2, SPAWN) as crowds,
    ):
        for number, capacity in zip(range(ROUNDS), capacities, strict=False):
            with again_and_again(partial(_disturb, server, rng)):
                _begin(number, proxy.url, name, capacity)
                accounts = accounts if number % 2 else [Account() for _ in STORES]
                seeds = [seed + 1000 * number + 100 * i for i in range(2)]
                jobs = [crowds.submit(_crowd, proxy.url, name, capacity, some) for some in seeds]
                for job in jobs:
                    for account, answers in zip(accounts, job.result(), strict=True):
                        account.include(*answers)
            for store, account in zip(STORES, accounts, strict=True):
                _check(store, account, server.url, name, capacity)
    print({fault.name: times for fault, times in proxy.struck.items()})
    assert {*Fault} == proxy.struck.keys()
