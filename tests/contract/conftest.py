"""What the suites of this folder run on: each store."""

from __future__ import annotations

import pytest

from tests.helpers.stores import STORES, Store


@pytest.fixture(params=STORES, ids=str)
def store(request: pytest.FixtureRequest) -> Store:
    kind: Store = request.param
    if kind.kind == "distinct":
        request.getfixturevalue("away_from_midnight")
    return kind
