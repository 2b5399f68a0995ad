"""A server that drops keys when its memory is full: what a slice held is forgotten, but not in silence."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import servers
from tests.helpers.making import missing

POLICY = "the server drops keys once it uses"
DROPPED = "early: what it held is forgotten"


@pytest.fixture
def small() -> Any:
    """A server with 8 MB, which drops keys beyond that."""
    if "redis-server" not in servers.BINARIES:
        missing("redis-server")
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random")
    with servers.local(servers.BINARIES["redis-server"], *options) as client:
        yield client


@pytest.mark.parametrize("slices", [3, 7, 14])
async def test_no_warning_after_slices_have_left_or_the_window_has_changed(
    make: Any, clockwork: Any, slices: int
) -> None:
    seen = make(url=clockwork.server.url, slices=7)
    for day in range(3, 14):
        clockwork.set(f"2019-06-{day:02} 12:00:00")
        await seen.add(f"item of {day}")
        assert [] == await seen.warnings()
    other = make(url=clockwork.server.url, slices=slices)
    await other.reconfigure()
    await other.add("another")
    assert [] == await other.warnings()
    for day in range(14, 30):
        clockwork.set(f"2019-06-{day} 12:00:00")
        assert [] == await other.warnings()


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
        if small.exists(f"{{{name}}}:parts"):
            assert [DROPPED in warning for warning in seen.warnings()] == [False, True]
    assert [] == caplog.records


async def test_a_current_slice_that_was_dropped_is_reported_by_the_add_that_makes_it_anew(
    make: Any, client: redis.Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a commit as well; once."""
    seen = make()
    await seen.add("a")
    for verb in (seen.add, seen.commit):
        [key] = client.keys(f"{{{name}}}:2*")
        client.delete(key)
        assert [f"the server has dropped {{{name}}}:{key.split(':')[1]} {DROPPED}"] == (
            await seen.warnings()
        )
        caplog.clear()
        await verb("b")
        await verb("c")
        assert [logging.WARNING] == [record.levelno for record in caplog.records]
        assert "the server has dropped the slice" in caplog.text
        assert [] == await seen.warnings()


def test_scrapy_says_so_at_the_start(crawl: Any, small: redis.Redis) -> None:
    port = small.connection_pool.connection_kwargs["port"]
    settings = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "REDIS_URL": f"redis://127.0.0.1:{port}"}
    result = crawl("pages", settings, ["a"])
    assert POLICY in result["log"]
    assert 1 == result["stats"]["tbloom/warnings"]
    assert ["a"] == result["fetched"]
