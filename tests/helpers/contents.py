"""What a server holds."""

from __future__ import annotations

from typing import Any

import redis

from tbloom.engine.flow import text


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
