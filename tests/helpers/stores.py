"""The stores on a server, each by its adapter, so that one test runs on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers import ids
from tests.helpers.account import PARAMETERS, Account
from tests.helpers.flows import flow_of
from tests.helpers.making import Awaited, AwaitedCounter


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

    def open(self, url: str, name: str, *, driver: str = "sync", **parameters: Any) -> Any:
        """A client of the store of that name; of counters, of the one named ``one``."""
        names = ("one", name) if self.kind == "distinct" else (name,)
        made = self.aio if driver == "async" else self.sync
        return made.from_url(url, *names, **{**self.parameters, **parameters})

    def awaited(self, url: str, name: str, *, driver: str = "sync", **parameters: Any) -> Any:
        """The same, with verbs that are awaited for both drivers."""
        made = self.open(url, name, driver=driver, **parameters)
        if driver == "async":
            return made
        return AwaitedCounter(made) if self.kind == "distinct" else Awaited(made)

    def flow(self, seen: Any, items: list[str]) -> Any:
        """The flow of ``add_many``."""
        return flow_of(seen, "add_many", items, *(() if self.kind == "distinct" else (None,)))

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
