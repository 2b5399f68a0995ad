"""Servers that are killed and come back without what they held. (With it: test_chaos.py, ``tests/simulation``.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.account import FULL, Account, names, pieces
from tests.helpers.killable import Killable
from tests.helpers.localredis import find_binary
from tests.helpers.making import missing
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store

LIVES = 30 if FULL else 2


def _binary() -> str:
    binary = find_binary()
    if binary is None:
        missing("A redis-server")
    return str(binary)


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
