"""The least-privilege users of SECURITY.md: their lines are read from there, and nothing in them can be left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import servers
from tests.helpers.contents import snapshot
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.stores import BLOOM, DISTINCT, EVERY_VERB, EXACT, STORES, Store

#: What a server says to a command that a user may not give, alone or in a script.
REFUSED = r"(?i)(?:permission|can't (?:run this command|access))"
TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
READER = "reader"
#: The line of each kind of store's user, and of a reader.
LINES: dict[Any, list[str]] = {
    user: line.split()
    for pattern, users in (("crawler", STORES), (READER, (READER,)))
    for user, line in zip(
        users, re.findall(rf"^ACL SETUSER {pattern} .*$", TEXT, re.MULTILINE), strict=True
    )
}
#: What the clients of the tests send by themselves.
CLIENTS = {"acl", "auth", "client", "config", "flushall", "hello", "script"}
PREFIX = re.search(r"in place of these patterns, `(.*?)`", TEXT)[1]
CLUSTER = re.search(r"a cluster `(.*?)`", TEXT)[1].split()
pytestmark = pytest.mark.usefixtures("away_from_midnight")


def _read(client: redis.Redis, name: str, shards: int) -> None:
    """Asks all that a reader may ask, of a filter that has grown, and of one that does not exist."""
    for own, items in ((name, 900), (f"{name}:none", 0)):
        with TimeBloom(client, own, capacity=200, shards=shards) as seen:
            assert seen.contains("7") == bool(items)
            assert seen.contains_many(["8", "other"]) == [bool(items), False]
            assert (seen.last_seen("9") is not None) == bool(items)
            assert seen.info().items == items


#: What each user does.
VERBS = {**EVERY_VERB, READER: _read}


@pytest.fixture
def admin(server: LocalRedis) -> Iterator[redis.Redis]:
    """A client that may do everything."""
    with redis.Redis.from_url(server.url) as client:
        yield client


def _set_user(
    admin: redis.Redis, name: str, user: Any, *more: str, without: str = "", shards: int = 1
) -> str:
    """Makes the documented user, but for one command, and what a reader reads; returns its URL."""
    admin.flushall()
    admin.script_flush()
    words = [re.sub("NAME|MAPPING", lambda _: name, word) for word in LINES[user]]
    words = [word.replace("PASSWORD", "pw") for word in words if word != f"+{without}"]
    if shards == 1 and f"~{{{name}:*" in words and user is not READER:
        words.remove(f"~{{{name}:*")
    admin.execute_command(*words[:3], "reset", *words[3:], *more)
    if user is READER:
        with TimeBloom(admin, name, capacity=200, shards=shards) as seen:
            seen.add_many(map(str, range(900)))
    port = admin.connection_pool.connection_kwargs["port"]
    return f"redis://{words[2]}:pw@127.0.0.1:{port}/0"


def _of(words: Iterable[str]) -> set[str]:
    """Commands without their subcommands, which Redis 6.2 does not count."""
    return {re.split(r"\W", word)[0] for word in words}


@pytest.mark.parametrize("user", LINES, ids=str)
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
def test_the_documented_user_can_do_everything(
    user: Any, admin: redis.Redis, name: str, shards: int
) -> None:
    """And no command of its line can be left out: all are used."""
    url = _set_user(admin, name, user, shards=shards)
    admin.config_resetstat()
    with redis.Redis.from_url(url) as client:
        VERBS[user](client, name, shards)
    used = _of(command.removeprefix("cmdstat_") for command in admin.info("commandstats"))
    assert _of(word[1:] for word in LINES[user] if word[0] == "+") == used - CLIENTS


@pytest.mark.parametrize(
    ("user", "command"),
    [(BLOOM, "pexpireat"), (EXACT, "zadd"), (DISTINCT, "eval"), (READER, "evalsha")],
    ids=str,
)
def test_a_missing_right_is_named(user: Any, admin: redis.Redis, name: str, command: str) -> None:
    """The error names the page with the rights, also without EVAL (StackExchange.Redis#2315)."""
    url = _set_user(admin, name, user, without=command)
    page = r".*\(SECURITY.md lists all rights that tbloom needs; the server's ACL LOG shows"
    with (
        redis.Redis.from_url(url) as client,
        pytest.raises(redis.ResponseError, match=f"{REFUSED}{page}"),
    ):
        VERBS[user](client, name, 1)
    if user == BLOOM:  # as the document warns
        assert -1 in [admin.ttl(key) for key in admin.scan_iter()]


def test_the_documented_reader_can_change_nothing(admin: redis.Redis, name: str) -> None:
    url = _set_user(admin, name, READER, shards=3)
    before = snapshot(admin)
    with TimeBloom.from_url(url, name, capacity=200, shards=3) as reader:
        for verb in (partial(reader.add, "new"), partial(reader.claim, "new"), reader.clear):
            with pytest.raises(redis.ResponseError, match=REFUSED):
                verb()
    assert before == snapshot(admin)


def test_the_documented_user_has_no_other_store(
    store: Store, admin: redis.Redis, name: str
) -> None:
    url = _set_user(admin, name, store)
    for other in (f"{name}2", f"x{name}", f"{name}:1"):
        with pytest.raises(redis.ResponseError, match=REFUSED):
            store.open(url, other).add("a")


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.check), 3])
def test_a_user_of_a_prefix_can_do_everything(
    store: Store, admin: redis.Redis, name: str, shards: int
) -> None:
    """With the pattern that the document names in place of the others. Without the prefix, nothing."""
    url = _set_user(admin, name, store, "resetkeys", PREFIX)
    with redis.Redis.from_url(url) as client:
        EVERY_VERB[store](client, name, shards, prefix=PREFIX[1:-1])
        with pytest.raises(redis.ResponseError, match=REFUSED):
            store.of_client(client, name).add("a")


def test_the_documented_user_of_a_cluster(name: str) -> None:
    with servers.Cluster(needed()) as cluster:
        for extra in ([], CLUSTER[:1], CLUSTER):
            for master in cluster.masters():
                _set_user(master, name, BLOOM, *extra, shards=3)
            url = cluster.url.replace("//", "//crawler:pw@")
            if extra == CLUSTER:
                with redis.RedisCluster.from_url(url.replace("redis+cluster", "redis")) as client:
                    EVERY_VERB[BLOOM](client, name, 6)
            else:
                with pytest.raises(Exception, match=REFUSED + "|cannot be connected"):
                    TimeBloom.from_url(url, name)
