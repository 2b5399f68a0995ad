"""A prefix of all keys, for a server on which an application may use such keys only. (Its user: test_acl.py.)"""

from __future__ import annotations

import pytest
import redis

from tbloom import ConfigError
from tbloom.distinct import DistinctCounter
from tests.helpers.stores import DISTINCT, Store

PREFIX = "app1:"
#: Characters that mean something in a pattern of SCAN.
ODD = r"a?*[\]^-"


@pytest.mark.parametrize("prefix", [PREFIX, ODD])
async def test_each_key_begins_with_the_prefix(
    store: Store, driver: str, own_url: str, own: redis.Redis, prefix: str
) -> None:
    """The same name with another prefix, or none, is another store (redisson#5439)."""
    prefixes = (prefix, f"{prefix}2", "")
    stores = [store.awaited(own_url, "news", driver=driver, prefix=each) for each in prefixes]
    for number, seen in enumerate(stores):
        assert [True, False] == [await seen.add("a"), await seen.add("a")]
        of = [text.decode().partition("{news")[0] for text in own.scan_iter()]
        assert {*prefixes[: number + 1]} == {*of}
    await stores[0].clear()
    assert [False, True, True] == [await seen.contains("a") for seen in stores]
    for seen in stores:
        await seen.aclose()


def test_counters_of_different_prefixes_are_not_combined(url: str, name: str) -> None:
    """Their mappings give the members different numbers."""
    with (
        DISTINCT.open(url, name, prefix=PREFIX) as here,
        DistinctCounter.from_url(url, "two", name) as there,
        pytest.raises(ConfigError, match=f"the same mapping, '{name}', with the prefix 'app1:'"),
    ):
        here.count_or(there)
