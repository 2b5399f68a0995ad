"""What a server holds, and how much it may."""

from __future__ import annotations

from typing import Any

import redis

from tests.helpers.localredis import LocalRedis


def contents(url: str) -> dict[Any, Any]:
    """All keys, byte for byte."""
    with redis.Redis.from_url(url) as client:
        return {key: client.dump(key) for key in client.scan_iter()}


def set_maxmemory(server: LocalRedis, to: int) -> None:
    """In bytes; 0: as much as there is."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", to)
