"""What a server has stored."""

from __future__ import annotations

from typing import Any

import redis


def snapshot(client: redis.Redis, name: str) -> dict[str, Any]:
    """What the server holds under the name, byte for byte."""
    keys = client.keys(f"*{name}*")
    return {key: client.execute_command("DUMP", key, NEVER_DECODE=True) for key in keys}


def outlives_a_clear(key: str | bytes) -> bool:
    """For an hour: the answers to calls, and the layout, which has the time of the clear."""
    name = key if isinstance(key, str) else key.decode()
    return ":lane:" in name or name.endswith(":layout")
