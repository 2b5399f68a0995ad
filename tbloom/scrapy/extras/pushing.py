"""The kept pages of a spider, for the commands about its fleet: without a crawl, but as its crawls see them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from difflib import get_close_matches
from types import MethodType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import load_object
from scrapy.utils.request import request_from_dict

from tbloom import Claim, Note
from tbloom.claims.fleet import ELSEWHERE, LEFT, Fleet, KeptPage, NewNote, project_of
from tbloom.claims.queues import queue_of
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import (
    NotSerializable,
    look_in_note,
    request_from_text,
    write_note,
)
from tbloom.scrapy.extras.moving import OldQueue
from tbloom.scrapy.hooks.engine import make_fingerprinter, rules_of
from tbloom.scrapy.inbox import FilteringScheduler
from tbloom.scrapy.links import arguments_of, look_of, version_of
from tbloom.scrapy.options import DEFAULT_KEY, error_line, make_store, naming_redis, why
from tbloom.scrapy.settings import FILTER, MARK, SHARE, STORE, expand, project_in
from tbloom.scrapy.stores import ClaimStore, CrawlBloom

_METHOD = "the name of a method of the spider"
#: The fields of a line in JSON, each with the classes of its value, and what that is called. A kept request has others as well,
#: which its class knows.
_FIELDS: dict[str, tuple[tuple[type[Any], ...], str]] = {
    "url": ((str,), "text"),
    "callback": ((str,), _METHOD),
    "errback": ((str,), _METHOD),
    "method": ((str,), "text"),
    "headers": ((dict,), "an object"),
    "body": ((str, dict), "text"),
    "cookies": ((dict, list), "an object, or a list of objects"),
    "encoding": ((str,), "text"),
    "priority": ((int,), "a whole number"),
    "dont_filter": ((bool,), "true or false"),
    "flags": ((list,), "a list"),
    "meta": ((dict,), "an object"),
    "cb_kwargs": ((dict,), "an object"),
}
_METHODS = "callback", "errback"
#: The scheme of a URL; and what no URL has, but CSV, tables and markup.
_SCHEME, _IN_NO_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*"), re.compile(r'[\s"<>]')
#: What a line may have besides, and what says how a kept request is made. Other names that begin with "_" say what became of it.
_CLASS, _RULE = "_class", "_rule"
#: What became of a line.
NEW, DONE, CLAIMED, REPEATED = "new", "done", "claimed", "repeated"


class Given(NamedTuple):
    """A request that is to be left, with its item, its note, and further arguments of ``push_many``."""

    item: bytes
    look: bytes
    note: Note
    arguments: tuple[tuple[str, Any], ...]
    #: Whether the line names a callback.
    has_callback: bool = False
    #: The request as scrapy-redis' queue has it.
    stored: Any = None


class SpiderQueue(NamedTuple):
    """The kept pages of a spider with its arguments."""

    spider: Spider
    settings: BaseSettings
    queue: str
    seen: ClaimStore
    fingerprinter: Any
    #: Those of URLs that the project's download handlers fetch.
    schemes: frozenset[str]

    @property
    def _bloom(self) -> CrawlBloom:
        assert self.seen.shared is not None  # noqa: S101 - open_queue has checked it
        return self.seen.shared

    def read(self, number: int, line: str) -> Given:
        """Return what a line asks for: it has a URL, or a request as a JSON object. Raise ConfigError with its number if it has neither."""
        place = f"line {number}"
        try:
            if not line.startswith("{"):
                self._check_url(line)
                return self._given(Request(line))
            fields = json.loads(line)
            self._check(fields)
            self._check_url(fields["url"])
            kept = {
                name: fields[name] for name in fields if name[:1] != "_" or name in (_CLASS, _RULE)
            }
            kept["url"] = Request(fields["url"]).url  # in ASCII
            made = request_from_text(json.dumps(kept), self.spider)
            return self._given(made, has_callback=bool(fields.get("callback")))
        except ConfigError as error:
            argument = f"{place}: {error.argument}" if error.argument else place
            raise ConfigError(argument, error.value, error.expected) from None
        except (ValueError, TypeError, RecursionError) as error:
            expected = f"a URL, or a request as a JSON object ({error})"
            raise ConfigError(place, line, expected) from None

    def push(self, given: Sequence[Given], *, again: bool = False) -> Counter[str]:
        """Leave the requests to the next crawlers that take them. Return how many were new, and what the others were.

        ``again``: those that were seen, are left, have failed or are given up are fetched now, with their kept requests, unless
        a line names a callback.
        """
        once = self._once(given)
        found = Counter({REPEATED: len(given) - len(once)})
        with _naming_settings(self.settings):
            claims = self._ask(once, again=False)
            found[NEW] = sum(answer is Claim.NEW for answer in claims.values())
            seen = {key: once[key] for key, answer in claims.items() if answer is Claim.SEEN}
            found[DONE] = len(seen)
            if again:
                claims |= self._ask(seen, again=True)
                found[DONE] -= sum(claims[key] is Claim.BUSY for key in seen)
            busy = [each for key, each in once.items() if claims[key] is Claim.BUSY]
            busy.sort(key=lambda each: each.look != each.item)  # the last one with a version counts
            by_item = {self._bloom.config.digest(each.item): each for each in busy}
            found[REPEATED] += len(busy) - len(by_item)
            found += self._kept([*by_item], by_item, again=again)
        return found

    def _once(self, given: Iterable[Given]) -> dict[bytes, Given]:
        """Return the requests by the digests of what is searched for. The first one's note is kept."""
        once = dict[bytes, Given]()
        for each in given:
            once.setdefault(self._bloom.config.digest(each.look), each)
        return once

    def _ask(self, given: Mapping[bytes, Given], *, again: bool) -> dict[bytes, Claim]:
        """Leave the requests that are new, and return the answers by digest."""
        groups = defaultdict[tuple[tuple[str, Any], ...], list[Given]](list)
        for each in given.values():
            groups[each.arguments].append(each)
        answers = dict[bytes, Claim]()
        for arguments, group in groups.items():
            items, looks, notes = (
                [getattr(each, name) for each in group] for name in ("item", "look", "note")
            )
            answers |= self._bloom.push_answered(
                items, looks, notes, again=again, **dict(arguments)
            )
        return answers

    def _kept(
        self, busy: Sequence[bytes], given: Mapping[bytes, Given], *, again: bool
    ) -> Counter[str]:
        """Return in which states items are that are not new; ``again``: leave those that are kept to the next crawlers."""
        fleet, found = Fleet(self._bloom, self.queue), Counter[str]()
        kept = fleet.kept_of(busy)
        by_state = defaultdict[str, list[KeptPage]](list)
        for digest in busy:
            if page := kept.get(digest):
                by_state[page.state].append(page)
            else:
                found[CLAIMED] += 1

        def is_new_version(page: KeptPage) -> bool:
            version = _version_in(given[page.digest].note.text)
            return version not in (b"", _version_in(page.note))

        def new_note(page: KeptPage) -> str:
            line = given[page.digest]
            return line.note.text if line.has_callback or is_new_version(page) else ""

        for state, pages in by_state.items():
            if again and state != ELSEWHERE:
                moved = fleet.retry(pages, new_note)
                found += Counter({state: moved.moved, CLAIMED: moved.gone})
            else:  # a page that waits gives its place to a new version
                newer = [page for page in pages if state == LEFT and is_new_version(page)]
                moved = fleet.retry(newer, new_note)
                found += Counter({NEW: moved.moved, CLAIMED: moved.gone})
                found[state] += len(pages) - len(newer)
        return found

    def bury(self) -> None:
        """Let the pages of dead crawlers be left. A line would take their callbacks from them."""
        with _naming_settings(self.settings):
            Fleet(self._bloom, self.queue).bury()

    def move(self, old: OldQueue, skip: int, count: int) -> tuple[Counter[str], list[str]]:
        """Leave up to ``count`` requests of scrapy-redis' queue to the next crawlers, and then remove them from that queue.

        The first ``skip`` requests stay. Return how many requests there were, how many of them were new and seen, and those that
        can't be pushed, each with the reason.

        After an interrupt between the two, what is pushed again is not new. Requests that were seen stay: scrapy-redis' set has all
        that wait in its queue, and whoever has imported the set too early would lose them.
        """
        with _naming_settings(self.settings):
            stored = old.read(skip, count)
        given, refused = list[Given](), list[str]()
        for data in stored:
            request: Any = "a request"
            try:
                request = request_from_dict(old.loads(data), spider=self.spider)
                given.append(self._given(request, data))
            except Exception as error:  # noqa: BLE001 - pickles, and classes of the project, raise what they like
                is_ours = isinstance(error, NotSerializable | ConfigError)
                refused.append(f"{request}: {error if is_ours else why(error)}")
        with _naming_settings(self.settings):
            answers = self._ask(self._once(given), again=False)
            digest = self._bloom.config.digest
            unseen = [each for each in given if answers[digest(each.look)] is not Claim.SEEN]
            old.remove([each.stored for each in unseen])
        new = sum(answer is Claim.NEW for answer in answers.values())
        return Counter(read=len(stored), new=new, seen=len(given) - len(unseen)), refused

    def _given(self, request: Request, stored: Any = None, *, has_callback: bool = False) -> Given:
        with _naming_fingerprinter(self.settings):
            item, version = self.fingerprinter.fingerprint(request), version_of(request)
        look = look_of(item, version, self.seen.config)
        token = Token("0", (item.hex(),), version=version.hex())
        one_owner = SHARE.value(self.settings) == "hosts"
        note = write_note(request, token, self.spider, self.queue, one_owner=one_owner)
        arguments = arguments_of(request, self.seen, self.settings, claims=True)
        return Given(item, look, note, arguments, has_callback, stored)

    def _check_url(self, url: str) -> None:
        """Raise ValueError if a download would fail: Scrapy's requests take nearly any text with "://" in it."""
        scheme, colon, rest = url.partition(":")
        if not (colon and _SCHEME.fullmatch(scheme)):
            raise ValueError("it begins with no scheme, such as https:")
        if scheme.lower() not in self.schemes:
            known = ", ".join(sorted(self.schemes))
            raise ValueError(f"the project has download handlers for {known}")
        if rest.startswith("//") and (found := _IN_NO_URL.search(url)):
            raise ValueError(f"{found[0]!r} is in no URL: {quote(found[0])} may be")
        if scheme.lower() in {"http", "https"} and not urlsplit(url).hostname:
            raise ValueError("it has no host")

    def _check(self, fields: dict[str, Any]) -> None:
        """Raise ConfigError that names a field that can't be right. What a kept value has inside is not looked at."""
        for name, value in fields.items():
            if name not in _FIELDS:
                if name.startswith("_") or _CLASS in fields:
                    continue
                close = get_close_matches(name, _FIELDS, 1)
                hint = f"{close[0]!r}, or another of " if close else ""
                raise ConfigError("field", name, hint + ", ".join(_FIELDS))
            if name in _METHODS and value is None:
                continue
            kinds, what = _FIELDS[name]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise ConfigError(name, value, what)
            if name == "body" and isinstance(value, dict) and [*value] != ["!bytes"]:
                raise ConfigError(name, value, what)
            if name == "headers" and not _are_headers(value):
                raise ConfigError(name, value, "an object of texts, or lists of texts")
            if name in _METHODS and type(getattr(self.spider, value, None)) is not MethodType:
                raise ConfigError(name, value, f"{what} {self.spider.name!r}")
        if "url" not in fields:
            raise ConfigError("", json.dumps(fields), "the field 'url'")


def _version_in(note: str) -> bytes:
    return look_in_note(b"", note.partition("\n")[0])


def with_callback(name: str, spider: Spider | None) -> NewNote:
    """Return what gives pages another callback. Raise ConfigError unless it is a method of the spider, if that is known."""
    if spider and type(getattr(spider, name, None)) is not MethodType:
        raise ConfigError("callback", name, f"{_METHOD} {spider.name!r}")

    def note(page: KeptPage) -> str:
        fields = page.fields
        if "url" not in fields:  # of another program
            return ""
        rules = spider and rules_of(spider, fields.get("callback"))
        fit = [n for n, rule in enumerate(rules or ()) if rule.callback == getattr(spider, name)]
        if fit:  # the page goes to the rule of a CrawlSpider, which also follows the links
            meta = fields.get("meta", {})
            if "rule" in meta:
                meta["rule"] = fit[0]
            return page.note_with({**fields, _RULE: name})
        if fields.get("callback") == "_callback":  # which would look for the rule
            fields = {key: value for key, value in fields.items() if key not in (_RULE, "errback")}
        return page.note_with({**fields, "callback": name})

    return note


@contextmanager
def open_queue(
    settings: Settings, name: str, arguments: Mapping[str, str] | None, *, has_local: bool = False
) -> Iterator[SpiderQueue]:
    """Yield the queue of the project's spider with this name, made with these arguments (None: any). Raise TBloomError if there is none.

    ``has_local``: it may be that of a filter without a server, if no crawl runs.
    """
    spider, crawler = _make_spider(settings, name, arguments, is_asked=has_local)
    known = crawler.settings
    _check(known, has_local=has_local)
    with _naming_fingerprinter(known):
        fingerprinter = make_fingerprinter(crawler)
    handlers = known.getwithbase("DOWNLOAD_HANDLERS").items()
    schemes = frozenset(scheme for scheme, handler in handlers if handler is not None)
    if STORE.value(known) == "local":
        with open_local(known, spider.name) as local:
            queue = queue_of(spider.name, arguments or {})
            yield SpiderQueue(spider, known, queue, local, fingerprinter, schemes)
        return
    with _naming_settings(known), closing(make_store(known, spider.name)) as store:
        seen = store.shared
        assert seen is not None  # noqa: S101 - it has been checked
        with naming_redis(known):
            seen.contains_many([b"a"])  # raises if other parameters are stored
            ours, first = project_in(known), project_of(seen)
        queue = queue_of(spider.name, arguments or {}, ours if first not in ("", ours) else "")
        yield SpiderQueue(spider, known, queue, seen, fingerprinter, schemes)


@contextmanager
def open_local(settings: BaseSettings, spider: str) -> Iterator[ClaimStore]:
    """Yield the filter without a server that the settings name, locked. Raise TBloomError if there is none, or a crawl has locked it."""
    path = FILTER["path"].value(settings)
    if path is None:
        expected = "the path of the filter's file, without which nothing is kept"
        raise ConfigError(FILTER["path"].name, path, expected)
    file = expand(FILTER["path"], path, spider=spider)
    if not os.path.exists(file):  # noqa: PTH110 - any path-like object
        raise ConfigError(FILTER["path"].name, file, "a file that a crawl has made")
    with _naming_settings(settings), closing(make_store(settings, spider)) as seen:
        claims = seen.claims
        assert claims is not None  # noqa: S101 - it marks pages that are done
        claims.open_claims(look_in_note)
        yield claims


def spiders_of(settings: Settings) -> dict[str, type[Spider]]:
    """Return the project's spiders by name. Raise TBloomError if one can't be imported."""
    try:
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings)
        return {name: loader.load(name) for name in sorted(loader.list())}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        raise TBloomError(f"a spider can't be imported: {why(error)}") from None


def filter_of(settings: Settings, name: str) -> tuple[Settings, str]:
    """Return the settings of the project's spider with this name, and the name of its filter. Raise ConfigError if it is on no server."""
    _, crawler = _make_spider(settings, name, None, is_asked=True)
    known = crawler.settings
    if (store := STORE.value(known)) == "local":
        raise ConfigError(
            STORE.name, store, f"a filter on a server ('tbloom queue {name}' shows this one)"
        )
    return known, expand(FILTER["name"], FILTER["name"].value(known) or DEFAULT_KEY, spider=name)


def _make_spider(
    settings: Settings, name: str, arguments: Mapping[str, str] | None, *, is_asked: bool
) -> tuple[Spider, Crawler]:
    """Return the spider, and a crawler that does not crawl, with the settings of the spider and of the add-ons.

    ``is_asked``: only about its pages. Then it has no arguments if none are named (None), even if it needs some.
    """
    if name not in (spiders := spiders_of(settings)):
        among = ", ".join(spiders) or "there is none in SPIDER_MODULES"
        raise ConfigError("SPIDER", name, f"the name of a spider of this project ({among})")
    try:
        crawler = Crawler(spiders[name], settings)
        # In the order of a crawl.
        crawler.spider = spider = _made(crawler, arguments, is_asked=is_asked)
        crawler.addons.load_settings(crawler.settings)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        raise TBloomError(
            f"the spider {name!r} can't be made with these arguments: {why(error)}"
        ) from None
    return spider, crawler


def _made(crawler: Crawler, arguments: Mapping[str, str] | None, *, is_asked: bool) -> Spider:
    kind = crawler.spidercls
    try:
        return kind.from_crawler(crawler, **(arguments or {}))
    except (Exception, SystemExit):  # it needs arguments, and says so as it likes
        if arguments is not None or not is_asked:
            raise
    spider: Spider = object.__new__(kind)
    of_scrapy: Any = next(each for each in kind.__mro__ if each.__module__.startswith("scrapy."))
    of_scrapy.__init__(spider)
    spider._set_crawler(crawler)  # noqa: SLF001 - as Spider.from_crawler does
    return spider


def _check(settings: BaseSettings, *, has_local: bool) -> None:
    """Raise ConfigError if the crawls with these settings take no left pages, or not from a server."""
    if not issubclass(load_object(settings["SCHEDULER"]), FilteringScheduler):
        given = settings.getdict("ADDONS")
        expected = "{'tbloom.scrapy.Addon': 500}, with which crawlers take pushed pages"
        raise ConfigError("ADDONS", given, expected)
    if (mark := MARK.value(settings)) != "done":
        raise ConfigError(MARK.name, mark, "'done', with which crawlers take pushed pages")
    if (store := STORE.value(settings)) != "bloom" and not (has_local and store == "local"):
        raise ConfigError(STORE.name, store, "'bloom', a filter on a server")
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


@contextmanager
def _naming_fingerprinter(settings: BaseSettings) -> Iterator[None]:
    """Raise what the project's fingerprinter raises as one line that names the setting."""
    try:
        yield
    except ConfigError:  # a wrong version
        raise
    except Exception as error:  # noqa: BLE001 - as above
        name = "REQUEST_FINGERPRINTER_CLASS"
        raise TBloomError(f"{name} is {settings[name]}, which raises {why(error)}") from None


def _are_headers(fields: dict[str, Any]) -> bool:
    if [*fields] == ["!dict"]:
        return True
    values = [each if isinstance(each, list) else [each] for each in fields.values()]
    return all(isinstance(each, str) for value in values for each in value)
