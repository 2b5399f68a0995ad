"""A server whose memory is full (``noeviction``): one message that says what to do, and what frees memory works."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError
from scrapy import Request, Spider
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import write_note
from tests.helpers.commands import refused, tbloom
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.stores import BLOOM, Store

ITEMS = [*map(str, range(3000))]
#: What every error says.
WORDS = "the server's memory is full", "raise its maxmemory", "tbloom clear"


@pytest.fixture
def full(server: LocalRedis) -> Iterator[Callable[[], Any]]:
    """Makes the server's memory full, within a block."""
    with redis.Redis.from_url(server.url) as client:

        @contextmanager
        def full() -> Iterator[None]:
            client.config_set("maxmemory", 1)
            try:
                yield
            finally:
                client.config_set("maxmemory", 0)

        yield full


@pytest.fixture
def seen(store: Store, server: LocalRedis, name: str, driver: str) -> Any:
    """A store of each kind, in shards; its verbs are awaited."""
    return store.awaited(server.url, name, driver=driver, **store.sharded)


async def test_an_error_says_what_to_do(seen: Any, full: Any) -> None:
    """Also of a script that the server does not know; once there is room, the same items get their first answers."""
    with full():
        for add in (seen.add_many(ITEMS), seen.add("a")):
            with pytest.raises(OutOfMemoryError) as raised:
                await add
            assert [] == [word for word in WORDS if word not in str(raised.value)]
    assert sum(await seen.add_many(ITEMS)) >= len(ITEMS) - 1
    assert await seen.add("a")


async def test_clear_works(
    seen: Any, store: Store, server: LocalRedis, name: str, full: Any
) -> None:
    """And ``discard``; and in another object, also if the stored filter has other parameters, or there is none."""
    await seen.add_many(ITEMS)
    with full():
        if store is not BLOOM:
            assert await seen.discard_many([*ITEMS[:100], "none"]) == [True] * 100 + [False]
        await seen.clear()
        assert await seen.contains_many(ITEMS) == [False] * len(ITEMS)
    await seen.add_many(ITEMS)
    with full():
        for _ in range(2):
            store.open(server.url, name).clear()
        assert store.held(store.open(server.url, name)) == 0
    assert await seen.add("7")


def test_commands_say_how_far_they_came(
    server: LocalRedis, name: str, full: Any, tmp_path: Path
) -> None:
    """And the exact filter, the counter and the filter can be cleared then."""
    url = "--url", server.url
    file = tmp_path / "requests.seen"
    file.write_text("".join(f"{i:040x}\n" for i in range(3000)))
    mapping = "--mapping", f"{name}-count"
    TimeBloom.from_url(server.url, name).add("a")
    with DistinctCounter.from_url(server.url, "urls", mapping[1]) as counter:
        counter.add("x")
    with full():
        added = tbloom("add", name, *url, stdin="x\ny\n")
        assert "script" not in refused(added, *WORDS, "before that: 0 lines answered, 0 new")
        imported = tbloom("migrate", name, *url, "--from-seen", file)
        refused(imported, *WORDS, "before that: 0 items read, 0 new")
        assert tbloom("count", "clear", "urls", *mapping, *url, "--yes").returncode == 0
        assert tbloom("clear", name, *url, "--yes").returncode == 0


@pytest.mark.check
def test_a_file_of_which_a_part_fits(server: LocalRedis, name: str, tmp_path: Path) -> None:
    """The lines that were added are printed, and the error counts them; the same command adds the others."""
    lines = [f"https://example.com/{i}" for i in range(40_000)]
    (tmp_path / "urls.txt").write_text("\n".join(lines))
    command = "add", name, tmp_path / "urls.txt", "--create", "--url", server.url
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 200_000)
        try:
            done = tbloom(*command)
        finally:
            client.config_set("maxmemory", 0)
    added = done.stdout.splitlines()
    assert done.returncode == 2
    assert 0 < len(added) < len(lines)
    assert done.stderr.endswith(f"{len(added):,} new\n"), done.stderr
    others = tbloom(*command).stdout.splitlines()
    assert {*added}.isdisjoint(others)
    assert len(added) + len(others) >= len(lines) - 20


@pytest.mark.check
def test_what_is_planned_has_room_for_pages_that_wait(name: str) -> None:
    """In a server with the memory that was asked for: all that ``tbloom plan`` promises, beside the whole window."""
    plan = json.loads(tbloom("plan", "--memory", "32MB", "--slices", "1", "--json").stdout)
    spider, pages = Spider("shop"), range(plan["waiting_pages"])
    with (
        LocalRedis(needed(), "--maxmemory", "32mb") as server,
        TimeBloom.from_url(server.url, name, capacity=plan["capacity"], slices=1) as seen,
    ):
        for number in range(100):  # each of its shards, to the last block
            seen.add_many(map(str, range(1000 * number, 1000 * (number + 1))))
        info = seen.info()
        assert sum(each.bytes for each in info.slices) > 0.99 * plan["window_bytes"]
        url = "https://www.example.com/catalogue/some-category/product-"
        requests = [Request(f"{url}{number}/index.html", meta={"depth": 3}) for number in pages]
        items = [*map(fingerprint, requests)]
        notes = [
            write_note(request, Token("", (item.hex(),)), spider, "shop", one_owner=False)
            for request, item in zip(requests, items, strict=True)
        ]
        assert all(seen.push_many(items, notes))
