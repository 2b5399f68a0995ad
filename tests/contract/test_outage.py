"""A caller may decide itself while the server does not answer, and tells the store so."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import ConfigError, TimeBloom
from tests.helpers.proxy import LossyProxy
from tests.helpers.stores import BLOOM, EXACT


@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str, indirect=True)
async def test_an_item_that_the_caller_assumed_new_is_not_new_again(opened: Any, url: str) -> None:
    with LossyProxy(url, lambda number: number == 3) as proxy:
        seen = opened(url=proxy.url, resend=False)
        await seen.contains("parameters")
        with pytest.raises(redis.ConnectionError):
            await seen.add_many(["a", "b"])
        assume_new = getattr(seen, "_seen", seen).assume_new
        assume_new(["a"])
        assert [False, True] == await seen.add_many(["a", "b"])


@pytest.mark.parametrize("value", [-1, "5"])
def test_a_bad_argument_is_named(url: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^retry_for: expected"):
        TimeBloom.from_url(url, name, retry_for=value)
