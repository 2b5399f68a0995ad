"""On every server and kind of client; and on servers that can't do what is asked."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom import AsyncTimeBloom, ConfigError, ServerTooOld, TimeBloom
from tests.helpers import servers
from tests.helpers.kinds import _client
from tests.helpers.making import Make, missing


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("hiredis", [False, True])
def test_every_verb_on_every_server_and_client(
    each_server: str, name: str, *, decode: bool, protocol: int, hiredis: bool
) -> None:
    with _client(each_server, decode=decode, protocol=protocol, hiredis=hiredis) as client:
        client.script_flush()
        seen = TimeBloom(client, name, capacity=1000)
        assert [True, False] == [seen.add("a"), seen.add("a")]
        assert [False, True] == seen.add_many(["a", "b"])
        assert ("a" in seen, seen.contains_many(["b", "c"])) == (True, [True, False])
        info = seen.info()
        assert (2, 0) == (info.items, info.slices[0].items)
        assert seen.keys()[-1] == f"{{{name}}}:{info.slices[-1].label}"
        seen.clear()
        assert "a" not in seen
        client.rpush(f"{{{name}}}:config", "x")
        with pytest.raises(redis.ResponseError, match="holds a list"):
            seen.add("a")
        client.delete(f"{{{name}}}:config")


@pytest.mark.parametrize("part", ["config", "current", "older"])
async def test_a_key_of_another_type_is_named(
    make: Make, client: redis.Redis, name: str, part: str
) -> None:
    """Somebody else's list stands where a key of ours should be; nothing is changed."""
    seen = make()
    keys = await seen.keys()
    key = {"config": f"{{{name}}}:config", "current": keys[-1], "older": keys[2]}[part]
    client.rpush(key, "theirs")
    for verb, items in (("add", "a"), ("add_many", ["a", "b"]), ("contains", "a")):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE") as caught:
            await getattr(seen, verb)(items)
        assert f"key '{key}' holds a list" in str(caught.value)
    assert [key] == client.keys(f"*{name}*")


def test_a_server_out_of_memory_is_left_as_it_was(each_server: str, name: str) -> None:
    with redis.Redis.from_url(each_server) as client:
        seen = TimeBloom(client, name, capacity=1000)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (1 << 20))
        client.set("filler", b"x")
        try:
            while True:
                client.append("filler", b"x" * 100_000)
        except OutOfMemoryError:
            pass
        # Redis 6.2 refuses the script itself, later ones its first write.
        with pytest.raises(OutOfMemoryError):
            seen.add("a")
        with pytest.raises(OutOfMemoryError):
            seen.add_many(map(str, range(2000)))
        assert [] == client.keys(f"*{name}*")
        client.delete("filler")
        client.config_set("maxmemory", "0")
        assert seen.add("a") is True


def test_a_read_only_replica_answers_contains_and_refuses_add(each_server: str, name: str) -> None:
    with redis.Redis.from_url(each_server) as client:
        seen = TimeBloom(client, name, capacity=1000)
        seen.add("a")
        client.replicaof("127.0.0.1", "1")  # nobody there: it keeps its data, and becomes read-only
        try:
            assert [True, False] == ["a" in seen, "b" in seen]
            assert seen.add("a") is False  # changes nothing, so a replica may say so
            with pytest.raises(ReadOnlyError):
                seen.add("b")
        finally:
            client.replicaof("NO", "ONE")
        assert seen.add("b") is True


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
        (TimeBloom, object),
    ],
)
def test_a_client_of_the_wrong_kind_is_refused(ours: Any, client: Any, name: str) -> None:
    instance = client(host="127.0.0.1", port=1) if client is not object else object()
    with pytest.raises(
        ConfigError, match=f"^client: expected a redis-py client for {ours.__name__}"
    ):
        ours(instance, name)


@pytest.mark.parametrize("url", ["http://127.0.0.1", "", None, "127.0.0.1:6379"])
def test_a_url_that_is_not_redis_is_refused(url: Any, name: str) -> None:
    for ours in (TimeBloom, AsyncTimeBloom):
        with pytest.raises(ConfigError, match=r"^url: expected a URL that starts with redis://"):
            ours.from_url(url, name)


def test_no_server_is_redis_pys_error(name: str) -> None:
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    client = redis.Redis(host="127.0.0.1", port=1, retry=retry)
    with pytest.raises(redis.ConnectionError):
        TimeBloom(client, name).add("a")
