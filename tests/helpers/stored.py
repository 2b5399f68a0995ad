"""What a server has stored."""

from __future__ import annotations

from typing import Any

import redis


def snapshot(client: redis.Redis, name: str) -> dict[str, Any]:
    """What the server holds under the name, byte for byte."""
    keys = client.keys(f"*{name}*")
    return {key: client.execute_command("DUMP", key, NEVER_DECODE=True) for key in keys}
