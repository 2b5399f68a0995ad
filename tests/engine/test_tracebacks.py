"""The traceback that a user sees when Redis is down."""

from __future__ import annotations

import asyncio
import traceback

import pytest
import redis

from tbloom import AsyncTimeBloom, TimeBloom

NOWHERE = "redis://127.0.0.1:1"


def test_a_traceback_names_the_verb_and_opens_with_the_connection() -> None:
    seen = TimeBloom.from_url(NOWHERE, "news", retry_for=0.01)
    with pytest.raises(redis.ConnectionError) as raised:
        seen.add("a")
    text = "".join(traceback.format_exception(raised.value))
    assert ", in add\n" in text
    assert "empty deque" not in text


def test_an_awaited_verb_is_named_too() -> None:
    async def main() -> None:
        async with AsyncTimeBloom.from_url(NOWHERE, "news", retry_for=0.01) as seen:
            await seen.add_many(["a"])

    with pytest.raises(redis.ConnectionError) as raised:
        asyncio.run(main())
    assert ", in add_many\n" in "".join(traceback.format_exception(raised.value))
