"""Clients of one filter, which are closed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from tbloom import TimeBloom


@pytest.fixture(params=[1, 3])
def open_client(
    request: Any, client: Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TimeBloom]]:
    """Opens clients of one filter, with one shard or three. Only a test sends heartbeats."""
    monkeypatch.setattr(TimeBloom, "_keep_session", lambda _: None)
    with ExitStack() as opened:

        def open_client(**more: Any) -> TimeBloom:
            size = {"capacity": 1000, "shards": request.param}
            return opened.enter_context(TimeBloom(client, name, **size, **more))

        yield open_client
