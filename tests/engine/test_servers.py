"""Servers and clients that can't do what is asked."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom import (
    AsyncTimeBloom,
    ConfigError,
    DistinctCounter,
    ExactFilter,
    ServerTooOld,
    TimeBloom,
)
from tests.helpers import servers
from tests.helpers.making import missing


def test_a_server_older_than_redis_6_2_is_refused(name: str) -> None:
    if not servers.OLD_BINARY:
        missing("An old server (TBLOOM_TEST_OLD_REDIS: path of a redis-server before 6.2)")
    with servers.local(servers.OLD_BINARY, protocol=2) as client:
        with pytest.raises(
            ServerTooOld, match=r"needs Redis 6\.2 or later.*this server is 5\.0\.6"
        ):
            TimeBloom(client, name).add("a")
        assert [] == client.keys()


@pytest.mark.parametrize(
    ("ours", "client"),
    [
        (TimeBloom, redis.asyncio.Redis),
        (TimeBloom, redis.asyncio.RedisCluster),
        (AsyncTimeBloom, redis.Redis),
        (ExactFilter, redis.asyncio.Redis),
        (DistinctCounter, redis.asyncio.Redis),
        (TimeBloom, object),
    ],
)
def test_a_client_of_the_wrong_kind_is_refused(ours: Any, client: Any, name: str) -> None:
    instance = client(host="127.0.0.1", port=1) if client is not object else object()
    with pytest.raises(
        ConfigError, match=f"^client: expected a redis-py client for {ours.__name__}"
    ):
        ours(instance, name)
