"""What the error replies of servers mean: real servers say them, and each is in one of four tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tbloom.engine.retries import (
    ELSEWHERE,
    NO_ROOM,
    WAIT,
    _unwrapped,
    has_no_room,
    is_elsewhere,
    is_outage,
)
from tests.helpers.localredis import BINARIES
from tests.helpers.servers import local

#: What the caller or an operator has to mend: it stands in no table of tbloom's, and is raised.
CALLERS = (
    *("BUSYKEY", "CROSSSLOT", "DENIED", "ERR", "NOAUTH", "NOPERM"),
    *("NOPROTO", "NOSCRIPT", "WRONGPASS", "WRONGTYPE"),
)
#: Codes of commands that tbloom does not send: for streams, HyperLogLog, MIGRATE, FAILOVER, Sentinels, SCRIPT KILL, transactions,
#: commands that block, and CLIENT CAPA.
OTHERS = {
    *("BUSYGROUP", "EXECABORT", "INPROG", "INVALIDOBJ", "IOERR", "NOGOODPRIMARY", "NOGOODSLAVE"),
    *("NOGROUP", "NOMASTERLINK", "NOQUORUM", "NOTBUSY", "REDIRECT", "UNBLOCKED", "UNKILLABLE"),
}
#: A client, and a command that its server refuses sooner or later.
Said = tuple[redis.Redis, tuple[Any, ...]]

GET, SET = ("GET", "b"), ("SET", "b", "1")
#: Scripts that do the same.
GETS = ("EVAL", "return redis.call('GET', KEYS[1])", 1, "b")
SETS = ("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "b")
HGETS = ("EVAL", "redis.call('SET', KEYS[1], 1) return redis.call('HGET', KEYS[1], 'a')", 1, "b")
OTHER_SLOT = ("EVAL", "return redis.call('GET', 'a')", 1, "b")


#: Of clients that say an error at once. By default redis-py tries again for some seconds.
AT_ONCE = {"retry": Retry(NoBackoff(), 0)}


def error_of(client: redis.Redis, *words: Any) -> Exception | None:
    """The error of a command, as the drivers see it; None: it has none."""
    try:
        client.execute_command(*words)
    except redis.RedisError as error:
        return _unwrapped(error)
    return None


def another(client: redis.Redis) -> redis.Redis:
    """Another client of its server."""
    return redis.Redis(port=client.connection_pool.connection_kwargs["port"], **AT_ONCE)  # type: ignore[arg-type]


@contextmanager
def server(binary: str, *words: Any, at: tuple[str, ...] = (), **settings: Any) -> Iterator[Said]:
    """One with these settings; ``at``: options of its start."""
    with local(binary, *at) as client:
        if not settings:
            yield client, words
            return
        with client.client() as one:  # which lasts, also when no other can be made
            for name, value in settings.items():
                one.config_set(name.replace("_", "-"), value)
            yield one, words


@contextmanager
def replica(binary: str, *words: Any, stale: str = "yes") -> Iterator[Said]:
    """A replica whose master is away."""
    with local(binary, "--replica-serve-stale-data", stale) as client:
        client.replicaof("127.0.0.1", 1)
        yield client, words


@contextmanager
def crowded(binary: str, *at: str) -> Iterator[Said]:
    """A server that takes no more connections."""
    with server(binary, at=at, maxclients=1) as said, another(said[0]) as other:
        yield other, ("PING",)


@contextmanager
def one_slot(binary: str, *words: Any, **settings: str) -> Iterator[Said]:
    """A node of a cluster that has the slot of ``b``; nobody has another one."""
    with server(binary, *words, at=("--cluster-enabled", "yes"), **settings) as said:
        slot = said[0].execute_command("CLUSTER KEYSLOT", "b")
        said[0].execute_command("CLUSTER", "ADDSLOTS", slot)
        if "cluster_require_full_coverage" in settings:
            while error_of(said[0], *SET):
                sleep(0.01)
        yield said


READS = {"cluster_allow_reads_when_down": "yes"}
PARTIAL = {"cluster_require_full_coverage": "no"}
NOT_PRODUCED = "could not be produced"
#: Each text, without a code that redis-py takes off it; how a server is made to say it; and its table.
TEXTS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("BUSY Redis is busy running a script", NOT_PRODUCED, WAIT),
    ("LOADING Redis is loading the dataset in memory", NOT_PRODUCED, WAIT),
    ("TRYAGAIN Multiple keys request during rehashing", NOT_PRODUCED, WAIT),
    ("MOVED 1 127.0.0.1:6380", NOT_PRODUCED, ELSEWHERE),
    ("ASK 1 127.0.0.1:6380", NOT_PRODUCED, ELSEWHERE),
    ("MISCONF Errors writing to the AOF file: No space left on device", NOT_PRODUCED, NO_ROOM),
    ("Not enough good replicas", lambda b: server(b, *SETS, min_replicas_to_write=1), WAIT),
    ("max number of clients reached", crowded, WAIT),
    ("max number of clients . cluster", lambda b: crowded(b, "--cluster-enabled", "yes"), WAIT),
    ("on a stale replica", NOT_PRODUCED, ELSEWHERE),
    ("^The cluster is down$", lambda b: one_slot(b, *SETS), WAIT),
    ("The cluster is down and only", lambda b: one_slot(b, *SET, **READS), WAIT),
    ("while the cluster is down and readonly", lambda b: one_slot(b, *SETS, **READS), WAIT),
    ("Script attempted to execute a command while the cluster is down", NOT_PRODUCED, WAIT),
    ("Can not execute a command 'set' while the cluster is down", NOT_PRODUCED, WAIT),
    ("Hash slot not served", lambda b: one_slot(b, "GET", "a", **PARTIAL), WAIT),
    # Redis 8.2 and Valkey 8.1 say these two where other versions speak of a non local key.
    ("access a slot not served", NOT_PRODUCED, WAIT),
    ("undeclared keys were accessed during rehashing", NOT_PRODUCED, WAIT),
    ("ccess a non local key", lambda b: one_slot(b, *OTHER_SLOT, **PARTIAL), ELSEWHERE),
    ("You can't write against a read only", lambda b: replica(b, *SETS), ELSEWHERE),
    ("Link with MASTER is down", lambda b: replica(b, *GETS, stale="no"), ELSEWHERE),
    ("command not allowed when used memory", lambda b: server(b, *SETS, maxmemory=1), NO_ROOM),
    ("uthenticat", lambda b: server(b, *GET, at=("--requirepass", "a")), CALLERS),
    ("^invalid username-password pair", lambda b: server(b, "AUTH", "a", "b"), CALLERS),
    ("^WRONGTYPE ", lambda b: server(b, *HGETS), CALLERS),
    ("^No matching script", lambda b: server(b, "EVALSHA", "0" * 40, 0), CALLERS),
    ("^DENIED .* in protected mode", NOT_PRODUCED, CALLERS),
    # Of twemproxy and Envoy.
    ("Connection timed out", NOT_PRODUCED, WAIT),
    ("^unknown$", NOT_PRODUCED, WAIT),
    ("^upstream failure", NOT_PRODUCED, WAIT),
    ("^no upstream host", NOT_PRODUCED, WAIT),
]  # fmt: skip


def _is_cut(error: Exception) -> bool:
    """Whether there is no connection, or the server has ended it before its reply was read."""
    return any(each in str(error) for each in ("connecting to", "Broken pipe", "reset by peer"))


@pytest.mark.parametrize(("text", "say", "table"), TEXTS, ids=[text for text, *_ in TEXTS])
def test_an_error_is_in_its_table(
    binary: str, text: str, say: Callable[[str], Any] | str, table: tuple[str, ...]
) -> None:
    """Those of proxies, too (envoy#21352, istio#37630)."""
    error: Exception | None = redis.ResponseError(text.strip("^$").replace(".*", "it is"))
    if not isinstance(say, str):
        with say(binary) as said:
            client, words = said
            for _ in range(500):
                if (error := error_of(client, *words)) and not _is_cut(error):
                    break
                sleep(0.01)  # it says nothing yet, or can't be reached
    assert error
    said_instead = [each for each in TEXTS if each[1] is NOT_PRODUCED and each[0] in str(error)]
    [(text, _, table)] = said_instead or [(text, None, table)]
    if str(error) == "Connection closed by server." or _is_cut(error):
        # redis-py 5 passes over what a server says before it closes the connection, or has closed it. That is an outage as well.
        assert (table, True) == (WAIT, is_outage(error))
        return
    # redis-py 5 takes fewer codes off the texts.
    assert re.search(text.replace("^", "^(?:[A-Z]+ )?"), str(error))
    tables = is_outage(error), is_elsewhere(error), has_no_room(error)
    assert tables == (table in (WAIT, ELSEWHERE), table is ELSEWHERE, table is NO_ROOM)


@pytest.mark.parametrize("kind", BINARIES)
def test_each_code_of_a_server_is_in_one_table(kind: str) -> None:
    """A new server's codes are found in its program."""
    found = re.findall(rb"\0-([A-Z]{3,}) ", Path(BINARIES[kind]).read_bytes())
    codes = {code.decode() for code in found}
    assert {"LOADING", "NOSCRIPT", "READONLY"} <= codes
    known = [*WAIT, *ELSEWHERE, *NO_ROOM, *CALLERS, *OTHERS]
    assert len(known) == len({*known})
    assert codes <= {*known}
