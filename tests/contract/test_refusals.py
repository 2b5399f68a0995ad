"""Servers that refuse MEMORY, CONFIG and INFO, as managed ones do: by the user's rights, or because they don't know them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest

from tbloom import TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.exact import ExactFilter
from tbloom.metrics import FilterCollector
from tests.helpers.commands import tbloom
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.stores import BLOOM, EXACT, Store

REFUSED = "INFO", "MEMORY", "CONFIG"
NO_INFO = "the server refuses INFO: it may drop keys when its memory is full"
NO_MEMORY = "the server refuses MEMORY USAGE: the memory is unknown"


@pytest.fixture(scope="module", params=["rights", "unknown"])
def refusing(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of such a server."""
    words = [w for name in REFUSED for w in ("--rename-command", name, "")]
    with LocalRedis(needed(), *(words if request.param == "unknown" else ())) as server:
        if request.param == "unknown":
            yield server.url
            return
        with redis.Redis.from_url(server.url) as admin:
            rights = ["+@all", *(f"-{name}" for name in REFUSED)]
            admin.execute_command("ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", *rights)
        yield server.url.replace("//", "//tenant:pw@")


@pytest.fixture
def empty(refusing: str) -> str:
    """The same, without keys."""
    with redis.Redis.from_url(refusing) as client:
        client.flushall()
    return refusing


async def test_figures_that_the_server_refuses_are_unknown(
    store: Store, empty: str, name: str, driver: str
) -> None:
    """It is said once; all else is known (phpCacheAdmin#47)."""
    seen = store.awaited(empty, name, driver=driver, **store.sharded)
    assert all(await seen.add_many(["a", "b", "c"]))
    info = await seen.info()
    assert (info.bytes, info.warnings) == (None, (NO_INFO, NO_MEMORY))
    assert [NO_INFO] == await seen.warnings()
    if store is BLOOM:
        assert (3, None) == (info.items, info.slices[-1].bytes)
        assert 0 < info.slices[-1].fill_ratio < 1
    elif store is EXACT:
        assert (3, 0) == (info.items, info.dead)
    else:
        assert (3, 3, None) == (info.count, info.members, info.mapping_bytes)
        assert None is info.slices[-1].bytes
    await seen.clear()
    assert 0 == (await seen.info()).bytes


def test_commands_show_what_is_known(empty: str, tmp_path: Path) -> None:
    """asynqmon#210"""
    with (
        TimeBloom.from_url(empty, "news", capacity=1000) as seen,
        ExactFilter.from_url(empty, "exact") as exact,
    ):
        seen.add_many(map(str, range(100)))
        exact.add("a")

        done = tbloom("list", "--url", empty)
        assert (0, 2) == (done.returncode, done.stdout.count("unknown"))
        assert "no filters" not in done.stderr
        listed = json.loads(tbloom("list", "--url", empty, "--json").stdout)
        assert [("exact", None), ("news", None)] == [(one["name"], one["bytes"]) for one in listed]
        for name in "news", "exact":
            done = tbloom("info", name, "--url", empty)
            assert (0, [1, 1]) == (
                done.returncode,
                [done.stdout.count(warning) for warning in (NO_INFO, NO_MEMORY)],
            )
        assert 0 == tbloom("watch", "news", "--url", empty, "--once", tmp_path / "page").returncode
        page = (tmp_path / "page").read_text(encoding="utf-8")
        assert "<dt>memory</dt><dd>unknown" in page
        assert 1 == page.count(NO_MEMORY[1:])

        registry = CollectorRegistry()
        registry.register(FilterCollector(seen))
        served = generate_latest(registry).decode()
        assert 'tbloom_window_items{filter="news"} 100.0' in served
        assert "tbloom_window_bytes{" not in served
        assert 'tbloom_slice_bytes{age="0"' not in served
    with DistinctCounter.from_url(empty, "urls") as counter:
        counter.add("a")
    for words in ["count", "show", "urls"], ["count", "list"]:
        done = tbloom(*words, "--url", empty)
        assert (0, words[1] == "show") == (done.returncode, "unknown" in done.stdout)


def test_filters_that_can_not_be_read_are_not_missing(own: redis.Redis, own_url: str) -> None:
    own.set("{news}:config", "not ours")
    done = tbloom("list", "--url", own_url)
    assert (1, "") == (done.returncode, done.stdout.strip("[]\n"))
    assert "tbloom: news: " in done.stderr
    assert "no filters" not in done.stderr
