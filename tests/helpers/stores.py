"""The stores on a server, each by its adapter, so that one test runs on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers import ids
from tests.helpers.account import PARAMETERS, Account
from tests.helpers.making import awaited


@dataclass(frozen=True, eq=False)
class Store:
    """One kind of store; ``parameters``: with which an account of 200,000 items is exact."""

    kind: str
    sync: Any
    aio: Any
    #: What this kind calls ``shards``; a mapping of counters has none.
    sharded: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.kind

    def open(
        self, url: str, name: str, *, driver: str = "sync", callers: bool = False, **parameters: Any
    ) -> Any:
        """A client of the store of that name; of counters, of the one named ``one``.

        ``callers``: through a redis-py client of the caller's own.
        """
        if callers:
            library: Any = redis.asyncio if driver == "async" else redis
            return self.of_client(library.Redis.from_url(url), name, **parameters)
        made = self.aio if driver == "async" else self.sync
        return made.from_url(url, *self._names(name), **{**self.parameters, **parameters})

    def of_client(self, client: Any, name: str, **parameters: Any) -> Any:
        """The same, through this client."""
        made = self.sync if isinstance(client, redis.Redis) else self.aio
        return made(client, *self._names(name), **{**self.parameters, **parameters})

    def _names(self, name: str) -> tuple[str, ...]:
        return ("one", name) if self.kind == "distinct" else (name,)

    def awaited(self, url: str, name: str, *, driver: str = "sync", **parameters: Any) -> Any:
        """The same, with verbs that are awaited for both drivers."""
        made = self.open(url, name, driver=driver, **parameters)
        return made if driver == "async" else awaited(made)

    def held(self, seen: Any) -> int:
        """The number of items that it holds."""
        held: int = seen.count() if self.kind == "distinct" else seen.info().items
        return held

    def check(self, account: Account, url: str, name: str, **parameters: Any) -> None:
        """The account is exact, and the store holds its items and no others."""
        account.check_answers()
        if self.kind == "distinct":
            ids.check(url, name, {"one": account.offered})
            return
        with self.open(url, name, **parameters) as right:
            account.check(right)


BLOOM = Store("bloom", TimeBloom, AsyncTimeBloom, {"shards": 3}, PARAMETERS)
EXACT = Store("exact", ExactFilter, AsyncExactFilter, {"shards": 3})
DISTINCT = Store("distinct", DistinctCounter, AsyncDistinctCounter)
STORES = (BLOOM, EXACT, DISTINCT)
