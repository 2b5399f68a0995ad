"""The Redis client that scrapy-redis' settings describe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis, RedisCluster
from redis.retry import Retry
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.engine.client import RETRY_FOR
from tbloom.engine.urls import SOCKET_TIMEOUT, parse_url, without_retries, without_secrets
from tbloom.engine.urls import make_client as client_of
from tbloom.errors import ConfigError, shown

# As Scrapy has it for other libraries. At each start redis-py's DEBUG says that the server knows no maintenance notifications.
logging.getLogger("redis.connection").setLevel(logging.INFO)

#: What redis-py raises where a parameter has a wrong name or value.
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
#: redis-py's parameters that name a server.
_PLACES = {"url", "host", "port", "unix_socket_path", "startup_nodes"}


def make_client(settings: BaseSettings) -> tuple[Any, dict[str, float]]:
    """The client, and the store's default for ``retry_for`` where tbloom decides on it."""
    try:
        params = settings.getdict("REDIS_PARAMS")
    except (TypeError, ValueError):  # its message may have a piece of a password
        shown = type(settings["REDIS_PARAMS"])
        raise ConfigError("REDIS_PARAMS", shown, "a dict, or one as JSON") from None
    # scrapy-redis would wait 30 s for a reply, and block the reactor.
    timeouts = {"socket_timeout": SOCKET_TIMEOUT, "socket_connect_timeout": SOCKET_TIMEOUT}
    named = {param: settings[name] for name, param in _PARAMS.items() if settings.get(name)}
    chosen = {"encoding": "utf-8", **timeouts, **params, **named}
    with naming_redis(settings):
        kind = load_object(chosen.pop("redis_cls", Redis))
        url = chosen.pop("url", None)
        if url is not None:
            parse_url(url)
            client_of(Redis.from_url, Retry, url).close()  # it has checked the options
        client = kind.from_url(url, **chosen) if url is not None else kind(**chosen)
        if not isinstance(client, Redis | RedisCluster):
            raise TypeError("redis_cls must be redis.Redis or redis.RedisCluster")
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # a cluster's client has connected
            pool.connection_class(**pool.connection_kwargs)  # which does not connect
    if pool is None or hasattr(pool, "sentinel_manager") or "retry" in params:
        return client, {}
    client.set_retry(without_retries(Retry))
    return client, {"retry_for": RETRY_FOR}


def server_settings(settings: BaseSettings) -> str:
    """The settings that name the server, as they are given, without a password."""
    params = settings.getdict("REDIS_PARAMS")
    given = {name: settings.get(name) for name, param in _PARAMS.items() if param in _PLACES}
    given |= {f"REDIS_PARAMS[{param!r}]": params[param] for param in params if param in _PLACES}
    named = [f"{name} is {_place(value)}" for name, value in given.items() if value]
    return ", ".join(named) or ("REDIS_PARAMS" if params else "REDIS_URL")


def _place(value: Any) -> str:
    if isinstance(value, str):
        return without_secrets(value) if "://" in value else value
    return shown(value)


def address_of(client: Any) -> str:
    """Where the client's server is, without a password."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "a cluster"
    known = pool.connection_kwargs
    host = f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    place: str = getattr(pool, "service_name", None) or known.get("path") or host
    return f"{place}/{known.get('db') or 0}"


@contextmanager
def naming_redis(settings: BaseSettings) -> Iterator[None]:
    """Within it, what redis-py raises for a wrong parameter is a ConfigError that names the settings for Redis."""
    try:
        yield
    except ConfigError as error:
        if error.argument != "url":
            raise
        name = "REDIS_URL" if settings.get("REDIS_URL") else "REDIS_PARAMS"
        raise ConfigError(name, error.value, error.expected) from None
    except _WRONG as error:
        # A URL has been checked before.
        possible = {*_PARAMS, "REDIS_PARAMS"} - {"REDIS_URL"}
        names = sorted(name for name in possible if settings.get(name))
        if not names:
            raise
        expected = f"what redis-py takes ({error})"
        raise ConfigError(", ".join(names), "values that are not shown", expected) from None
