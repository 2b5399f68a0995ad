"""What a server holds, and how much it may."""

from __future__ import annotations

from typing import Any

import redis

from tbloom.engine.flow import text
from tests.helpers.localredis import LocalRedis


def keys_of(client: redis.Redis, name: str = "") -> list[Any]:
    """The keys with this name in theirs, in order, but for calls' answers."""
    keys = client.scan_iter(f"*{name}*", 1000)
    return sorted(key for key in keys if ":lane:" not in text(key))


def snapshot(client: redis.Redis, name: str = "", *, lanes: bool = True) -> dict[Any, Any]:
    """What is stored under the name, byte for byte; ``lanes``: also calls' answers."""
    keys = client.scan_iter(f"*{name}*", 1000) if lanes else keys_of(client, name)
    return {key: client.execute_command("DUMP", key, NEVER_DECODE=True) for key in keys}


def contents(url: str) -> dict[Any, Any]:
    """All that a server has stored, byte for byte."""
    with redis.Redis.from_url(url) as client:
        return snapshot(client)


def set_maxmemory(server: LocalRedis, to: int) -> None:
    """In bytes; 0: as much as there is."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", to)
