"""A filter that an earlier version of tbloom has written: it is named as such, refused, and can be removed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TimeBloom
from tbloom.engine.keys import Keys
from tests.helpers.commands import refused, tbloom

LABELS = "20190507", "20190508", "20190508:1"
PARAMETERS = {
    "layout": 1, "hash": "mmh3_x64_128", "bits": 19170117, "hashes": 13, "capacity": 1000000,
    "granularity": "d", "slices": 7, "tz": "UTC", "shards": 1, "grow": True,
}  # fmt: skip


@pytest.fixture(params=[1, 3])
def earlier(request: pytest.FixtureRequest, client: redis.Redis, name: str) -> list[str]:
    """The keys of a filter, as layout 1 had them."""
    shards: int = request.param
    stored = json.dumps({**PARAMETERS, "shards": shards}, separators=(",", ":"))
    keys = Keys(name, shards)
    client.set(keys.root, stored, ex=600)
    for shard in range(shards):
        client.set(keys.config(shard), stored, ex=600)
        client.set(keys.layout(shard), "1557273600000000;20190508=1:8:1,2:16:1", ex=600)
        for label in LABELS:
            part = keys.slice(label, shard)
            client.setbit(part, 70, 1)
            client.hset(keys.register(shard), part, 1557792000000)
        client.hset(keys.register(shard), "another program's", "x")
        client.hset(keys.claims(shard), "c" * 16, "d" * 28)
        client.hset(keys.sessions(shard), "e" * 16, 1557792000000)
    return kept(client, name)


def kept(client: redis.Redis, name: str) -> list[str]:
    """The keys of the filter."""
    return sorted(client.scan_iter(f"{{{name}*"))


def test_its_version_is_named(url: str, client: redis.Redis, earlier: list[str], name: str) -> None:
    with TimeBloom.from_url(url, name) as seen:
        for verb in (lambda: seen.add("a"), seen.info, seen.reconfigure):
            with pytest.raises(ConfigMismatch, match="was written by an earlier version of tbloom"):
                verb()
    for command in ("info", "export", "check"):
        words = [command, name, "-"] if command == "export" else [command, name]
        refused(tbloom(*words, "--url", url), "an earlier version wrote this one", "tbloom clear")
    assert kept(client, name) == earlier


@pytest.mark.parametrize("by", ["clear()", "tbloom clear"])
def test_a_filter_of_an_earlier_version_is_removed(
    by: str, url: str, client: redis.Redis, earlier: list[str], name: str
) -> None:
    assert len(earlier) > len(LABELS)
    foreign = f"{{{name}}}:another"
    client.set(foreign, "x", ex=600)
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        if by == "clear()":
            seen.clear()
        else:
            refused(tbloom("clear", name, "--url", url), "--yes")
            assert tbloom("clear", name, "--url", url, "--yes").returncode == 0
        lanes = [key for key in kept(client, name) if ":lane:" in key]
        assert kept(client, name) == sorted([foreign, *lanes])
        assert seen.add("a")
        seen.clear()


@pytest.mark.parametrize(
    "odd", [{"layout": 3}, {"layout": 0}, {"layout": "1"}, {"shards": 0}, {"shards": "1"}]
)
def test_what_no_version_wrote_stays(
    url: str, client: redis.Redis, name: str, odd: dict[str, Any]
) -> None:
    stored = json.dumps({**PARAMETERS, **odd})
    client.set(Keys(name).root, stored, ex=600)
    with TimeBloom.from_url(url, name) as seen, pytest.raises(ConfigError, match="can read in"):
        seen.clear()
    assert client.get(Keys(name).root) == stored
