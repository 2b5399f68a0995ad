"""Stores used by processes, forks and threads at once: each item is new once. And everything at once: in the end the account of
each store is exact: offered = new + seen, none lost, none twice.

(What comes in any order, the simulation plays; failovers: engine/test_cluster.py.)
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from multiprocessing.pool import Pool
from time import monotonic, sleep
from typing import Any

import pytest
import redis

from tbloom import Claim
from tbloom.engine.flow import chunks
from tests.helpers.account import PARAMETERS, Account, names, pieces
from tests.helpers.flows import flow_of, lose
from tests.helpers.harm import CUTS, FORGETS, HARM, KILLED, MINUTES, STANDS, new_seed
from tests.helpers.localredis import OLDEST, LocalRedis, again_and_again
from tests.helpers.making import in_child, needed
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, STORES, Store

NUMBER = 4500  # 4,097 make a distinct counter's bitmap


def _added_by_a_process(kind: str, url: str, name: str, items: list[str], seed: int) -> list[str]:
    [store] = [store for store in STORES if store.kind == kind]
    with store.open(url, name) as seen:
        return [
            item
            for piece in pieces(items, seed)
            for item, new in zip(piece, seen.add_many(piece), strict=True)
            if new
        ]


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    with multiprocessing.get_context("fork").Pool(3) as processes:
        yield processes


def test_of_processes_that_add_the_same_items_one_gets_new(
    store: Store, processes: Pool, url: str, name: str
) -> None:
    items, seeds = names(NUMBER), range(3)
    answers = processes.starmap(
        _added_by_a_process, [(store.kind, url, name, items, seed) for seed in seeds]
    )
    assert Counter(items) == sum(map(Counter, answers), Counter())
    with store.open(url, name) as seen:
        assert len(items) == store.held(seen)


def test_forks_that_share_an_object_are_clients_of_their_own(
    store: Store, url: str, name: str
) -> None:
    """Also of answers that were lost: these are the parent's."""
    seen, items = store.open(url, name), names(6000)
    assert all(seen.add_many(items[:1000]))
    lose(seen.client, flow_of(seen, "add_many", items[5000:5100]))

    def child() -> list[bool]:
        answers: list[bool] = seen.add_many(items[500:5100])
        return answers

    assert [False] * 500 + [True] * 4000 + [False] * 100 == in_child(child)
    assert [False] * 4600 == in_child(child)
    assert [False] * 5000 + [True] * 1000 == seen.add_many(items)
    assert 6000 == store.held(seen)


#: Each round has stores of its own.
ROUNDS, SECONDS = max(4, round(0.8 * MINUTES)), min(20.0, 6 * MINUTES)
#: What happens to the server, and how often.
HARMS = {KILLED: 2, STANDS: 1, FORGETS: 6, CUTS: 11}
#: So small that the filter grows.
CAPACITY = 1000
TIMEOUT, LATE = "?socket_timeout=0.4", 0.8
#: Longer (s) than a server is away on a busy machine.
RETRY_FOR = 60.0
#: What tasks meet that are cancelled, or do not retry.
TASKS_ASK_AGAIN = redis.ConnectionError, redis.TimeoutError, TimeoutError
#: New items a second, and how many of them are offered at the same time.
RATE, AT_ONCE = 200, 400


def _parameters(store: Store) -> dict[str, Any]:
    return {**store.sharded, **({**PARAMETERS, "capacity": CAPACITY} if store is BLOOM else {})}


def _open(store: Store, url: str, name: str, **options: Any) -> Any:
    return store.open(url, f"{name}-{store}", **_parameters(store), **options)


def _offers(seed: int, began: float) -> Iterator[list[str]]:
    """Until the round ends: about the same items for all who ask at about the same time."""
    rng = random.Random(seed)
    while (passed := monotonic() - began) < SECONDS:
        first = int(RATE * passed)
        numbers = rng.sample(range(first, first + AT_ONCE), rng.choice((1, 1, 2, 20, 300)))
        yield [f"item {n}" for n in numbers]


def _add(seen: Any, account: Account, offers: Iterator[list[str]]) -> None:
    for items in offers:
        account.note(items, seen.add_many(items) if len(items) > 1 else [seen.add(items[0])])


async def _add_from_tasks(
    open_one: Callable[..., Any], account: Account, seed: int, began: float
) -> None:
    """Calls that are cancelled after a moment, some of them, and repeated until they are answered."""
    rng = random.Random(seed)

    async def add(seen: Any, offers: Iterator[Sequence[str]]) -> None:
        for items in offers:
            is_answered = False
            while not is_answered:
                limit = rng.choice((0.001, 0.01, *[None] * 8))
                with suppress(*TASKS_ASK_AGAIN):
                    await asyncio.wait_for(account.offer_async(seen, items), limit)
                    is_answered = True

    async with open_one(driver="async", retry_for=0) as seen:
        await asyncio.gather(*(add(seen, _offers(seed + i, began)) for i in range(6)))
        # What is pending; in pieces, because no call of many would end between two faults.
        await add(seen, chunks([*account.offered], 300))


def _claim(seen: Any, account: Account, seed: int, began: float) -> None:
    """Does the items that it can claim, but for some that it releases."""
    rng = random.Random(seed)
    for item, *_ in _offers(seed, began):
        claimed = item.replace("item", "claimed")
        match seen.claim(claimed):
            case Claim.NEW if rng.random() < 0.2:
                seen.release(claimed)
            case Claim.NEW:
                seen.commit(claimed)
                account.note([claimed], [True])
            case Claim.SEEN:
                account.note([claimed], [False])


def _crowd(url: str, name: str, seed: int, accounts: dict[Store, Account]) -> None:
    """Of each store two objects that threads share, and two that tasks share."""
    began = monotonic()
    with ExitStack() as stack, ThreadPoolExecutor(40) as threads:
        jobs, shared = [], []
        for (store, account), own in product(accounts.items(), (seed, seed + 100)):
            open_one = partial(_open, store, url + TIMEOUT, name)
            seen = stack.enter_context(open_one(retry_for=RETRY_FOR))
            shared.append((seen, account))
            tasks = _add_from_tasks(open_one, account, own + 20, began)
            jobs.append(threads.submit(asyncio.run, tasks))
            offers = [_offers(own + i, began) for i in range(10, 13)]
            jobs += [threads.submit(_add, seen, account, some) for some in offers]
            if store is BLOOM:
                jobs += [threads.submit(_claim, seen, account, own + i, began) for i in range(2)]
        for job in jobs:
            job.result()
        for seen, account in shared:
            _add(seen, account, iter([[*account.offered]]))  # what is pending


def _disturb(server: LocalRedis, rng: random.Random) -> None:
    """Waits a moment, and then harms all clients."""
    sleep(rng.uniform(0.05, 0.5))
    [what] = rng.choices([*HARMS], [*HARMS.values()])
    HARM[what](server, rng.uniform(0, 0.5))


def _check(store: Store, account: Account, url: str, name: str) -> None:
    """Does what nobody has claimed; then the account is exact."""
    if store is BLOOM:
        items = [f"claimed {n}" for n in range(int(RATE * SECONDS) + AT_ONCE)]
        left: list[str] = []
        with _open(store, url, name) as seen:
            while items:  # a session whose end the server has not heard of is over in a minute
                claims = [*zip(items, seen.claim_many(items), strict=True)]
                left += [item for item, claim in claims if claim is Claim.NEW]
                items = [item for item, claim in claims if claim is Claim.BUSY]
            seen.commit_many(left)
        account.note(left, [True] * len(left))
    store.check(account, url, f"{name}-{store}", **_parameters(store))


@pytest.mark.check
@pytest.mark.timeout(60 * MINUTES + 1800)
def test_the_accounts_are_exact_whatever_happens_at_once(name: str) -> None:
    """Threads and cancelled tasks; a bad network, killed connections, forgotten scripts, a server that dies."""
    binary, options = needed(OLDEST), ("--appendonly", "yes", "--appendfsync", "always")
    seed = new_seed()
    rng, faults = random.Random(seed), [*Fault, *[None] * 30 * len(Fault)]
    with (
        LocalRedis(binary, *options) as server,
        Proxy(server.url, lambda _: rng.choice(faults), late=LATE) as proxy,
    ):
        for number in range(ROUNDS):
            own, accounts = f"{name}-{number}", {store: Account() for store in STORES}
            with again_and_again(partial(_disturb, server, rng)):
                _crowd(proxy.url, own, seed + 1000 * number, accounts)
            for store, account in accounts.items():
                _check(store, account, server.url, own)
    print({fault.name: times for fault, times in proxy.struck.items()})
    assert {*Fault} == proxy.struck.keys()
