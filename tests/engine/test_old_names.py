"""Arguments that have another name now."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis import asyncio

import tbloom
from tbloom import ConfigError
from tbloom.engine.parameters import RENAMED

STORES = (
    (tbloom.TimeBloom, redis.Redis),
    (tbloom.AsyncTimeBloom, asyncio.Redis),
    (tbloom.ExactFilter, redis.Redis),
    (tbloom.AsyncExactFilter, asyncio.Redis),
    (tbloom.DistinctCounter, redis.Redis),
    (tbloom.AsyncDistinctCounter, asyncio.Redis),
)
URL = "redis://127.0.0.1:1"


@pytest.mark.parametrize(("store", "client"), STORES)
@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_refused_with_the_new_one(
    store: Any, client: Any, old: str, new: str
) -> None:
    """``from_url`` raises the same error; an unknown name is a TypeError as always."""
    for make in (
        lambda **more: store(client(), "news", **more),
        lambda **more: store.from_url(URL, "news", **more),
    ):
        with pytest.raises(ConfigError, match=f"^{old}: expected its new name, {new}, got 1$"):
            make(**{old: 1})
        with pytest.raises(TypeError, match="argument 'no_such'"):
            make(no_such=1)


@pytest.mark.parametrize(("store", "client"), STORES)
def test_an_argument_that_is_gone_is_refused_with_what_takes_its_place(
    store: Any, client: Any
) -> None:
    with pytest.raises(
        ConfigError, match=r"^on_error: expected to be left out: .* TBLOOM_ON_ERROR"
    ):
        store(client(), "news", on_error="drop")
