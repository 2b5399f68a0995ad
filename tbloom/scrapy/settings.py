"""The Scrapy settings that tbloom reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom.bloom.sync import TimeBloom
from tbloom.engine.outage import CircuitBreaker
from tbloom.errors import ConfigError
from tbloom.exact import ExactFilter
from tbloom.local.sync import LocalBloom
from tbloom.scrapy.claims.notes import TTL_META, WITHIN
from tbloom.scrapy.connection import make_client

DEFAULT_KEY = "%(spider)s:tbloom"
#: So many requests that are seen are remembered in the process: 10 MB.
CACHE_SIZE = 100_000
MARKS = ("scheduled", "done")


def flag(text: str) -> bool:
    """Scrapy's spellings of a bool on the command line."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


# The arguments of the stores, the settings that they come from, and what those are read as.
_NAMES = {
    "granularity": ("TBLOOM_GRANULARITY", None),
    "slices": ("TBLOOM_SLICES", int),
    "capacity": ("TBLOOM_CAPACITY", int),
    "error_rate": ("TBLOOM_ERROR_RATE", float),
    "tz": ("TBLOOM_TIMEZONE", None),
    "shards": ("TBLOOM_SHARDS", int),
    "grow": ("TBLOOM_GROW", flag),
    "retry_for": ("TBLOOM_RETRY_FOR", float),
    "on_error": ("TBLOOM_ON_ERROR", None),
    "session_ttl": ("TBLOOM_SESSION_TTL", float),
    "cache_size": ("TBLOOM_CACHE_SIZE", int),
    "cache_ttl": ("TBLOOM_CACHE_TTL", float),
    "ttl": ("TBLOOM_TTL", float),
    "path": ("TBLOOM_PATH", None),
}
_WINDOW = {
    "granularity",
    "slices",
    "capacity",
    "error_rate",
    "tz",
    "shards",
    "grow",
    "bits",
    "hashes",
}
_SERVER = {"shards", "retry_for", "on_error"}


class _Store(NamedTuple):
    """A value of TBLOOM_STORE."""

    #: The arguments that its class takes.
    arguments: set[str]
    #: The key of a request's meta that says for how long it counts as seen.
    term: str


STORES = {
    "bloom": _Store(_WINDOW | _SERVER | {"session_ttl", "cache_size", "cache_ttl"}, WITHIN),
    "exact": _Store(_SERVER | {"ttl"}, TTL_META),
    "local": _Store(_WINDOW | {"path"}, WITHIN),
}
_EXPECTED = {int: "a whole number", float: "a number", flag: "True or False"}
_SETTINGS = {
    **{argument: setting for argument, (setting, _) in _NAMES.items()},
    "name": "TBLOOM_KEY",
    "bits": "BLOOMFILTER_BIT",
    "hashes": "BLOOMFILTER_HASH_NUMBER",
    "client": "REDIS_PARAMS",
}
_FOR_BLOOM = {"TBLOOM_MARK", "TBLOOM_TAKE_OVER", "TBLOOM_SHADOW"}
#: Those of the extension, whatever the store; and others that it has a use for even where the store has none.
_COUNTS = {
    "TBLOOM_COUNT_KEY",
    "TBLOOM_COUNT_MAPPING",
    "TBLOOM_COUNT_GRANULARITY",
    "TBLOOM_COUNT_SLICES",
    "TBLOOM_COUNT_MAX_MEMBERS",
}
_FOR_COUNTS_TOO = {"TBLOOM_TIMEZONE", "TBLOOM_RETRY_FOR"}
#: The same of the HTTP cache.
_PAGES = {
    "TBLOOM_PAGES_PATH",
    "TBLOOM_PAGES_GRANULARITY",
    "TBLOOM_PAGES_SLICES",
    "TBLOOM_PAGES_READONLY",
    "TBLOOM_PAGES_SEGMENT_BYTES",
}
_FOR_PAGES_TOO = {"TBLOOM_TIMEZONE"}
_ALWAYS = {"TBLOOM_KEY", "TBLOOM_STORE", *_COUNTS, *_PAGES}
KNOWN = {*_SETTINGS.values(), *_FOR_BLOOM, *_ALWAYS} - {"REDIS_PARAMS"}
# What scrapy-redis-bloomfilter takes for the one of the pair that is not set.
_OLD_BIT, _OLD_HASHES = 30, 6
_LEAST_BIT, _MOST_BIT = 3, 40  # up to 256 blocks of 512 MB, as the sources have it


@dataclass(frozen=True, slots=True)
class Options:
    """The filter that the settings describe, and what else they say."""

    seen: TimeBloom | ExactFilter | LocalBloom
    #: The one of TBLOOM_STORE.
    store: str
    #: What happens while its server does not answer; a store without one answers always.
    circuit: CircuitBreaker
    #: Whether a request is marked when it is done, not when it is scheduled.
    mark_done: bool
    #: Whether requests that a dead crawler has left undone are taken over.
    take_over: bool
    debug: bool

    @property
    def term(self) -> str:
        """The key of a request's meta that says for how long it counts as seen."""
        return STORES[self.store].term

    @property
    def cache_hits(self) -> int:
        """How many answers came from a memory at home."""
        return self.seen.cache_hits if isinstance(self.seen, TimeBloom) else 0

    def close(self) -> None:
        """Closes the filter, and its client."""
        self.seen.close()
        if not isinstance(self.seen, LocalBloom):
            self.seen.client.close()


def shadowed(settings: BaseSettings) -> Any:
    """TBLOOM_SHADOW: None where it is off, True, or what else it names the exact dupefilter by."""
    value = settings.get("TBLOOM_SHADOW")
    try:
        return (flag(value) if isinstance(value, str) else value) or None
    except ValueError:
        return value or None


def read(settings: BaseSettings, spider: str | None, suffix: str = "", **own: Any) -> Options:
    """The options of a crawl of ``spider`` (its name); ``own`` arguments of the filter go before the
    settings, and ``suffix`` is put after its name.

    :raises ConfigError: that names the setting, where one can't be right.
    """
    store = _store(settings)
    mark = settings.get("TBLOOM_MARK", "scheduled")
    if mark not in MARKS:
        raise ConfigError("TBLOOM_MARK", mark, " or ".join(map(repr, MARKS)))
    if mark == "done" and shadowed(settings):
        raise ConfigError("TBLOOM_MARK", mark, "'scheduled', with TBLOOM_SHADOW")
    take_over = settings.get("TBLOOM_TAKE_OVER", True)
    try:
        take_over = flag(str(take_over))
    except ValueError:
        raise ConfigError("TBLOOM_TAKE_OVER", take_over, _EXPECTED[flag]) from None
    try:
        seen = _make(settings, spider, store, suffix, own)
    except ConfigError as error:
        raise ConfigError(
            _SETTINGS.get(error.argument, error.argument), error.value, error.expected
        ) from None
    return Options(
        seen,
        store,
        CircuitBreaker(seen.name, "raise") if isinstance(seen, LocalBloom) else seen.circuit,
        mark_done=mark == "done",
        take_over=take_over,
        debug=settings.getbool("DUPEFILTER_DEBUG"),
    )


def _store(settings: BaseSettings) -> str:
    """The one that is chosen; no setting is set that it has no use for."""
    store = settings.get("TBLOOM_STORE", "bloom")
    if not isinstance(store, str) or store not in STORES:
        raise ConfigError("TBLOOM_STORE", store, " or ".join(map(repr, STORES)))
    used = {_SETTINGS[argument] for argument in STORES[store].arguments}
    used |= _ALWAYS | (_FOR_BLOOM if store == "bloom" else set())
    used |= _FOR_COUNTS_TOO if _is_counting(settings) else set()
    used |= _FOR_PAGES_TOO if _is_caching(settings) else set()
    check_names(settings)
    for name in settings:
        if name in KNOWN and name not in used and not _is_default(settings, name):
            expected = f"to be left out with TBLOOM_STORE = {store!r}"
            raise ConfigError(name, settings[name], expected)
    return store


def check_names(settings: BaseSettings) -> None:
    """Raises ConfigError for a setting that looks like one of tbloom's, and is none."""
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            close = get_close_matches(name, sorted(KNOWN), 1)
            known = close[0] if close else "one of " + ", ".join(sorted(KNOWN))
            raise ConfigError(name, settings.get(name), f"{known} (there is no {name})")


def _is_counting(settings: BaseSettings) -> bool:
    """Whether the extension is on; it is named by its path, or is the class."""
    named = settings.getdict("EXTENSIONS").items()
    return any("DistinctCounts" in str(name) and order is not None for name, order in named)


def _is_caching(settings: BaseSettings) -> bool:
    """Whether the HTTP cache is on, and is ours."""
    storage = str(settings.get("HTTPCACHE_STORAGE"))
    return settings.getbool("HTTPCACHE_ENABLED") and "PageCacheStorage" in storage


def _is_default(settings: BaseSettings, name: str) -> bool:
    """Whether the setting, written out, says what is so without it."""
    if name == "TBLOOM_SHADOW":
        return shadowed(settings) is None
    return settings[name] is None or (name, settings[name]) == ("TBLOOM_MARK", MARKS[0])


def _make(
    settings: BaseSettings, spider: str | None, store: str, suffix: str, own: dict[str, Any]
) -> TimeBloom | ExactFilter | LocalBloom:
    name = named("TBLOOM_KEY", settings.get("TBLOOM_KEY", DEFAULT_KEY), spider) + suffix
    own_arguments = STORES[store].arguments
    arguments = {key: value for key, value in _arguments(settings).items() if key in own_arguments}
    if store == "local":
        if "path" in arguments:
            arguments["path"] = named("TBLOOM_PATH", arguments["path"], spider)
        return LocalBloom(name=name, **arguments)
    client, retry_for = make_client(settings)
    arguments = {**retry_for, **arguments, **own}
    if store == "exact":
        seen: TimeBloom | ExactFilter = ExactFilter(client, name, **arguments)
    else:
        seen = TimeBloom(client, name, **{"cache_size": CACHE_SIZE, **arguments})
    seen.keep_connections()
    return seen


def named(setting: str, text: Any, spider: str | None) -> str:
    """The setting's text, with the spider's name in it."""
    if spider is None and isinstance(text, str) and "%(spider)s" in text:
        raise ConfigError(setting, text, "one without %(spider)s where no spider is known")
    # No other formats: %(spider)9999999999s would take 10 GB, and %(spider).2s be several spiders'.
    if not isinstance(text, str) or "%" in re.sub(r"%%|%\(spider\)s", "", text):
        raise ConfigError(
            setting, text, "a str in which only %(spider)s is replaced, and any other % is %%"
        )
    return text % {"spider": spider}


def _arguments(settings: BaseSettings) -> dict[str, Any]:
    parameters = {
        argument: number(settings, setting, kind) if kind else settings[setting]
        for argument, (setting, kind) in _NAMES.items()
        if settings.get(setting) is not None
    }
    if any(
        settings.get(name) is not None for name in ("BLOOMFILTER_BIT", "BLOOMFILTER_HASH_NUMBER")
    ):
        bit = number(settings, "BLOOMFILTER_BIT", int, _OLD_BIT)
        if not isinstance(bit, int) or not _LEAST_BIT <= bit <= _MOST_BIT:
            raise ConfigError("bits", bit, f"{_LEAST_BIT} to {_MOST_BIT} (2**BIT bits a slice)")
        parameters["bits"] = 1 << bit
        parameters["hashes"] = number(settings, "BLOOMFILTER_HASH_NUMBER", int, _OLD_HASHES)
    return parameters


def number(
    settings: BaseSettings, name: str, kind: Callable[[str], Any], default: Any = None
) -> Any:
    """The setting as a number; from the command line it comes as a str."""
    value = settings.get(name, default)
    try:
        return kind(value) if isinstance(value, str) else value
    except ValueError:
        raise ConfigError(name, value, _EXPECTED[kind]) from None
