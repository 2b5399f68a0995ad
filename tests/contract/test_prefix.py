"""A prefix of all keys, for a server on which an application may use such keys only. (Its user: test_acl.py.)"""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import ConfigError
from tbloom.distinct import DistinctCounter
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

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


@pytest.mark.parametrize("opened", [BLOOM, EXACT], ids=str)
async def test_a_stored_filter_is_opened_by_its_prefix(
    opened: Store, driver: str, url: str, name: str
) -> None:
    with opened.open(url, name, prefix=PREFIX, shards=3) as seen:
        assert seen.add("a")
    kind = opened.aio if driver == "async" else opened.sync
    made = kind.open(url, name, prefix=PREFIX)
    again = await made if driver == "async" else made
    assert (PREFIX, 3) == (again.config.prefix, again.config.shards)
    await again.aclose() if driver == "async" else again.close()
    with pytest.raises(ConfigError, match="name: expected the name of a stored filter"):
        opened.sync.open(url, name)


@pytest.mark.parametrize("prefix", ["{app}", "a}", "a b", "a\n", "\ud800", "\0", b"app1:", None, 1])
def test_a_prefix_that_would_change_the_hash_tag_is_refused(
    store: Store, url: str, name: str, prefix: Any
) -> None:
    expected = "prefix: expected a str of printable characters without braces and spaces, such as"
    with pytest.raises(ConfigError, match=expected):
        store.open(url, name, prefix=prefix)


def test_counters_of_different_prefixes_are_not_combined(url: str, name: str) -> None:
    """Their mappings give the members different numbers."""
    with (
        DISTINCT.open(url, name, prefix=PREFIX) as here,
        DistinctCounter.from_url(url, "two", name) as there,
        pytest.raises(ConfigError, match=f"the same mapping, '{name}', with the prefix 'app1:'"),
    ):
        here.count_or(there)
