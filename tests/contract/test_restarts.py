"""Servers that are killed and come back, or hang; and scripts that get lost while others add."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.helpers.account import FULL, Account, names, pieces
from tests.helpers.killable import Killable
from tests.helpers.localredis import find_binary
from tests.helpers.making import missing
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")
KILLS = 30 if FULL else 2
#: On a busy machine a server takes longer to come back than a call is retried by default (s).
RETRY_FOR = 60
LIVES = 30 if FULL else 2


def _binary() -> str:
    binary = find_binary()
    if binary is None:
        missing("A redis-server")
    return str(binary)


def test_a_server_that_persists_is_killed_again_and_again_and_nothing_is_lost(
    store: Store, tmp_path: Path, name: str
) -> None:
    """4 threads add without a pause, and notice nothing: a call under way gets its first answer."""
    account = Account()
    with (
        Killable(_binary(), tmp_path, *PERSISTENT) as killable,
        store.open(killable.url, name, retry_for=RETRY_FOR) as seen,
        ThreadPoolExecutor(4) as threads,
    ):

        def add(thread: int) -> None:
            number = 0
            while not account.closed:
                # Each item is offered by two threads.
                items = names(200, f"of {thread // 2} {number}")
                for piece in ([items[0]], [items[1]], items[2:]):
                    account.offer(seen, piece)
                number += 1

        adding = [threads.submit(add, thread) for thread in range(4)]
        try:
            for _ in range(KILLS):
                wanted = account.offered.total() + 2000
                # (A thread that is done has failed.)
                while account.offered.total() < wanted and not any(job.done() for job in adding):
                    sleep(0.01)
                killable.kill()
                killable.restart()
        finally:
            account.closed = True
        for job in adding:
            job.result()
        store.check(account, killable.url, name)


@pytest.mark.parametrize(
    ("store", "parameters"),
    [
        *((store, {}) for store in STORES),
        *((store, store.sharded) for store in (BLOOM, EXACT)),
        (BLOOM, {"capacity": 300}),  # it grows
    ],
    indirect=["store"],
    ids=["bloom", "exact", "distinct", "bloom, shards", "exact, shards", "bloom, grown"],
)
async def test_what_a_server_forgets_is_new_once_more(
    store: Store, opened: Any, tmp_path: Path, name: str, parameters: dict[str, Any]
) -> None:
    """Each life of the server has an exact account, with the same objects: one that adds, and one that has only looked."""
    items = names(4500 if store is DISTINCT else 2000)  # 4,097 make a bitmap
    with (
        Killable(_binary(), tmp_path) as killable,
        store.open(killable.url, name, **parameters) as looking,
    ):
        seen = opened(url=killable.url, **parameters)
        for life in range(LIVES):
            account = Account()
            assert 0 == store.held(looking)
            for piece in pieces(items, 0) * 2:
                await account.offer_async(seen, piece)
            assert len(items) == store.held(looking)
            store.check(account, killable.url, name, **parameters)
            if life < LIVES - 1:
                killable.kill()
                killable.restart()
