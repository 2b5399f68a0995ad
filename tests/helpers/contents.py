"""What a server holds."""

from __future__ import annotations

from typing import Any

import redis

from tbloom.engine.flow import text


def keys_of(client: redis.Redis, name: str = "") -> list[Any]:
    """The keys with this name in theirs, in order, but for those that hold calls' answers alone."""
    keys = client.scan_iter(f"*{name}*", 1000)
    return sorted(key for key in keys if not _has_answers_alone(client, key))


def snapshot(client: redis.Redis, name: str = "", *, lanes: bool = True) -> dict[Any, Any]:
    """What is stored under the name, byte for byte; ``lanes``: also calls' answers."""
    keys = client.scan_iter(f"*{name}*", 1000) if lanes else keys_of(client, name)
    return {
        key: without_lanes(client, key)
        if not lanes and text(key).endswith(":state") and text(client.type(key)) == "hash"
        else client.execute_command("DUMP", key, NEVER_DECODE=True)
        for key in keys
    }


def without_lanes(client: redis.Redis, state: Any) -> dict[str, Any]:
    """What a filter's state has beside its lanes."""
    fields = {text(field): value for field, value in client.hgetall(state).items()}
    return {field: value for field, value in fields.items() if not field.startswith("L")}


def _has_answers_alone(client: redis.Redis, key: Any) -> bool:
    if text(key).endswith(":state") and text(client.type(key)) == "hash":
        return not without_lanes(client, key)
    return ":lane:" in text(key)
