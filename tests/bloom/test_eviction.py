"""A server that drops keys when its memory is full: what a slice held is forgotten, but not in silence."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import servers
from tests.helpers.making import needed

POLICY = "the server drops keys once it uses"
DROPPED = "early: what it held is forgotten"


@pytest.fixture
def small() -> Any:
    """A server with 8 MB, which drops keys beyond that."""
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random")
    with servers.local(needed("redis-server"), *options) as client:
        yield client


def test_slices_that_the_server_has_dropped_are_reported(
    small: redis.Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program's keys fill the memory until the filter's are dropped, which are among the oldest."""
    with TimeBloom(small, name, capacity=100_000, granularity="1s", slices=600) as seen:
        assert [POLICY in warning for warning in seen.warnings()] == [True]
        seen.add("a")
        [key] = small.keys(f"{{{name}}}:2*")
        number = 0
        while small.exists(key):
            small.set(f"other {number}", "x" * 100_000)
            number += 1
        if small.exists(f"{{{name}}}:state"):
            assert [DROPPED in warning for warning in seen.warnings()] == [False, True]
    assert [] == caplog.records


def test_scrapy_says_so_at_the_start(crawl: Any, small: redis.Redis) -> None:
    port = small.connection_pool.connection_kwargs["port"]
    settings = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "REDIS_URL": f"redis://127.0.0.1:{port}"}
    result = crawl("pages", settings, ["a"])
    assert POLICY in result["log"]
    assert 1 == result["stats"]["tbloom/warnings"]
    assert ["a"] == result["fetched"]
