"""What the suites of this folder run on: each store, by each driver."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import DRIVERS
from tests.helpers.stores import STORES, Store


@pytest.fixture(params=STORES, ids=str)
def store(request: pytest.FixtureRequest) -> Store:
    kind: Store = request.param
    if kind.kind == "distinct":
        request.getfixturevalue("away_from_midnight")
    return kind


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def opened(store: Store, driver: str, url: str, name: str) -> Any:
    """Opens clients of a store of the test's own name; their verbs are awaited."""

    def open_one(*, resend: bool = True, **parameters: Any) -> Any:
        address, own = parameters.pop("url", url), parameters.pop("name", name)
        if not resend:
            parameters["retry_for"] = 0.0
        return store.awaited(address, own, driver=driver, **parameters)

    return open_one
