"""Make from the settings the Redis client and the duplicate filter's store, with errors that name the setting."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redis import Redis, RedisCluster, RedisError
from redis.exceptions import AuthenticationError, RedisClusterException
from redis.retry import Retry
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.bloom.config import Parameters
from tbloom.engine.client import RETRY_FOR
from tbloom.engine.urls import SOCKET_TIMEOUT, parse_url, without_retries, without_secrets
from tbloom.engine.urls import make_client as client_of
from tbloom.errors import ConfigError, ConfigMismatch, ServerTooOld, shown
from tbloom.scrapy.settings import (
    FILTER,
    MARK,
    OLD_SIZE,
    PAGES,
    SHARE,
    STORE,
    Setting,
    arguments,
    check_settings,
    expand,
    naming_settings,
)
from tbloom.scrapy.stores import AnyStore, CrawlBloom, CrawlExact, CrawlLocal, CrawlLocalClaims

# As Scrapy has it for other libraries: DEBUG says of scrapy-redis' connections that the server knows no maintenance notifications.
logging.getLogger("redis.connection").setLevel(logging.INFO)

#: Errors that redis-py raises for a parameter with a wrong name or value.
_WRONG = (TypeError, ValueError, AttributeError, LookupError, ImportError, NameError, OverflowError)
#: scrapy-redis' settings for redis-py's parameters.
_PARAMS = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
    "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}
REDIS = (*_PARAMS, "REDIS_PARAMS")
#: redis-py's parameters that name a server.
_PLACES = {"url", "host", "port", "unix_socket_path", "startup_nodes"}

DEFAULT_KEY = "%(spider)s:tbloom"
#: Default size of the local cache (items): 10 MB.
CACHE_SIZE = 100_000
#: The arguments of each store's class, by the values of TBLOOM_STORE.
_STORES = {
    "bloom": {*Parameters.__annotations__, "prefix", "retry_for", "session_ttl", "cache_size"},
    "exact": {"shards", "prefix", "retry_for", "ttl"},
    "local": {*Parameters.__annotations__, "path"},
}
#: The settings that any store allows: counters and page store have a use for them.
_SHARED = {"name", "prefix", "tz", "retry_for"}
# scrapy-redis-bloomfilter's defaults, where only the other one of the pair is set.
_OLD_BIT, _OLD_HASHES = 30, 6
_MIN_BIT, _MAX_BIT = 3, 40  # up to 256 blocks of 512 MB, as that package has it
#: What the kinds of stores are called, by what is stored; and which are filters.
_KINDS = {
    "filter": "a filter with slices",
    "exact": "an exact filter",
    "mapping": "a mapping of distinct counters",
    "integers": "distinct counters of integers",
}
_KIND_STORES = {"filter": "bloom", "exact": "exact"}
#: The error of scrapy-redis' queue. Errors about our own keys name them.
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


# The client


def make_client(settings: BaseSettings) -> tuple[Any, dict[str, float]]:
    """Return the client, and the store's default for ``retry_for`` where tbloom decides on it."""
    params = _params(settings)
    # scrapy-redis would wait 30 s for a reply, and block the reactor; and RESP3 costs two more round trips a connection.
    usual = {
        "encoding": "utf-8",
        "protocol": 2,
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": SOCKET_TIMEOUT,
    }
    named = {param: settings[name] for name, param in _PARAMS.items() if settings.get(name)}
    if settings.get("REDIS_URL") is not None:  # "" would mean the server on this machine
        named["url"] = settings["REDIS_URL"]
    chosen = {**usual, **params, **named}
    with naming_redis(settings):
        url, is_cluster = chosen.pop("url", None), False
        if url is not None:
            url, is_cluster = parse_url(url)
            client_of(Redis.from_url, Retry, url).close()  # it has checked the options
        kind: Any = load_object(chosen.pop("redis_cls", RedisCluster if is_cluster else Redis))
        chosen.setdefault("retry", without_retries(Retry))
        client = kind.from_url(url, **chosen) if url is not None else kind(**chosen)
        if not isinstance(client, Redis | RedisCluster):
            raise TypeError("redis_cls must be redis.Redis or redis.RedisCluster")
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # a cluster's client has connected
            pool.connection_class(**pool.connection_kwargs)  # which does not connect
    if pool is None or hasattr(pool, "sentinel_manager") or "retry" in params:
        return client, {}
    return client, {"retry_for": RETRY_FOR}


def check_server_of_queue(settings: BaseSettings) -> None:
    """Raise an error that names a wrong setting, or a cluster, on which scrapy-redis' queue does not run."""
    client, _ = make_client(settings)
    client.close()
    if isinstance(client, RedisCluster):
        expected = (
            "a single server, because scrapy-redis' queue does not run on a cluster; or remove SCHEDULER: with "
            f"{MARK.name} = 'done', crawlers of one spider share its pages without that queue"
        )
        if url := settings.get("REDIS_URL"):
            raise ConfigError("REDIS_URL", without_secrets(url), expected)
        raise ConfigError("REDIS_PARAMS", "redis.RedisCluster", expected)


def _params(settings: BaseSettings) -> dict[str, Any]:
    try:
        return dict(settings.getdict("REDIS_PARAMS"))
    except (TypeError, ValueError):  # its message may have a piece of a password
        given = type(settings["REDIS_PARAMS"])
        raise ConfigError("REDIS_PARAMS", given, "a dict, or one as JSON") from None


def server_settings(settings: BaseSettings) -> str:
    """Return the settings that name the server, as they are given, without a password."""
    params = _params(settings)
    given = {name: settings.get(name) for name, param in _PARAMS.items() if param in _PLACES}
    given |= {f"REDIS_PARAMS[{param!r}]": params[param] for param in params if param in _PLACES}
    named = [f"{name} is {_place(value)}" for name, value in given.items() if value]
    return ", ".join(named) or ("REDIS_PARAMS" if params else "REDIS_URL")


def _place(value: Any) -> str:
    if isinstance(value, str):
        return without_secrets(value) if "://" in value else value
    return shown(value)


@contextmanager
def naming_redis(settings: BaseSettings) -> Iterator[None]:
    """Raise a ConfigError that names the settings for Redis, where redis-py raises for a wrong parameter."""
    try:
        yield
    except ConfigError as error:
        if error.argument != "url":
            raise
        name = "REDIS_PARAMS" if settings.get("REDIS_URL") is None else "REDIS_URL"
        raise ConfigError(name, error.value, error.expected) from None
    except _WRONG as error:
        # A URL has been checked before.
        possible = {*_PARAMS, "REDIS_PARAMS"} - {"REDIS_URL"}
        names = sorted(name for name in possible if settings.get(name))
        if not names:
            raise
        expected = f"values that redis-py accepts ({error})"
        raise ConfigError(", ".join(names), "values that are not shown", expected) from None


# The store


@naming_settings(FILTER)
def make_store(settings: BaseSettings, spider: str, **own: Any) -> AnyStore:
    """Make the store that the settings of a crawl describe.

    :param spider: The spider's name.
    :param own: Arguments of the filter that override the settings.
    :raises ConfigError: if a setting can't be right; it names the setting.
    """
    check_settings(settings)
    store, mark = STORE.value(settings), MARK.value(settings)
    if mark == "done" and store == "exact":
        raise ConfigError(
            MARK.name,
            mark,
            f"'scheduled', with {STORE.name} = {store!r} (the add-on's default is 'done')",
        )
    found = arguments(settings, FILTER)
    if found.keys() & {"bits", "hashes"}:
        bit = found.get("bits", _OLD_BIT)
        if not isinstance(bit, int) or not _MIN_BIT <= bit <= _MAX_BIT:
            raise ConfigError("bits", bit, f"{_MIN_BIT} to {_MAX_BIT} (2**BIT bits a slice)")
        found["bits"] = 1 << bit
        found.setdefault("hashes", _OLD_HASHES)
    key = found.get("name", DEFAULT_KEY)
    name = expand(FILTER["name"], key, spider=spider, timestamp=int(time.time()))
    for argument in sorted(found.keys() - _STORES[store] - _SHARED):
        value = "a value that is not shown" if argument == "secret" else found[argument]
        raise ConfigError(argument, value, f"to be left out with {STORE.name} = {store!r}")
    found = {argument: found[argument] for argument in found.keys() & _STORES[store]}
    if store == "local":
        if "path" in found:
            found["path"] = expand(FILTER["path"], found["path"], spider=spider)
        kind = CrawlLocalClaims if mark == "done" else CrawlLocal
        return kind(name=name, **found)
    client, retry_for = make_client(settings)
    found = {**retry_for, **found, **own}
    if store == "bloom":
        found.setdefault("cache_size", CACHE_SIZE)
        if SHARE.value(settings) == "hosts":  # else each shard has its own owner of a host
            found.setdefault("shards", 1)
    seen = (CrawlBloom if store == "bloom" else CrawlExact)(client, name, **found)
    seen.keep_connections()
    return seen


# Errors


def asks_nobody(scheduler: type[Any]) -> ConfigError:
    """Return the error that a project's scheduler does not ask its dupefilter: nothing would be filtered."""
    # The add-on's subclass, of FilteringScheduler and the project's class, stands for the latter.
    kind = scheduler.__mro__[2] if scheduler.__module__ == "tbloom.scrapy" else scheduler
    place = f"{kind.__module__}.{kind.__qualname__}"
    return ConfigError("SCHEDULER", place, "a scheduler that opens and asks the DUPEFILTER_CLASS")


def check_mark(settings: BaseSettings, *, shares_queue: bool, has_add_on: bool) -> None:
    """Raise ConfigError for "done" with scrapy-redis' queue, or with DUPEFILTER_CLASS alone."""
    if settings.get(MARK.name) != "done":
        return
    if shares_queue:
        expected = (
            "'scheduled' with scrapy-redis' SCHEDULER; or remove SCHEDULER: with 'done', the add-on's default, crawlers of one "
            "spider share its pages without a queue in Redis"
        )
        raise ConfigError(MARK.name, "done", expected)
    if not has_add_on:
        expected = "'scheduled', or tbloom's add-on: ADDONS = {'tbloom.scrapy.Addon': 500}"
        raise ConfigError(MARK.name, "done", expected)


def why(error: BaseException) -> str:
    """Return in one line what code of the project has raised."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def error_line(
    error: Exception, settings: BaseSettings, table: Mapping[str, Setting] = FILTER
) -> str:
    """Return the error as one line of the log, from a setting to a remedy; ``table``: the settings of the store."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, ConfigMismatch) and "kind" in error.differences:
        return _kind_line(error, table)
    is_file = table is PAGES or (table is FILTER and STORE.value(settings) == "local")
    place = table["path" if is_file else "name"].name
    if isinstance(error, ConfigMismatch) and error.differences.keys() <= table.keys():
        return _mismatch_line(error, settings, table, place)
    if str(error) == _WRONG_TYPE:
        return (
            "SCHEDULER_QUEUE_KEY: the stored queue is not of the type that SCHEDULER_QUEUE_CLASS reads: set the class that has "
            "filled it, or delete the key"
        )
    is_servers = isinstance(error, RedisError | RedisClusterException | ServerTooOld)
    if is_servers and not str(error).startswith("WRONGTYPE"):
        place = server_settings(settings)
    if isinstance(error, AuthenticationError):
        return f"{place}: {_password_line(error, settings)}"
    return f"{place}: {error}"  # of a file, of a server, or of another program's data


def _password_line(error: Exception, settings: BaseSettings) -> str:
    """Return what the server says to the password, or to none, and where one is read."""
    if "password" in _params(settings) or "@" in (settings.get("REDIS_URL") or ""):
        return f"the server refuses the password ({error})"
    if settings.get("REDIS_PASSWORD"):
        remedy = "REDIS_PASSWORD has no effect: put it into REDIS_PARAMS, as 'password'"
    else:
        remedy = "REDIS_URL may have one: redis://:PASSWORD@host:6379/0"
    return f"the server wants a password ({remedy})"


def _kind_line(error: ConfigMismatch, table: Mapping[str, Setting]) -> str:
    """Return the line about a name that another kind of store has."""
    kind = error.differences["kind"][0]
    kind_name = _KINDS.get(kind, repr(kind))
    line = f"{table['name'].name}: {error.name!r} is the name of {kind_name}: take another name"
    if table is FILTER and kind in _KIND_STORES:
        line += f", or {STORE.name} = {_KIND_STORES[kind]!r}"
    return line


def _mismatch_line(
    error: ConfigMismatch, settings: BaseSettings, table: Mapping[str, Setting], place: str
) -> str:
    is_sized = any(name in settings for name in OLD_SIZE)
    # These parameters follow from the others.
    sizes = {"capacity", "error_rate"} if is_sized else {"bits", "hashes"}
    names = [name for name in error.differences if name not in sizes] or error.differences
    differing = {name: error.differences[name] for name in names}
    given = ", ".join(f"{table[name].name} is {own!r}" for name, (_, own) in differing.items())
    stored = ", ".join(f"{theirs!r}" for theirs, _ in differing.values())
    lines = ", ".join(f"{table[name].name} = {theirs!r}" for name, (theirs, _) in differing.items())
    remedy = f"another {place}"
    if "bits" not in differing:  # BLOOMFILTER_BIT makes only powers of two
        remedy += f", or {lines}"
    kind = "filter" if table is FILTER else "one"
    return f"{given}, the stored {kind} has {stored}: {remedy}"
