"""The Scrapy settings that tbloom reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_redis.connection import get_redis_from_settings

from tbloom.errors import ConfigError
from tbloom.sync import TimeBloom

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

DEFAULT_KEY = "%(spider)s:tbloom"
ON_ERROR = ("raise", "schedule", "drop")

# The arguments of TimeBloom, and the settings that they come from.
_SETTINGS = {
    "name": "TBLOOM_KEY",
    "granularity": "TBLOOM_GRANULARITY",
    "slices": "TBLOOM_SLICES",
    "capacity": "TBLOOM_CAPACITY",
    "error_rate": "TBLOOM_ERROR_RATE",
    "tz": "TBLOOM_TIMEZONE",
    "bits": "BLOOMFILTER_BIT",
    "hashes": "BLOOMFILTER_HASH_NUMBER",
    "client": "REDIS_PARAMS",
}
KNOWN = {*_SETTINGS.values(), "TBLOOM_SHARDS", "TBLOOM_ON_ERROR"}
# What scrapy-redis-bloomfilter takes for the one of the pair that is not set.
_OLD_BIT, _OLD_HASHES = 30, 6
_LEAST_BIT, _MOST_BIT = 3, 31


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
    if _number(settings, "TBLOOM_SHARDS", int, 1) != 1:
        expected = "1, the only number of shards that this version knows"
        raise ConfigError("TBLOOM_SHARDS", settings.get("TBLOOM_SHARDS"), expected)
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
        return get_redis_from_settings(settings)
    except (ValueError, TypeError) as error:  # an impossible URL, or a parameter redis-py lacks
        setting = "REDIS_URL" if isinstance(error, ValueError) else "REDIS_PARAMS"
        raise ConfigError(
            setting, settings.get(setting), f"what redis-py takes ({error})"
        ) from None


def _key(settings: BaseSettings, spider: str | None) -> str:
    key = settings.get("TBLOOM_KEY", DEFAULT_KEY)
    if spider is None and isinstance(key, str) and "%(spider)s" in key:
        raise ConfigError("TBLOOM_KEY", key, "a key without %(spider)s where no spider is known")
    try:
        return str(key % {"spider": spider})
    except (TypeError, ValueError, KeyError):
        raise ConfigError("TBLOOM_KEY", key, "a str in which only %(spider)s is replaced") from None


def _parameters(settings: BaseSettings) -> dict[str, Any]:
    parameters = {
        "granularity": settings.get("TBLOOM_GRANULARITY", "d"),
        "slices": _number(settings, "TBLOOM_SLICES", int, 7),
        "capacity": _number(settings, "TBLOOM_CAPACITY", int, None),
        "error_rate": _number(settings, "TBLOOM_ERROR_RATE", float, 1e-4),
        "tz": settings.get("TBLOOM_TIMEZONE") or "UTC",
    }
    if "BLOOMFILTER_BIT" in settings or "BLOOMFILTER_HASH_NUMBER" in settings:
        bit = _number(settings, "BLOOMFILTER_BIT", int, _OLD_BIT)
        if not _LEAST_BIT <= bit <= _MOST_BIT:
            raise ConfigError("bits", bit, f"{_LEAST_BIT} to {_MOST_BIT} (2**BIT bits a slice)")
        parameters["bits"] = 1 << bit
        parameters["hashes"] = _number(settings, "BLOOMFILTER_HASH_NUMBER", int, _OLD_HASHES)
    return parameters


def _number(settings: BaseSettings, name: str, kind: Callable[[Any], Any], default: Any) -> Any:
    """The setting as a number; from the command line it comes as a str."""
    value = settings.get(name)
    if value is None:
        return default
    try:
        number = kind(value) if isinstance(value, str) else value
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(name, value, what) from None
    return number
