"""What the settings say about the duplicate filter: its store, and when a request is marked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom import LocalBloom
from tbloom.errors import ConfigError
from tbloom.scrapy.circuit import CircuitBreaker
from tbloom.scrapy.connection import address_of, make_client
from tbloom.scrapy.errorline import server_setting
from tbloom.scrapy.meta import KEEP, TTL, WITHIN
from tbloom.scrapy.settings import (
    COUNTS,
    DEBUG,
    FILTER,
    FLUSH,
    KNOWN,
    MARK,
    MARKS_DONE,
    PAGES,
    SHADOW,
    STORE,
    TAKE_OVER,
    arguments,
    check_names,
    expand,
    flag,
    naming_settings,
    shown,
)
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

DEFAULT_KEY = "%(spider)s:tbloom"
#: Default size of the local cache (items): 10 MB.
CACHE_SIZE = 100_000
_MARKS = ("scheduled", *MARKS_DONE)
_WINDOW = {"granularity", "slices", "capacity", "error_rate", "tz"}
_WINDOW |= {"shards", "grow", "bits", "hashes", "secret"}
_SERVER = {"shards", "retry_for", "replicas", "on_error"}


class _Store(NamedTuple):
    """A value of TBLOOM_STORE: the arguments of its class, and the keys in a request's meta by the arguments of ``add``."""

    arguments: set[str]
    meta_keys: dict[str, str]


_IN_SLICES = {"within": WITHIN, "keep": KEEP}
_STORES = {
    "bloom": _Store(_WINDOW | _SERVER | {"session_ttl", "cache_size", "cache_ttl"}, _IN_SLICES),
    "exact": _Store(_SERVER | {"ttl"}, {"ttl": TTL}),
    "local": _Store(_WINDOW | {"path"}, _IN_SLICES),
}
#: The settings that any store allows: counters and page store have a use for them.
_ALWAYS = {*COUNTS.values(), *PAGES.values(), FILTER["name"], STORE}
# scrapy-redis-bloomfilter's defaults, where only the other one of the pair is set.
_OLD_BIT, _OLD_HASHES = 30, 6
_MIN_BIT, _MAX_BIT = 3, 40  # up to 256 blocks of 512 MB, as that package has it


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings describe."""

    seen: CrawlBloom | CrawlExact | LocalBloom
    #: The value of TBLOOM_STORE.
    store: str
    #: Decides while the server does not answer; a local store always answers.
    circuit: CircuitBreaker
    #: A request is marked when it is done, not when it is scheduled.
    mark_done: bool
    #: Requests that a dead crawler has left undone are taken over.
    take_over: bool
    #: The filter is cleared at the start.
    flush: bool
    debug: bool

    @property
    def meta_keys(self) -> dict[str, str]:
        """The keys of a request's meta, by the arguments of ``add``."""
        return _STORES[self.store].meta_keys

    @property
    def cache_hits(self) -> int:
        """Number of answers that came from the local cache."""
        return self.seen.cache_hits if isinstance(self.seen, CrawlBloom) else 0

    def close(self) -> None:
        """Closes the filter and its client."""
        self.seen.close()
        if not isinstance(self.seen, LocalBloom):
            self.seen.client.close()


def shadow_setting(settings: BaseSettings) -> Any:
    """TBLOOM_SHADOW: None where it is off, True, or the exact dupefilter that it names."""
    value = settings.get(SHADOW.name)
    try:
        return (flag(value) if isinstance(value, str) else value) or None
    except ValueError:
        return value or None


def read_options(
    settings: BaseSettings, spider: str | None, suffix: str = "", **own: Any
) -> Options:
    """The options of a crawl.

    :param spider: The spider's name.
    :param suffix: Is put after the filter's name.
    :param own: Arguments of the filter that override the settings.
    :raises ConfigError: if a setting can't be right; it names the setting.
    """
    store = _checked_store(settings)
    mark = MARK.value(settings, _MARKS[0])
    if mark not in _MARKS:
        raise ConfigError(MARK.name, mark, " or ".join(map(repr, _MARKS)))
    mark_done = mark in MARKS_DONE
    if mark_done and shadow_setting(settings):
        raise ConfigError(MARK.name, mark, "'scheduled', with TBLOOM_SHADOW")
    take_over = TAKE_OVER.is_on(settings, default=True)
    with naming_settings(FILTER):
        seen = _make_filter(settings, spider, store, suffix, own)
    return Options(
        seen,
        store,
        CircuitBreaker(seen.name, "raise") if isinstance(seen, LocalBloom) else seen.circuit,
        mark_done=mark_done,
        take_over=take_over,
        flush=FLUSH.is_on(settings, default=False),
        debug=DEBUG.is_on(settings, default=False),
    )


def _checked_store(settings: BaseSettings) -> str:
    """TBLOOM_STORE, once no setting is set that this store has no use for."""
    store = STORE.value(settings, "bloom")
    if not isinstance(store, str) or store not in _STORES:
        raise ConfigError(STORE.name, store, " or ".join(map(repr, _STORES)))
    check_names(settings)
    used = {FILTER[argument] for argument in _STORES[store].arguments} | _ALWAYS
    used |= {MARK, TAKE_OVER, SHADOW} if store == "bloom" else set()
    for name in sorted(KNOWN - {setting.name for setting in used}):
        if name in settings and not _is_default(settings, name):
            expected = f"to be left out with TBLOOM_STORE = {store!r}"
            if name == MARK.name:
                expected = f"{_MARKS[0]!r}, or {expected}"
            raise ConfigError(name, shown(settings, name), expected)
    return store


def _is_default(settings: BaseSettings, name: str) -> bool:
    """The setting has the value that leaves it off."""
    if name == SHADOW.name:
        return shadow_setting(settings) is None
    return settings[name] is None or (name, settings[name]) == (MARK.name, _MARKS[0])


def _make_filter(
    settings: BaseSettings, spider: str | None, store: str, suffix: str, own: dict[str, Any]
) -> CrawlBloom | CrawlExact | LocalBloom:
    found = _filter_arguments(settings)
    key, now = found.get("name", DEFAULT_KEY), int(time.time())
    name = expand(FILTER["name"], key, spider, timestamp=now) + suffix
    found = {key: value for key, value in found.items() if key in _STORES[store].arguments}
    if store == "local":
        if "path" in found:
            found["path"] = expand(FILTER["path"], found["path"], spider)
        return LocalBloom(name=name, **found)
    client, retry_for = make_client(settings)
    found = {**retry_for, **found, **own}
    if store == "exact":
        seen: CrawlBloom | CrawlExact = CrawlExact(client, name, **found)
    else:
        seen = CrawlBloom(client, name, **{"cache_size": CACHE_SIZE, **found})
    seen.circuit.place = f"{server_setting(settings)} is {address_of(client)}"
    seen.keep_connections()
    return seen


def _filter_arguments(settings: BaseSettings) -> dict[str, Any]:
    found = arguments(settings, FILTER)
    if found.keys() & {"bits", "hashes"}:
        bit = found.get("bits", _OLD_BIT)
        if not isinstance(bit, int) or not _MIN_BIT <= bit <= _MAX_BIT:
            raise ConfigError("bits", bit, f"{_MIN_BIT} to {_MAX_BIT} (2**BIT bits a slice)")
        found["bits"] = 1 << bit
        found.setdefault("hashes", _OLD_HASHES)
    return found
