"""Replies and requests that get lost, come late, or are cut off."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, product
from typing import Any

import pytest
import redis

from tbloom import Claim, TimeBloom
from tests.helpers.account import (
    FULL,
    LATE,
    NO_ANSWER,
    OFFERS,
    PARAMETERS,
    STRUCK,
    TIMEOUT,
    Account,
    insist,
    names,
    new_seed,
)
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import Store

#: A batch makes a distinct counter's bitmap, and of its calls some are struck, not always the first.
ONE, BATCH = 1, 4500


def _cases() -> Iterator[Any]:
    """All of them; `make test` has each fault of a single item that the client sends again, and two of batches that the
    caller repeats."""
    short = {(ONE, True, fault) for fault in Fault}
    short |= {(BATCH, False, fault) for fault in (Fault.LOSE, Fault.LATE_REQUEST)}
    for case in product((ONE, BATCH), (True, False), Fault):
        size, resend, fault = case
        yield pytest.param(
            *case,
            id=f"{fault.name.lower()}-{'singly' if size == ONE else 'batch'}, {'client resends' if resend else 'caller repeats'}",
            marks=() if case in short else pytest.mark.check,
        )


@pytest.mark.parametrize(("size", "resend", "fault"), [*_cases()])
async def test_each_item_is_new_once_whatever_befalls_its_call(
    store: Store, opened: Any, url: str, name: str, fault: Fault, *, resend: bool, size: int
) -> None:
    """A few of the first requests, while what is stored grows from nothing."""
    items, account = names(30 if size == ONE else size), Account()
    struck = {2, 4, 9, 30}
    with Proxy(url, lambda number: fault if number in struck else None, late=LATE) as proxy:
        seen = opened(url=proxy.url + TIMEOUT, resend=resend, retry_for=60)
        for _ in range(2):
            for start in range(0, len(items), size):
                some = items[start : start + size]
                await account.offer_async(seen, some, repeat_on=() if resend else NO_ANSWER)
    assert proxy.struck.keys() == {fault}
    assert account.repeats or resend or fault in (Fault.FORGET, Fault.LATE_COPY)
    store.check(account, url, name)


def _at_random(seed: int, rate: float, *but: Fault) -> Any:
    """The faults in turn, so that none is left out by chance, at calls that chance picks."""
    rng, turns = random.Random(seed), cycle(fault for fault in Fault if fault not in but)
    return lambda _: next(turns) if rng.random() < rate else None


def _pieces(seed: int) -> list[list[str]]:
    """Half duplicates: each item twice, in any order; half of them singly, half in batches."""
    rng, offers = random.Random(seed), names(OFFERS // 2) * 2
    rng.shuffle(offers)
    pieces, half = [[item] for item in offers[: OFFERS // 2]], OFFERS // 2
    while half < OFFERS:
        size = rng.randrange(2, 1000)
        pieces.append(offers[half : half + size])
        half += size
    rng.shuffle(pieces)
    return pieces


def test_the_account_of_many_threads_is_exact_on_a_bad_network(
    store: Store, url: str, name: str
) -> None:
    """8 threads share two objects, one without retries; calls meet all faults."""
    seed, account = new_seed(), Account()
    with (
        Proxy(url, _at_random(seed, STRUCK), late=LATE) as proxy,
        store.open(proxy.url + TIMEOUT, name, **store.sharded) as one,
        store.open(proxy.url + TIMEOUT, name, retry_for=0, **store.sharded) as other,
        ThreadPoolExecutor(8) as threads,
    ):
        jobs = [
            threads.submit(account.offer, (one, other)[i % 2], piece, repeat_on=NO_ANSWER)
            for i, piece in enumerate(_pieces(seed))
        ]
        for job in jobs:
            job.result()
    print({fault.name: times for fault, times in proxy.struck.items()})
    assert set(Fault) == proxy.struck.keys()
    assert account.offered.total() == OFFERS
    store.check(account, url, name, **store.sharded)


@pytest.mark.parametrize("driver", ["async"], indirect=True)
async def test_the_account_of_many_tasks_is_exact_on_a_bad_network(
    store: Store, opened: Any, url: str, name: str
) -> None:
    """The same for asyncio: 8 tasks."""
    seed, account = new_seed(), Account()
    pieces = iter(_pieces(seed))

    async def offer(seen: Any) -> None:
        for piece in pieces:
            await account.offer_async(seen, piece, repeat_on=NO_ANSWER)

    with Proxy(url, _at_random(seed, STRUCK), late=LATE) as proxy:
        async with (
            opened(url=proxy.url + TIMEOUT) as one,
            opened(url=proxy.url + TIMEOUT, resend=False) as other,
        ):
            await asyncio.gather(*(offer(seen) for seen in [one, other] * 4))
    assert set(Fault) == proxy.struck.keys()
    assert account.offered.total() == OFFERS
    store.check(account, url, name)


def _work(seen: TimeBloom, items: list[str], done: Counter[str], seed: int) -> None:
    """Claims the items until each is seen; gives some up, and commits the others."""
    rng, left = random.Random(seed), items
    while left:
        busy = []
        for item in left:
            match insist(seen.claim, item):
                case Claim.BUSY:
                    busy.append(item)
                case Claim.NEW if rng.random() < 0.2:
                    insist(seen.release, item)
                    busy.append(item)
                case Claim.NEW:
                    done[item] += 1
                    insist(seen.commit, item)
        left = busy


def test_the_account_of_claims_is_exact_on_a_bad_network(
    url: str, name: str, client: redis.Redis
) -> None:
    """8 threads with 4 filter objects work on the same items; each is done by exactly one of them.

    (A stray copy of a claim that arrives after its release is a claim that nobody knows of, until its
    session ends: docs/guarantees.md.)
    """
    seed, done = new_seed(), Counter[str]()
    late = {Fault.LATE_REQUEST, Fault.LATE_COPY}
    items = names(2_000 if FULL else 200)
    with (
        Proxy(url, _at_random(seed, STRUCK, *late), late=LATE) as proxy,
        ExitStack() as stack,
        ThreadPoolExecutor(8) as threads,
    ):
        blooms = [
            stack.enter_context(
                TimeBloom.from_url(proxy.url + TIMEOUT, name, retry_for=retry_for, **PARAMETERS)
            )
            for retry_for in (0, 0, 5, 5)
        ]
        shuffled = [random.Random(seed + i).sample(items, len(items)) for i in range(8)]
        jobs = [threads.submit(_work, blooms[i % 4], shuffled[i], done, seed + i) for i in range(8)]
        for job in jobs:
            job.result()
    assert set(Fault) - late == proxy.struck.keys()
    assert dict.fromkeys(items, 1) == done
    assert 0 == client.hlen(f"{{{name}}}:claims")
    with TimeBloom.from_url(url, name, **PARAMETERS) as right:
        assert all(right.contains_many(items))
        assert len(items) == right.info().items
