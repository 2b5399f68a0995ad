"""The Redis client that scrapy-redis' settings describe."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.settings import BaseSettings
from scrapy_redis.connection import get_redis_from_settings

from tbloom.engine import urls
from tbloom.engine.client import RETRY_FOR
from tbloom.errors import ConfigError
from tbloom.scrapy.settings import Setting, naming_settings


def make_client(settings: BaseSettings) -> tuple[Any, dict[str, float]]:
    """The client, and the store's default for ``retry_for`` where tbloom decides on it."""
    client = _client(settings)
    if not _is_retried_by_us(client, settings):
        return client, {}
    client.set_retry(Retry(NoBackoff(), 0))
    return client, {"retry_for": RETRY_FOR}


def _client(settings: BaseSettings) -> Any:
    # scrapy-redis would wait 30 s for a reply, and block the reactor.
    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), urls.SOCKET_TIMEOUT)
    own = {name: settings[name] for name in settings if name.startswith("REDIS_")}
    if url := settings.get("REDIS_URL"):
        with naming_settings({"url": Setting("REDIS_URL")}):
            urls.parse_url(url)
            urls.make_client(Redis.from_url, Retry, url).close()  # it has checked the options
    try:
        own["REDIS_PARAMS"] = {**timeouts, **settings.getdict("REDIS_PARAMS")}
        return get_redis_from_settings(BaseSettings(own))
    except (ValueError, AttributeError) as error:  # an impossible URL
        if isinstance(error, json.JSONDecodeError):
            raise params_error(settings, error) from None
        url = urls.without_secrets(settings.get("REDIS_URL"))
        raise ConfigError("REDIS_URL", url, f"what redis-py takes ({error})") from None
    except (TypeError, ImportError, NameError) as error:  # redis-py lacks a parameter or a class
        raise params_error(settings, error) from None


def _is_retried_by_us(client: Any, settings: BaseSettings) -> bool:
    """A plain client for which the project has chosen no retries: ``retry_for`` limits them."""
    fails_over = hasattr(getattr(client, "connection_pool", None), "sentinel_manager")
    chosen = "retry" in settings.getdict("REDIS_PARAMS")
    return isinstance(client, Redis) and not fails_over and not chosen


def params_error(settings: BaseSettings, error: Exception) -> ConfigError:
    """The error for REDIS_PARAMS that redis-py does not take; it shows no values, which may be secret."""
    params = settings.get("REDIS_PARAMS")
    names = sorted(params) if isinstance(params, dict) else type(params)
    return ConfigError("REDIS_PARAMS", names, f"what redis-py takes ({error})")
