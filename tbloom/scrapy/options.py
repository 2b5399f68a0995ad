"""The Scrapy settings that tbloom reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.retry import Retry
from scrapy_redis.connection import get_redis_from_settings

from tbloom.base import RESENDS, backoff
from tbloom.errors import ConfigError
from tbloom.sync import TimeBloom

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

DEFAULT_KEY = "%(spider)s:tbloom"
ON_ERROR = ("raise", "schedule", "drop")


def _flag(text: str) -> bool:
    """Scrapy's spellings of a bool on the command line."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


# The arguments of TimeBloom, the settings that they come from, and what those are read as.
_ARGUMENTS = {
    "granularity": ("TBLOOM_GRANULARITY", None),
    "slices": ("TBLOOM_SLICES", int),
    "capacity": ("TBLOOM_CAPACITY", int),
    "error_rate": ("TBLOOM_ERROR_RATE", float),
    "tz": ("TBLOOM_TIMEZONE", None),
    "shards": ("TBLOOM_SHARDS", int),
    "grow": ("TBLOOM_GROW", _flag),
}
_EXPECTED = {int: "a whole number", float: "a number", _flag: "True or False"}
_SETTINGS = {
    **{argument: setting for argument, (setting, _) in _ARGUMENTS.items()},
    "name": "TBLOOM_KEY",
    "bits": "BLOOMFILTER_BIT",
    "hashes": "BLOOMFILTER_HASH_NUMBER",
    "client": "REDIS_PARAMS",
}
KNOWN = {*_SETTINGS.values(), "TBLOOM_ON_ERROR"} - {"REDIS_PARAMS"}
# What scrapy-redis-bloomfilter takes for the one of the pair that is not set.
_OLD_BIT, _OLD_HASHES = 30, 6
_LEAST_BIT, _MOST_BIT = 3, 40  # up to 256 blocks of 512 MB, as the sources have it


@dataclass(frozen=True, slots=True)
class Options:
    """The filter that the settings describe, and what they say about errors and logging."""

    seen: TimeBloom
    on_error: str
    debug: bool


def read(settings: BaseSettings, spider: str | None) -> Options:
    """The options of a crawl of ``spider`` (its name).

    :raises ConfigError: that names the setting, where one can't be right.
    """
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            expected = "no such setting; tbloom's are " + ", ".join(sorted(KNOWN))
            raise ConfigError(name, settings.get(name), expected)
    on_error = settings.get("TBLOOM_ON_ERROR", "raise")
    if on_error not in ON_ERROR:
        raise ConfigError("TBLOOM_ON_ERROR", on_error, " or ".join(map(repr, ON_ERROR)))
    try:
        seen = TimeBloom(_client(settings), _key(settings, spider), **_parameters(settings))
    except ConfigError as error:
        raise ConfigError(
            _SETTINGS.get(error.argument, error.argument), error.value, error.expected
        ) from None
    return Options(
        seen,
        on_error,
        debug=settings.getbool("DUPEFILTER_DEBUG"),
    )


def _client(settings: BaseSettings) -> Any:
    try:
        client = get_redis_from_settings(settings)
    except (ValueError, AttributeError) as error:  # an impossible URL
        if isinstance(error, json.JSONDecodeError):
            raise _params_error(settings, error) from None
        url = _without_secrets(str(settings.get("REDIS_URL")))
        raise ConfigError("REDIS_URL", url, f"what redis-py takes ({error})") from None
    except (
        TypeError,
        ImportError,
        NameError,
    ) as error:  # a parameter or a class that redis-py lacks
        raise _params_error(settings, error) from None
    if isinstance(client, Redis) and "retry" not in settings.getdict("REDIS_PARAMS"):
        # With a REDIS_URL, scrapy-redis' client resends once and at once: a failover takes longer.
        client.set_retry(Retry(backoff(), RESENDS))
    return client


def _params_error(settings: BaseSettings, error: Exception) -> ConfigError:
    params = settings.get("REDIS_PARAMS")
    names = sorted(params) if isinstance(params, dict) else type(params)  # the values may be secret
    return ConfigError("REDIS_PARAMS", names, f"what redis-py takes ({error})")


def _without_secrets(url: str) -> str:
    """The URL as a log may have it: its query may have a password too."""
    return re.sub(r"//.*@", "//***@", url.partition("?")[0], flags=re.DOTALL)


def _key(settings: BaseSettings, spider: str | None) -> str:
    key = settings.get("TBLOOM_KEY", DEFAULT_KEY)
    if spider is None and isinstance(key, str) and "%(spider)s" in key:
        raise ConfigError("TBLOOM_KEY", key, "a key without %(spider)s where no spider is known")
    # No other formats: %(spider)9999999999s would take 10 GB, and %(spider).2s be several spiders'.
    if not isinstance(key, str) or "%" in re.sub(r"%%|%\(spider\)s", "", key):
        raise ConfigError("TBLOOM_KEY", key, "a str in which only %(spider)s is replaced")
    return key % {"spider": spider}


def _parameters(settings: BaseSettings) -> dict[str, Any]:
    parameters = {
        argument: _number(settings, setting, kind) if kind else settings[setting]
        for argument, (setting, kind) in _ARGUMENTS.items()
        if settings.get(setting) is not None
    }
    if "BLOOMFILTER_BIT" in settings or "BLOOMFILTER_HASH_NUMBER" in settings:
        bit = _number(settings, "BLOOMFILTER_BIT", int, _OLD_BIT)
        if not isinstance(bit, int) or not _LEAST_BIT <= bit <= _MOST_BIT:
            raise ConfigError("bits", bit, f"{_LEAST_BIT} to {_MOST_BIT} (2**BIT bits a slice)")
        parameters["bits"] = 1 << bit
        parameters["hashes"] = _number(settings, "BLOOMFILTER_HASH_NUMBER", int, _OLD_HASHES)
    return parameters


def _number(
    settings: BaseSettings, name: str, kind: Callable[[str], Any], default: Any = None
) -> Any:
    """The setting as a number; from the command line it comes as a str."""
    value = settings.get(name, default)
    try:
        return kind(value) if isinstance(value, str) else value
    except ValueError:
        raise ConfigError(name, value, _EXPECTED[kind]) from None
