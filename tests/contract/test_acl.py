"""The least-privilege users of SECURITY.md: their lines are read from there, and nothing in them can be left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from tbloom import NotReplicated, TimeBloom
from tests.helpers import servers
from tests.helpers.contents import snapshot
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import cluster_needed
from tests.helpers.stores import BLOOM, DISTINCT, STORES, Store
from tests.helpers.verbs import EVERY_VERB

#: What a server says to a command that a user may not give, alone or in a script.
REFUSED = r"(?i)permission|can't (?:run this command|access)"
TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
#: One line for each kind of store.
LINES = {
    store: line.split()
    for store, line in zip(
        STORES, re.findall(r"^ACL SETUSER crawler .*$", TEXT, re.MULTILINE), strict=True
    )
}
READER = re.search(r"^ACL SETUSER reader .*$", TEXT, re.MULTILINE)[0].split()
COMMANDS = [
    pytest.param(store, word[1:], id=f"{store}-{word[1:]}")
    for store, line in LINES.items()
    for word in line
    if word.startswith("+")
]
CLUSTER = re.search(r"a cluster `(.*?)`", TEXT)[1].split()


@pytest.fixture
def admin(server: LocalRedis) -> Iterator[redis.Redis]:
    """A client that may do everything."""
    with redis.Redis.from_url(server.url) as client:
        yield client


def _set_user(
    admin: redis.Redis,
    name: str,
    *more: str,
    store: Store = BLOOM,
    without: str = "",
    shards: int = 3,
    line: list[str] | None = None,
) -> str:
    """Makes the documented user of a store, but for one command; returns its URL."""
    admin.flushall()
    admin.script_flush()
    words = [re.sub("NAME|MAPPING", lambda _: name, word) for word in line or LINES[store]]
    words = [word.replace("PASSWORD", "pw") for word in words if word != f"+{without}"]
    if shards == 1 and store is not DISTINCT:
        words.remove(f"~{{{name}:*")
    admin.execute_command(*words[:3], "reset", *words[3:], *more)
    port = admin.connection_pool.connection_kwargs["port"]
    return f"redis://{words[2]}:pw@127.0.0.1:{port}/0"


@pytest.mark.parametrize("shards", [1, 3])
def test_the_documented_user_can_do_everything(
    store: Store, admin: redis.Redis, name: str, shards: int
) -> None:
    with redis.Redis.from_url(_set_user(admin, name, store=store, shards=shards)) as client:
        EVERY_VERB[store](client, name, shards)


@pytest.mark.parametrize(("store", "command"), COMMANDS, indirect=["store"])
def test_no_documented_command_can_be_left_out(
    store: Store, admin: redis.Redis, name: str, command: str
) -> None:
    url = _set_user(admin, name, store=store, without=command)
    with (
        redis.Redis.from_url(url) as client,
        pytest.raises(redis.ResponseError, match=REFUSED) as caught,
    ):
        EVERY_VERB[store](client, name, 1)
    assert "(SECURITY.md has all rights that are needed; the server's ACL LOG says" in str(
        caught.value
    )
    if (store, command) == (BLOOM, "pexpireat"):  # as the document warns
        assert -1 in [admin.ttl(key) for key in admin.scan_iter()]


def _read(url: str, name: str) -> None:
    """Asks all that a reader may ask, of filters that have grown, and of one that does not exist."""
    for own, shards, items in ((name, 1, 900), (f"{name}:3", 3, 900), (f"{name}:none", 3, 0)):
        with TimeBloom.from_url(url, own, capacity=200, shards=shards) as seen:
            assert seen.contains("7") == bool(items)
            assert seen.contains_many(["8", "other"]) == [bool(items), False]
            assert (seen.last_seen("9") is not None) == bool(items)
            assert seen.info().items == items


def _set_reader(server: LocalRedis, admin: redis.Redis, name: str, *, without: str = "") -> str:
    """Makes the documented reader, but for one command, and the filters; returns its URL."""
    url = _set_user(admin, name, line=READER, without=without)
    for own, shards in ((name, 1), (f"{name}:3", 3)):
        with TimeBloom.from_url(server.url, own, capacity=200, shards=shards) as seen:
            seen.add_many(map(str, range(900)))
    return url


def test_the_documented_reader_can_read_and_change_nothing(
    server: LocalRedis, admin: redis.Redis, name: str
) -> None:
    url = _set_reader(server, admin, name)
    _read(url, name)
    before = snapshot(admin)
    for own, shards in ((name, 1), (f"{name}:3", 3)):
        with TimeBloom.from_url(url, own, capacity=200, shards=shards) as reader:
            verbs = partial(reader.add, "new"), partial(reader.claim, "new"), reader.clear
            for verb in verbs:
                with pytest.raises(redis.ResponseError, match=REFUSED):
                    verb()
    assert before == snapshot(admin)


@pytest.mark.parametrize("command", [word[1:] for word in READER if word[0] == "+"])
def test_no_documented_command_of_a_reader_can_be_left_out(
    server: LocalRedis, admin: redis.Redis, name: str, command: str
) -> None:
    url = _set_reader(server, admin, name, without=command)
    with pytest.raises(redis.ResponseError, match=REFUSED):
        _read(url, name)


def test_the_documented_user_has_no_other_store(
    store: Store, admin: redis.Redis, name: str
) -> None:
    url = _set_user(admin, name, store=store, shards=1)
    for other in (f"{name}2", f"x{name}", f"{name}:1"):
        with pytest.raises(redis.ResponseError, match=REFUSED):
            store.open(url, other).add("a")


def test_the_documented_user_of_a_cluster(name: str) -> None:
    with servers.Cluster(cluster_needed()) as cluster:
        for extra in ([], CLUSTER[:1], CLUSTER):
            for master in cluster.masters():
                _set_user(master, name, *extra)
            url = cluster.url.replace("//", "//crawler:pw@")
            if extra == CLUSTER:
                with redis.RedisCluster.from_url(url.replace("redis+cluster", "redis")) as client:
                    EVERY_VERB[BLOOM](client, name, 6)
            else:
                with pytest.raises(Exception, match=REFUSED + "|cannot be connected"):
                    TimeBloom.from_url(url, name)


def test_answers_wait_for_replicas_with_one_more_right(admin: redis.Redis, name: str) -> None:
    """Without it, the error names the command, and SECURITY.md."""
    [right] = re.findall(r"`replicas=` needs `(.*?)`", TEXT)
    waiting = {"replicas": 1, "capacity": 1000, "retry_for": 0}
    with (
        TimeBloom.from_url(_set_user(admin, name), name, **waiting) as seen,
        pytest.raises(redis.exceptions.NoPermissionError, match=r"wait.*SECURITY\.md"),
    ):
        seen.add("a")
    with (
        TimeBloom.from_url(_set_user(admin, name, right), name, **waiting) as seen,
        pytest.raises(NotReplicated, match="0 of 1 replicas"),
    ):
        seen.add("a")
