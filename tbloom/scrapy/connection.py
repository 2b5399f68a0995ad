"""The Redis client that scrapy-redis' settings describe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis, RedisCluster, RedisError, SSLConnection
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from tbloom.engine.client import RETRY_FOR
from tbloom.engine.urls import SOCKET_TIMEOUT, parse_url
from tbloom.engine.urls import make_client as client_of
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.settings import Setting, naming_settings

# As Scrapy has it for other libraries. At each start redis-py's DEBUG says that the server knows no maintenance notifications.
logging.getLogger("redis.connection").setLevel(logging.INFO)

#: What a client raises where a parameter has a wrong name or value.
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
#: The settings with one value: what raises such an error for a wrong one, and what would be right.
_CHECKS: dict[str, tuple[Callable[[Any], object], str]] = {
    "REDIS_HOST": (lambda host: host.encode("idna"), "the name or address of a host"),
    "REDIS_PORT": (lambda port: range(1, 65536).index(int(port)), "a whole number from 1 to 65535"),
    "REDIS_DB": (lambda number: range(1 << 31).index(int(number)), "a whole number from 0"),
    "REDIS_ENCODING": ("".encode, "the name of an encoding"),
}


def make_client(settings: BaseSettings) -> tuple[Any, dict[str, float]]:
    """The client, and the store's default for ``retry_for`` where tbloom decides on it."""
    for name, (check, expected) in _CHECKS.items():
        value = settings.get(name)
        try:
            if value:  # scrapy-redis ignores any other
                check(value)
        except _WRONG:
            raise ConfigError(name, value, expected) from None
    if url := settings.get("REDIS_URL"):
        with naming_settings({"url": Setting("REDIS_URL")}):
            parse_url(url)
            client_of(Redis.from_url, Retry, url).close()  # it has checked the options
    params = _params(settings)
    with naming_redis(settings):
        client = _client(settings, params)
    if not isinstance(client, Redis | RedisCluster):
        expected = "a redis-py client, redis.Redis or redis.RedisCluster, as redis_cls"
        raise ConfigError("REDIS_PARAMS", type(client), expected)
    if not _is_retried_by_us(client, params):
        return client, {}
    client.set_retry(Retry(NoBackoff(), 0))
    return client, {"retry_for": RETRY_FOR}


def address_of(client: Any) -> str:
    """Where the client's server is, without a password."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        node = client.get_default_node()
        return f"redis+cluster://{node.host}:{node.port}"
    if hasattr(pool, "sentinel_manager"):
        return f"master {pool.service_name!r} of a Sentinel"
    known = pool.connection_kwargs
    if "path" in known:
        return f"unix://{known['path']}?db={known.get('db') or 0}"
    scheme = "rediss" if issubclass(pool.connection_class, SSLConnection) else "redis"
    host, port = known.get("host", "localhost"), known.get("port", 6379)
    return f"{scheme}://{host}:{port}/{known.get('db') or 0}"


def _params(settings: BaseSettings) -> dict[str, Any]:
    try:
        return settings.getdict("REDIS_PARAMS")
    except (TypeError, ValueError):  # its message may have a piece of a password
        shown = type(settings["REDIS_PARAMS"])
        raise ConfigError("REDIS_PARAMS", shown, "a dict, or one as JSON") from None


def _client(settings: BaseSettings, params: dict[str, Any]) -> Any:
    # scrapy-redis would wait 30 s for a reply, and block the reactor.
    timeouts = {"socket_timeout": SOCKET_TIMEOUT, "socket_connect_timeout": SOCKET_TIMEOUT}
    named = {param: settings[name] for name, param in _PARAMS.items() if settings.get(name)}
    chosen = {"encoding": "utf-8", **timeouts, **params, **named}
    retry = chosen.get("retry")
    if retry is not None and not hasattr(retry, "call_with_retry"):
        raise TypeError("retry must be a redis.retry.Retry")
    kind = chosen.pop("redis_cls", Redis)
    kind = load_object(kind) if isinstance(kind, str) else kind
    url = chosen.pop("url", None)
    client = kind.from_url(url, **chosen) if url else kind(**chosen)
    pool = getattr(client, "connection_pool", None)
    if pool is not None:  # a cluster's client has connected
        try:
            pool.connection_class(**pool.connection_kwargs)  # which does not connect
        except RedisError as error:
            raise ValueError(error) from None
    return client


def _is_retried_by_us(client: Any, params: dict[str, Any]) -> bool:
    """A plain client for which the project has chosen no retries: ``retry_for`` limits them."""
    fails_over = hasattr(getattr(client, "connection_pool", None), "sentinel_manager")
    return isinstance(client, Redis) and not fails_over and "retry" not in params


@contextmanager
def naming_redis(settings: BaseSettings) -> Iterator[None]:
    """Within it, what redis-py raises for a wrong parameter is a ConfigError that names REDIS_PARAMS."""
    try:
        yield
    except TBloomError:
        raise
    except _WRONG as error:
        if not settings.get("REDIS_PARAMS"):
            raise
        raise params_error(settings, error) from None


def params_error(settings: BaseSettings, error: Exception) -> ConfigError:
    """The error for REDIS_PARAMS that redis-py does not take; it shows no values, which may be secret."""
    params = settings.getdict("REDIS_PARAMS")
    why = "" if "url" in params else f" ({error})"
    return ConfigError("REDIS_PARAMS", [*params], f"what redis-py takes{why}")
