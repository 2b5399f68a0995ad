"""What the suites of this folder run on: each store, by each driver."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.servers import OLDEST
from tests.helpers.stores import BLOOM, STORES, Store


@pytest.fixture(params=STORES, ids=str)
def store(request: pytest.FixtureRequest) -> Store:
    kind: Store = request.param
    if kind.kind == "distinct":
        request.getfixturevalue("away_from_midnight")
    return kind


@pytest.fixture(params=["sync", "async"])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Asyncio's driver is the same for all stores and servers: of the oldest server, `make test` has it for one
    store, and `make check` for all, in the short form of each test."""
    kept = []
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        long = item.get_closest_marker("check") is not None
        if given.get("driver") == "async":
            if given.get("store", BLOOM) is not BLOOM:
                if long:
                    continue
                item.add_marker(pytest.mark.check)
            elif given.get("kind", OLDEST) != OLDEST:
                continue
        kept.append(item)
    items[:] = kept


@pytest.fixture
def opened(store: Store, driver: str, url: str, name: str) -> Any:
    """Opens clients of a store of the test's own name; their verbs are awaited."""

    def open_one(*, resend: bool = True, **parameters: Any) -> Any:
        address, own = parameters.pop("url", url), parameters.pop("name", name)
        if not resend:
            parameters["retry_for"] = 0.0
        return store.awaited(address, own, driver=driver, **parameters)

    return open_one
