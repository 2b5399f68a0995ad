"""The left pages of a spider, for ``tbloom push`` and ``tbloom queue``: without a crawl, but as its crawls see them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
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
from tbloom.bloom.claims.notes import QueueInfo
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.crawl import failed_queue_of, queue_of
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import write_note
from tbloom.scrapy.options import error_line, naming_redis, read_options
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
        groups = defaultdict[tuple[tuple[str, Any], ...], dict[bytes, Note]](dict)
        for number, line in lines:
            request, note = self._read(line, f"line {number}")
            arguments = arguments_of(request, self.seen, self.settings, claims=True)
            # A repeat gets the first note.
            groups[arguments].setdefault(*note)
        with _naming_settings(self.settings):
            return sum(
                sum(self.seen.push_many([*notes], [*notes.values()], **dict(arguments)))
                for arguments, notes in groups.items()
            )

    def info(self) -> tuple[QueueInfo, int]:
        """Return what is known of the queue, and the number of pages that have failed in earlier crawls."""
        with _naming_settings(self.settings):
            info, failed = map(self.seen.queue_info, (self.queue, failed_queue_of(self.queue)))
        return info, failed.left + failed.suspects

    def _read(self, line: str, place: str) -> tuple[Request, tuple[bytes, Note]]:
        """Return the request of a line, its item and its note."""
        try:
            request = self._json(line, place) if line.startswith("{") else Request(line)
            item = self.fingerprinter.fingerprint(request)
            token, one_owner = Token("0", (item.hex(),)), SHARE.value(self.settings) == "hosts"
            note = write_note(request, token, self.spider, self.queue, one_owner=one_owner)
        except (ValueError, TypeError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            expected = f"a URL, or a request as a JSON object ({error})"
            raise ConfigError(place, line, expected) from None
        return request, (item, note)

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
        closing(read_options(known, spider.name)) as answers,
    ):
        assert isinstance(answers.seen, CrawlBloom)  # noqa: S101 - it has been checked
        answers.seen.contains_many([b"a"])  # raises if other parameters are stored
        fingerprinter = build_from_crawler(
            load_object(known["REQUEST_FINGERPRINTER_CLASS"]), crawler
        )
        queue = queue_of(spider.name, arguments)
        yield SpiderQueue(spider, known, queue, answers.seen, fingerprinter)


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
    if (mark := MARK.value(settings)) != "done":
        raise ConfigError(MARK.name, mark, "'done', with which crawlers take pushed pages")
    if (store := STORE.value(settings)) != "bloom":
        raise ConfigError(STORE.name, store, "'bloom', a filter on a server")
    if not issubclass(load_object(settings["SCHEDULER"]), FilteringScheduler):
        given = settings.getdict("ADDONS")
        raise ConfigError("ADDONS", given, "{'tbloom.scrapy.Addon': 500}, which 'done' needs")
    key = FILTER["name"].value(settings)
    if key is not None and "%(timestamp)" in key:
        raise ConfigError(FILTER["name"].name, key, "the key of a filter that crawls share")


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
