"""The left pages of a spider, for ``tbloom push`` and ``tbloom queue``: without a crawl, but as its crawls see them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from difflib import get_close_matches
from types import MethodType
from typing import Any, NamedTuple

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import request_from_dict

from tbloom import Note
from tbloom.bloom.claims.fleet import Fleet, project_of
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.crawl import queue_of
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import NotSerializable, write_note
from tbloom.scrapy.extras.oldqueue import OldQueue, open_old_queue
from tbloom.scrapy.options import error_line, make_store, naming_redis
from tbloom.scrapy.outage import CrawlBloom
from tbloom.scrapy.pending import arguments_of
from tbloom.scrapy.scheduler import FilteringScheduler
from tbloom.scrapy.settings import FILTER, MARK, SHARE, STORE

#: The fields of a line in JSON, each with the class of its value, and what that is called.
_FIELDS: dict[str, tuple[type[Any], str]] = {
    "url": (str, "text"),
    "callback": (str, "the name of a method of the spider"),
    "errback": (str, "the name of a method of the spider"),
    "method": (str, "text"),
    "headers": (dict, "an object"),
    "body": (str, "text"),
    "priority": (int, "a whole number"),
    "meta": (dict, "an object"),
    "cb_kwargs": (dict, "an object"),
}
_METHODS = "callback", "errback"


class _Given(NamedTuple):
    """A request that is to be left, with its item, its note, and further arguments of ``push_many``."""

    request: Request
    item: bytes
    note: Note
    arguments: tuple[tuple[str, Any], ...]
    #: The request as scrapy-redis' queue has it.
    stored: Any = None


class Moved(NamedTuple):
    """What became of requests in scrapy-redis' queue. Those of ``seen`` and ``refused`` stay in it."""

    #: The number of requests.
    read: int
    #: The number of those that were new, and wait now.
    new: int
    #: The number of those with ``dont_filter`` that were not, because their pages wait already, or are claimed.
    repeats: int
    #: The number of those that were seen.
    seen: int
    #: Those that can't be pushed, each with the reason.
    refused: list[str]


class SpiderQueue(NamedTuple):
    """The left pages of a spider with its arguments."""

    spider: Spider
    settings: BaseSettings
    queue: str
    seen: CrawlBloom
    fingerprinter: Any

    def push(self, lines: Sequence[tuple[int, str]]) -> int:
        """Leave the requests of lines to the next crawlers that take them, and return how many were new.

        A line has a URL, or a request as a JSON object. Raise ConfigError with the number of a line that is neither: then
        nothing is pushed.
        """
        given = [self._read(line, f"line {number}") for number, line in lines]
        with _naming_settings(self.settings):
            return len(self._push(given))

    def move(self, old: OldQueue, skip: int, count: int) -> Moved | None:
        """Leave up to ``count`` requests of scrapy-redis' queue to the next crawlers, and then remove them from that queue.

        The first ``skip`` requests stay. Return None if there are no further ones.

        After an interrupt between the two, what is pushed again is not new. Requests that were seen stay: scrapy-redis' set has all
        that wait in its queue, and whoever has imported the set too early would lose them.
        """
        with _naming_settings(self.settings):
            stored = old.read(skip, count)
        given, refused = list[_Given](), list[str]()
        for data in stored:
            request: Any = "a request"
            try:
                request = request_from_dict(old.loads(data), spider=self.spider)
                given.append(self._given(request, data))
            except Exception as error:  # noqa: BLE001 - pickles, and classes of the project, raise what they like
                is_ours = isinstance(error, NotSerializable | ConfigError)
                refused.append(f"{request}: {error if is_ours else _why(error)}")
        with _naming_settings(self.settings):
            unseen = self._unseen(given)
            new = self._push(unseen)
            old.remove([each.stored for each in unseen])
        repeats = sum(each.request.dont_filter for each in unseen)
        repeats -= sum(each.request.dont_filter for each in new)
        moved = Moved(len(stored), len(new), repeats, len(given) - len(unseen), refused)
        return moved if stored else None

    def old_queue(self, key: str) -> AbstractContextManager[OldQueue]:
        """Open scrapy-redis' queue of the spider. See ``open_old_queue``."""
        return open_old_queue(self.settings, self.spider.name, key)

    def _unseen(self, given: Iterable[_Given]) -> list[_Given]:
        return [
            each
            for arguments, group in _by_arguments(given)
            for each, is_seen in zip(
                group,
                self.seen.contains_many([each.item for each in group], **arguments),
                strict=True,
            )
            if not is_seen
        ]

    def _push(self, given: Iterable[_Given]) -> list[_Given]:
        """Leave the requests, and return those that were new. A repeat is not, and the first one's note is kept."""
        return [
            each
            for arguments, group in _by_arguments(given)
            for each, is_new in zip(
                group,
                self.seen.push_many(
                    [each.item for each in group], [each.note for each in group], **arguments
                ),
                strict=True,
            )
            if is_new
        ]

    @property
    def fleet(self) -> Fleet:
        """The spider's crawlers and its kept pages."""
        return Fleet(self.seen, self.queue)

    def _given(self, request: Request, stored: Any = None) -> _Given:
        item = self.fingerprinter.fingerprint(request)
        token, one_owner = Token("0", (item.hex(),)), SHARE.value(self.settings) == "hosts"
        note = write_note(request, token, self.spider, self.queue, one_owner=one_owner)
        arguments = arguments_of(request, self.seen, self.settings, claims=True)
        return _Given(request, item, note, arguments, stored)

    def _read(self, line: str, place: str) -> _Given:
        """Return what a line asks for."""
        try:
            return self._given(self._json(line, place) if line.startswith("{") else Request(line))
        except (ValueError, TypeError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            expected = f"a URL, or a request as a JSON object ({error})"
            raise ConfigError(place, line, expected) from None

    def _json(self, line: str, place: str) -> Request:
        fields = json.loads(line)
        for name, value in fields.items():
            if name not in _FIELDS:
                close = get_close_matches(name, _FIELDS, 1)
                hint = f"{close[0]!r}, or another of " if close else ""
                raise ConfigError(f"{place}: field", name, hint + ", ".join(_FIELDS))
            kind, what = _FIELDS[name]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ConfigError(f"{place}: {name}", value, what)
            if name == "headers" and not _are_headers(value):
                raise ConfigError(
                    f"{place}: {name}", value, "an object of texts, or lists of texts"
                )
            if name in _METHODS and type(getattr(self.spider, value, None)) is not MethodType:
                raise ConfigError(f"{place}: {name}", value, f"{what} {self.spider.name!r}")
        if "url" not in fields:
            raise ConfigError(place, line, "the field 'url'")
        return request_from_dict(fields, spider=self.spider)


@contextmanager
def open_queue(
    settings: Settings, name: str, arguments: Mapping[str, str]
) -> Iterator[SpiderQueue]:
    """Yield the queue of the project's spider with this name, made with these arguments. Raise TBloomError if there is none."""
    spider, crawler = _make_spider(settings, name, arguments)
    known = crawler.settings
    _check(known)
    with (
        _naming_settings(known),
        naming_redis(known),
        closing(make_store(known, spider.name)) as seen,
    ):
        assert isinstance(seen, CrawlBloom)  # noqa: S101 - it has been checked
        seen.contains_many([b"a"])  # raises if other parameters are stored
        fingerprinter = build_from_crawler(
            load_object(known["REQUEST_FINGERPRINTER_CLASS"]), crawler
        )
        ours = str(known["BOT_NAME"])
        is_others = project_of(seen) not in ("", ours)
        queue = queue_of(spider.name, arguments, ours if is_others else "")
        yield SpiderQueue(spider, known, queue, seen, fingerprinter)


def _make_spider(
    settings: Settings, name: str, arguments: Mapping[str, str]
) -> tuple[Spider, Crawler]:
    """Return the spider, and a crawler that does not crawl, with the settings of the spider and of the add-ons."""
    try:
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings)
        names = loader.list()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        raise TBloomError(f"a spider can't be imported: {_why(error)}") from None
    if name not in names:
        among = ", ".join(sorted(names)) or "there is none in SPIDER_MODULES"
        raise ConfigError("SPIDER", name, f"the name of a spider of this project ({among})")
    try:
        crawler = Crawler(loader.load(name), settings)
        # In the order of a crawl.
        spider = crawler.spidercls.from_crawler(crawler, **arguments)
        crawler.spider = spider
        crawler.addons.load_settings(crawler.settings)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        raise TBloomError(
            f"the spider {name!r} can't be made with these arguments: {_why(error)}"
        ) from None
    return spider, crawler


def _check(settings: BaseSettings) -> None:
    """Raise ConfigError if the crawls with these settings take no left pages, or not from a server."""
    if not issubclass(load_object(settings["SCHEDULER"]), FilteringScheduler):
        given = settings.getdict("ADDONS")
        expected = "{'tbloom.scrapy.Addon': 500}, with which crawlers take pushed pages"
        raise ConfigError("ADDONS", given, expected)
    if (mark := MARK.value(settings)) != "done":
        raise ConfigError(MARK.name, mark, "'done', with which crawlers take pushed pages")
    if (store := STORE.value(settings)) != "bloom":
        raise ConfigError(STORE.name, store, "'bloom', a filter on a server")
    key = FILTER["name"].value(settings)
    if key is not None and "%(timestamp)" in key:
        raise ConfigError(FILTER["name"].name, key, "the key of a filter that crawls share")


def _by_arguments(given: Iterable[_Given]) -> Iterator[tuple[dict[str, Any], list[_Given]]]:
    groups = defaultdict[tuple[tuple[str, Any], ...], list[_Given]](list)
    for each in given:
        groups[each.arguments].append(each)
    for arguments, group in groups.items():
        yield dict(arguments), group


@contextmanager
def _naming_settings(settings: BaseSettings) -> Iterator[None]:
    """Raise errors of the server, and of what it has stored, as one line that names the settings."""
    try:
        yield
    except (RedisError, RedisClusterException, ConfigMismatch) as error:
        raise TBloomError(error_line(error, settings)) from None


def _are_headers(fields: dict[str, Any]) -> bool:
    values = [each if isinstance(each, list) else [each] for each in fields.values()]
    return all(isinstance(each, str) for value in values for each in value)


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
