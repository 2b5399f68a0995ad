"""What the settings say about the duplicate filter: its store, and when a request is marked."""

from __future__ import annotations

import time
from typing import Any

from scrapy.settings import BaseSettings

from tbloom import LocalBloom
from tbloom.bloom.config import Parameters
from tbloom.errors import ConfigError
from tbloom.scrapy.connection import make_client, server_settings
from tbloom.scrapy.outage import Answers
from tbloom.scrapy.settings import (
    FILTER,
    MARK,
    MARKS_DONE,
    ON_ERROR,
    SHADOW,
    STORE,
    arguments,
    check_settings,
    expand,
    naming_settings,
)
from tbloom.scrapy.stores import CrawlBloom, CrawlExact

DEFAULT_KEY = "%(spider)s:tbloom"
#: Default size of the local cache (items): 10 MB.
CACHE_SIZE = 100_000
#: The arguments of each store's class, by the values of TBLOOM_STORE.
_STORES = {
    "bloom": {*Parameters.__annotations__, "retry_for", "replicas", "session_ttl", "cache_size"},
    "exact": {"shards", "retry_for", "replicas", "ttl"},
    "local": {*Parameters.__annotations__, "path"},
}
#: The settings that any store allows: counters and page store have a use for them.
_SHARED = {"name", "tz", "retry_for"}
# scrapy-redis-bloomfilter's defaults, where only the other one of the pair is set.
_OLD_BIT, _OLD_HASHES = 30, 6
_MIN_BIT, _MAX_BIT = 3, 40  # up to 256 blocks of 512 MB, as that package has it


def read_options(settings: BaseSettings, spider: str, suffix: str = "", **own: Any) -> Answers:
    """What asks the store that the options of a crawl describe.

    :param spider: The spider's name.
    :param suffix: Is put after the filter's name.
    :param own: Arguments of the filter that override the settings.
    :raises ConfigError: if a setting can't be right; it names the setting.
    """
    check_settings(settings)
    store, mark, shadow = (setting.value(settings) for setting in (STORE, MARK, SHADOW))
    if mark in MARKS_DONE and (shadow or store != "bloom"):
        other = SHADOW.name if shadow else f"{STORE.name} = {store!r}"
        raise ConfigError(MARK.name, mark, f"'scheduled', with {other}")
    if shadow and store != "bloom":
        raise ConfigError(SHADOW.name, shadow, f"to be left out with {STORE.name} = {store!r}")
    with naming_settings(FILTER):
        seen = _make_filter(settings, spider, store, suffix, own)
    return Answers(seen, ON_ERROR.value(settings))


def _make_filter(
    settings: BaseSettings, spider: str, store: str, suffix: str, own: dict[str, Any]
) -> CrawlBloom | CrawlExact | LocalBloom:
    found = arguments(settings, FILTER)
    if found.keys() & {"bits", "hashes"}:
        bit = found.get("bits", _OLD_BIT)
        if not isinstance(bit, int) or not _MIN_BIT <= bit <= _MAX_BIT:
            raise ConfigError("bits", bit, f"{_MIN_BIT} to {_MAX_BIT} (2**BIT bits a slice)")
        found["bits"] = 1 << bit
        found.setdefault("hashes", _OLD_HASHES)
    key = found.get("name", DEFAULT_KEY)
    name = expand(FILTER["name"], key, spider=spider, timestamp=int(time.time())) + suffix
    for argument in found.keys() - _STORES[store] - _SHARED:
        shown = "a value that is not shown" if argument == "secret" else found[argument]
        raise ConfigError(argument, shown, f"to be left out with {STORE.name} = {store!r}")
    found = {argument: found[argument] for argument in found.keys() & _STORES[store]}
    if store == "local":
        if "path" in found:
            found["path"] = expand(FILTER["path"], found["path"], spider=spider)
        return LocalBloom(name=name, **found)
    client, retry_for = make_client(settings)
    found = {**retry_for, **found, **own}
    if store == "bloom":
        found.setdefault("cache_size", CACHE_SIZE)
    seen = (CrawlBloom if store == "bloom" else CrawlExact)(client, name, **found)
    seen.circuit.place = server_settings(settings)
    seen.keep_connections()
    return seen
