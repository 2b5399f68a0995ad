"""Links: what the filter is asked about a request that is to enter the queue.

A page is its fingerprint, which one crawler claims. With ``meta={"tbloom_version": ...}``, the filter is searched for something else: the
fingerprint, followed by a hash of the version. A page that is done is remembered as both.

The keys are a link's own: what came with a copied meta (``meta=response.meta``) does not count, and what a spider writes does, also beside
copied keys. They are told apart by identity: the values of a request that is queued become objects of their own, equal to what they were.
"""

from __future__ import annotations

import logging
import re
import time
from calendar import timegm
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from hashlib import blake2b
from itertools import count
from typing import Any

from scrapy import Request
from scrapy.http import Headers
from scrapy.settings import BaseSettings
from scrapy.utils.python import without_none_values

from tbloom import Claim, Note
from tbloom.arguments import encode
from tbloom.bloom.hasher import shard_of
from tbloom.errors import ConfigError
from tbloom.scrapy.crawl import Crawl, Stage
from tbloom.scrapy.done.page import VERSION_BYTES, Page, Token
from tbloom.scrapy.settings import (
    DONE,
    KEEP,
    STORE,
    TTL,
    VERSION,
    WITHIN,
    Setting,
    naming_settings,
)
from tbloom.scrapy.stores import AnyStore

logger: logging.Logger = logging.getLogger(__name__)


class NoAnswer(Enum):
    """In place of the filter's answer; the value is its stat, after ``tbloom/``."""

    #: The crawl ends, and the request is dropped.
    DROPPED = "dropped"
    #: A value in its meta is wrong.
    WRONG = "wrong"


#: What becomes of a request.
Answer = Claim | NoAnswer


@dataclass(slots=True, eq=False)
class Pending:
    """A request that is to enter the queue."""

    request: Request
    #: The item of its page; None: the filter is not asked.
    item: bytes | None = None
    #: What the filter is searched for: the item, or the item in a version.
    look: bytes = b""
    #: The hash of the version; b"": there is none.
    version: bytes = b""
    #: The arguments of ``add`` or ``claim``, as pairs.
    arguments: tuple[tuple[str, Any], ...] = ()
    answer: Answer | None = None
    # With "done":
    #: The page that goes on as this request, the token that it gets in the queue, and the note that is kept with its claim; None: it is
    #: not written yet.
    page: Page | None = None
    token: Token | None = None
    note: Note | str | None = None
    #: The page whose callback or errback has yielded the request.
    source: Page | None = None

    @property
    def is_to_ask(self) -> bool:
        """Whether the filter is to be asked for it."""
        return self.item is not None and self.answer is None


def link_of(request: Request, crawl: Crawl, source: Any = None, *, claims: bool) -> Pending:
    """Return what the filter is asked about a link, with the answer where none is needed.

    A wrong value in its meta is logged. ``source``: the response, or the failure of an errback, that has led to the link. ``claims``:
    whether it is claimed, or added.
    """
    if crawl.is_ending or crawl.stage >= Stage.QUEUE_CLOSED:
        return Pending(request, answer=NoAnswer.DROPPED)
    seen, crawler = crawl.seen, crawl.crawler
    arguments: tuple[tuple[str, Any], ...] = ()
    version = b""
    if not _OURS.isdisjoint(request.meta):
        try:
            drop_copied(request, source)
            arguments = arguments_of(request, seen, crawler.settings, claims=claims)
            version = version_of(request)
        except ConfigError as error:
            logger.error("Spider %s: a request is dropped: %s", crawl.spider.name, error)
            return Pending(request, answer=NoAnswer.WRONG)
    item = crawl.fingerprints.of(request)
    look = look_of(item, version, seen.config) if version else item
    answer = None if arguments else seen.known(item, look)
    return Pending(request, item, look, version, arguments, answer)


_ARGUMENTS = frozenset({WITHIN, KEEP, TTL})
_OWNED = _ARGUMENTS | {VERSION}
_OURS = _OWNED | {DONE}


# A link's own values


class _Own:
    """A value of one request, and of copies of its meta. Pickled, it is the plain value."""

    def __reduce_ex__(self, _: Any) -> Any:
        return copy, (plain(self),)  # what is pickled names nothing of tbloom

    def __copy__(self) -> _Own:
        return self

    def __deepcopy__(self, _: Any) -> _Own:
        return self


def plain(value: Any) -> Any:
    """Return the value as it was."""
    return type(value).__mro__[2](value) if isinstance(value, _Own) else value


#: Equal values of these classes may be one object.
_OWN: dict[type[Any], type[Any]] = {
    kind: type(kind.__name__, (_Own, kind), {"__module__": kind.__module__})
    for kind in (int, float, str, bytes)
}


def own_values(request: Request) -> None:
    """Make the values of tbloom's keys objects of this request's own."""
    meta = request.meta
    for key in _OWNED & meta.keys():
        own = _OWN.get(type(meta[key]))
        meta[key] = own(meta[key]) if own else copy(meta[key])


def drop_copied(request: Request, source: Any) -> None:
    """Remove from a link's meta the very values of the response, or the failure of an errback, that has led to it; None: nothing has."""
    before = getattr(source, "request", None)
    if before is None or before.url == request.url:  # it is asked for again
        return
    meta = request.meta
    for key in _OURS & meta.keys() & before.meta.keys():
        if meta[key] is before.meta[key]:
            del meta[key]


# How the filter is asked


def arguments_of(
    request: Request, seen: AnyStore, settings: BaseSettings, *, claims: bool
) -> tuple[tuple[str, Any], ...]:
    """Return the arguments of ``add`` or ``claim`` in the request's meta, as pairs. Raise ConfigError that names the key."""
    meta = request.meta
    if meta.get(DONE) not in (None, True, False):
        raise ConfigError(f"meta[{DONE!r}] of {request}", meta[DONE], "True or False")
    if not _ARGUMENTS & meta.keys():
        return ()
    names = seen.meta_keys
    for key in (_ARGUMENTS - {*names.values()}) & meta.keys():
        expected = f"to be left out with TBLOOM_STORE = {STORE.value(settings)!r}"
        raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
    arguments = {name: meta[key] for name, key in names.items() if key in meta}
    with naming_settings({n: Setting(f"meta[{key!r}] of {request}") for n, key in names.items()}):
        seen.check_arguments(arguments)
    if claims:  # the end of the page says how long it is kept
        arguments.pop("keep", None)
    return (*arguments.items(),)


# Versions

#: The header by which a request asks the site.
ASK_SITE = "Cache-Control", "no-cache"


def version_of(request: Request) -> bytes:
    """Return the hash of the version that the request's meta names; b"" if it names none. Raise ConfigError that names a wrong one."""
    version = request.meta.get(VERSION)
    if not _is_version(version):
        return b""
    name = f"meta[{VERSION!r}] of {request}"
    return blake2b(_text(version, name), digest_size=VERSION_BYTES).digest()


def _is_version(value: Any) -> bool:
    """Return whether a value is to be a version: a feed may have none."""
    return value is not None and not (isinstance(value, str | bytes) and not value)


def asks_site(settings: BaseSettings) -> bool:
    """Return whether requests for what may have changed are to say that a cache is not enough.

    That is where the crawl has an HTTP cache, is not offline, and gives its requests no Cache-Control by default.
    """
    if not settings.getbool("HTTPCACHE_ENABLED") or settings.getbool("HTTPCACHE_IGNORE_MISSING"):
        return False
    defaults = without_none_values(settings.getdict("DEFAULT_REQUEST_HEADERS"))
    return ASK_SITE[0] not in Headers(defaults)


def ask_site(request: Request, settings: BaseSettings) -> None:
    """Let a request with a version ask the site, not a cache, unless it has a Cache-Control of its own."""
    if _is_version(request.meta.get(VERSION)) and asks_site(settings):
        request.headers.setdefault(*ASK_SITE)


def look_of(item: bytes, version: bytes, config: Any) -> bytes:
    """Return what a filter is searched for: the item in this version, which has to be in the shard of the item, where its claim is."""
    if not version or config.shards == 1:
        return item + version
    shard = shard_of(config.digest(item), config.shards)
    looks = (item + version + b"\0" * more for more in count())
    return next(look for look in looks if shard_of(config.digest(look), config.shards) == shard)


def _text(version: Any, name: str) -> bytes:
    """Return the version as bytes: dates in ISO format, and times as ``one_moment``."""
    # The latter two: of what no datetime knows, such as the last hours of the year 9999.
    with suppress(ConfigError, OverflowError, ValueError):
        if isinstance(version, time.struct_time):  # without a zone, as of feedparser, it is in UTC
            version = datetime.fromtimestamp(timegm(version) - (version.tm_gmtoff or 0), UTC)
        if isinstance(version, datetime):
            zoned = version if version.utcoffset() is not None else version.replace(tzinfo=UTC)
            return one_moment(zoned.astimezone(UTC).isoformat().encode())
        if isinstance(version, date):
            return version.isoformat().encode()
        if isinstance(version, str | bytes | int):
            return one_moment(encode(version, name))
    raise ConfigError(name, version, "a str, bytes, int, date, datetime or struct_time")


#: A date, hours and minutes, seconds, their fraction, and the zone.
_MOMENT = re.compile(
    rb"(\d{4}-\d\d-\d\d)[T ]([01]\d|2[0-3]):(\d\d)(?::(\d\d)(?:[.,](\d+))?)? ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.IGNORECASE,
)


def one_moment(text: bytes) -> bytes:
    """Return the one spelling of a moment, in UTC, which is also the zone of those without one; any other text as it is.

    A date alone says less than a moment, and is none.
    """
    if form := _MOMENT.fullmatch(text.strip()):
        day, hours, minutes, seconds, fraction, zone = form.groups(b"")
        zone = zone if zone.startswith((b"+", b"-")) else b"+00:00"
        moment = b"%sT%s:%s:%s%s" % (day, hours, minutes, seconds or b"00", zone)
        with suppress(OverflowError, ValueError):  # there is no such moment
            utc = datetime.fromisoformat(moment.decode()).astimezone(UTC)
            return utc.isoformat().encode() + b"." + fraction.rstrip(b"0")
    return text
