"""tbloom's keys in a request's meta: those that say how the filter is asked, and those that came with a copied meta."""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request
from scrapy.settings import BaseSettings

from tbloom.arguments import check_keep, check_ttl, check_within
from tbloom.errors import ConfigError
from tbloom.scrapy.crawl import Crawl
from tbloom.scrapy.outage import AnyStore, CrawlExact
from tbloom.scrapy.settings import (
    DONE,
    KEEP,
    STORE,
    TOKEN,
    TTL,
    VERSION,
    WITHIN,
    Setting,
    naming_settings,
)

logger: logging.Logger = logging.getLogger(__name__)

_ARGUMENTS = {WITHIN, KEEP, TTL}
#: Keys of tbloom's that a request gets on purpose only.
_KEYS = {*_ARGUMENTS, VERSION, DONE}
#: Keys whose values no two pages share, and keys that may be missing or differ in a copy.
_DISTINCT = {TOKEN, "download_latency"}
_CHANGED = {"depth", *_DISTINCT}
_COPIED = (
    "meta[%r] of %s is removed, because it came with a copied meta (meta=response.meta); from others, too. Give each request a meta "
    "of its own"
)


def drop_copied(request: Request, source: Any, crawl: Crawl) -> None:
    """Remove keys of tbloom's from a request's meta that came with the meta of the response that has led to it.

    ``source``: that response, or the failure of an errback; None: there is none.
    """
    if _KEYS.isdisjoint(request.meta) or source is None:
        return
    before = getattr(source, "request", None)
    if before is None or before.url == request.url:  # it is asked for again
        return
    if not _is_copied(request.meta, before.meta):
        return
    for key in _KEYS & request.meta.keys() & before.meta.keys():
        if request.meta[key] == before.meta[key]:
            del request.meta[key]
            crawl.log_once(logger.warning, _COPIED, key, request)


def _is_copied(meta: dict[str, Any], source: dict[str, Any]) -> bool:
    """Return whether the meta was copied from that of the response's request, not only some keys of it named again."""

    def has(key: str) -> bool:
        return key in meta and meta[key] == source[key]

    if any(has(key) for key in _DISTINCT & source.keys()):
        return True
    others = source.keys() - _CHANGED
    return not others <= _KEYS and all(has(key) for key in others)


def arguments_of(
    request: Request, seen: AnyStore, settings: BaseSettings, *, claims: bool
) -> tuple[tuple[str, Any], ...]:
    """Return the arguments of ``add`` or ``claim`` in the request's meta, as pairs. Raise ConfigError that names the key."""
    meta = request.meta
    if meta.get(DONE) not in (None, True, False):
        raise ConfigError(f"meta[{DONE!r}] of {request}", meta[DONE], "True or False")
    if not _ARGUMENTS & meta.keys():
        return ()
    names = {"ttl": TTL} if isinstance(seen, CrawlExact) else {"within": WITHIN, "keep": KEEP}
    for key in (_ARGUMENTS - {*names.values()}) & meta.keys():
        expected = f"to be left out with TBLOOM_STORE = {STORE.value(settings)!r}"
        raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
    arguments = {name: meta[key] for name, key in names.items() if key in meta}
    with naming_settings({n: Setting(f"meta[{key!r}] of {request}") for n, key in names.items()}):
        if isinstance(seen, CrawlExact):
            check_ttl(arguments["ttl"])
        else:
            slices = seen.config.slices
            check_keep(arguments.get("keep"), arguments.get("within"), slices)
            check_within(arguments.get("within"), slices)
    if claims:  # the end of the page says how long it is kept
        arguments.pop("keep", None)
    return (*arguments.items(),)
