"""What is wrong with a project's settings and spiders, or with what Redis has stored for them: for ``tbloom doctor``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

import redis
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.misc import load_object
from scrapy.utils.project import ENVVAR

from tbloom.engine.server import unsaved
from tbloom.errors import TBloomError
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.components import DupeFilter
from tbloom.scrapy.done.page import place_of
from tbloom.scrapy.extras.counts import KINDS, DistinctCounts, make_counters
from tbloom.scrapy.extras.notes import notes_on, shares_queue
from tbloom.scrapy.hooks.feeds import refused_feed
from tbloom.scrapy.options import (
    check_mark,
    check_server_of_queue,
    error_line,
    make_store,
    naming_redis,
    server_settings,
    why,
)
from tbloom.scrapy.settings import (
    COUNTS,
    FILTER,
    MARK,
    STORE,
    Setting,
    check_settings,
    expand,
)

_PERSIST = "SCHEDULER_PERSIST"
#: tbloom's classes, by the setting that names them.
_OURS = {"ADDONS": "tbloom.scrapy.Addon", "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
#: A fault names at most so many spiders.
_NAMED = 3
_READ_ONLY = "{}: a replica, which takes no writes: name its master"
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def examine(settings: BaseSettings) -> tuple[list[str], list[str]]:
    """Return the faults of the project and its spiders, of each spider the first one that a crawl meets, and notes.

    A fault is a line and, if the setting is in a file, a line with that file. A fault that only some spiders have names them.
    """
    try:
        loader = _load("SPIDER_LOADER_CLASS", settings["SPIDER_LOADER_CLASS"])
    except TBloomError as fault:
        return [_placed(fault, settings)], []
    try:
        loaded = loader.from_settings(settings.frozencopy())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        place = _raised_at(error) or _place("SPIDER_MODULES", settings)
        return [_at(place, f"a spider can't be imported, so none can crawl: {why(error)}")], []
    faults, notes = dict[str, list[str]](), dict[str, list[str]]()
    for name in loaded.list() or ["spider"]:
        spider = loaded.load(name) if name in loaded.list() else None
        try:
            faults[name], notes[name] = _examine_spider(spider, name, settings)
        except redis.ConnectionError as error:  # further spiders would have to wait for it, too
            return [*_merged(faults), str(error)], []
    return _merged(faults), _merged(notes)


def _merged(texts: dict[str, list[str]]) -> list[str]:
    """Return each text of the spiders once, with the names of those that have it, unless all have."""
    merged = list[str]()
    for text in dict.fromkeys(chain.from_iterable(texts.values())):
        names = [name for name, own in texts.items() if text in own]
        more = len(names) - _NAMED
        shown = ", ".join(names[:_NAMED]) + f" and {more} more" * (more > 0)
        merged.append(text if len(names) == len(texts) else f"spider {shown}: {text}")
    return merged


def _examine_spider(
    spider: type[Spider] | None, name: str, settings: BaseSettings
) -> tuple[list[str], list[str]]:
    """Return the faults and the notes of one spider, or of a project without any.

    Of what ends a crawl, only the first is known. The rest is what it only warns of.
    """
    settings = settings.copy()
    try:
        if spider:
            spider.update_settings(settings)
    except Exception as error:  # noqa: BLE001 - whatever the spider raises
        what = f"update_settings of a spider fails: {why(error)}"
        return [_at(_raised_at(error), what)], []
    crawler, checked = Crawler(spider or Spider, Settings(settings)), settings.copy()
    try:
        warned, notes = _check(checked, name, crawler)
    except redis.ConnectionError as error:
        raise redis.ConnectionError(_placed(error, settings, spider)) from None
    except (TBloomError, TypeError, ValueError) as error:  # a bool or a dict of Scrapy's
        return [_placed(error, settings, spider)], []
    with suppress(Exception):  # a wrong setting of Scrapy's, which Scrapy names
        notes.extend(notes_on(spider, crawler, checked))
    return [_placed(each, settings, spider) for each in warned], notes


# What ends a crawl, or keeps tbloom out of it


def _check(settings: BaseSettings, name: str, crawler: Crawler) -> tuple[list[str], list[str]]:
    """Look at what a crawl looks at, in its order. Return what it warns of, and what it only notes. Change nothing that is stored.

    The settings become those of the crawl.
    """
    given = [(kind, settings.getdict(kind).items()) for kind in ("ADDONS", "EXTENSIONS")]
    components = [
        _load(kind, path) for kind, paths in given for path, on in paths if on is not None
    ]
    for kind in "DUPEFILTER_CLASS", "SCHEDULER", "DOWNLOADER":
        _load(kind, settings[kind])
    if Addon in components:
        try:
            Addon().update_settings(settings)
        except NotConfigured as error:
            raise TBloomError(f"tbloom's add-on is off: {error}") from None
    if not issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter):
        names = ", ".join(sorted(each for each in settings if each.startswith("TBLOOM_")))
        raise TBloomError(_OFF.format(f" (without effect: {names})" if names else ""))
    if DistinctCounts in components:
        with _saying_as_a_crawl(settings, COUNTS):
            counter = make_counters(settings, name)[KINDS[0]]
            with closing(counter.client), naming_redis(settings):
                counter.count()
    check_settings(settings)
    is_shared = shares_queue(settings)
    check_mark(settings, shares_queue=is_shared, has_add_on=Addon in components)
    if is_shared and not settings.getbool(_PERSIST):
        raise TBloomError(
            f"{_PERSIST}: without it, scrapy-redis deletes the queue when a crawl is stopped, and its pages count as seen for "
            f"the whole window: set it to True; or remove SCHEDULER, and set {MARK.name} = 'done'"
        )
    is_local = STORE.value(settings) == "local"
    with _saying_as_a_crawl(settings, FILTER):
        if is_shared:
            check_server_of_queue(settings)
        found = _read_file(settings, name) if is_local else _ask_filter(settings, name)
    refused = ""
    with suppress(Exception):  # Scrapy ends by it, or the project's own component needs a crawl
        refused = refused_feed(crawler)
    if refused:
        raise TBloomError(
            f"FEEDS: the crawl ends before its first request, because a feed can't be opened: {refused}"
        )
    return found


@contextmanager
def _saying_as_a_crawl(settings: BaseSettings, table: Mapping[str, Setting]) -> Iterator[None]:
    """Raise a store's error as a crawl says it, ConnectionError if the server does not answer; ``table``: the settings of the store."""
    try:
        yield
    except (TBloomError, redis.RedisError, redis.exceptions.RedisClusterException) as error:
        is_away = isinstance(error, redis.ConnectionError | redis.TimeoutError)
        kind = redis.ConnectionError if is_away else TBloomError
        raise kind(error_line(error, settings, table)) from None


def _ask_filter(settings: BaseSettings, name: str) -> tuple[list[str], list[str]]:
    make_store(settings, name).close()  # else a wrong TBLOOM_RETRY_FOR would not be found
    seen: Any = make_store(settings, name, retry_for=0)
    with closing(seen), naming_redis(settings):
        seen.contains_many([b"a"])  # raises if other parameters are stored
        told, damage = seen.told()
        if told.is_read_only:
            return [_READ_ONLY.format(server_settings(settings))], []
        since = told.unsaved_since
        # What is lost, nobody can mend.
        return told.warnings, damage if since is None else [*damage, unsaved(since)]


def _read_file(settings: BaseSettings, name: str) -> tuple[list[str], list[str]]:
    """Compare the settings with a file's, if there is one. A crawl makes it. There is nothing to warn of."""
    path = FILTER["path"]
    if path.value(settings) is not None:
        file = Path(expand(path, path.value(settings), spider=name))
        if file.parent.is_dir() and not file.exists():
            settings.set(path.name, None, "cmdline")
    with closing(make_store(settings, name)) as seen:
        seen.contains_many([b"a"])
    return [], []


# Texts and places


def _load(name: str, value: Any) -> Any:
    """Return what a setting of this name names. Raise TBloomError if it can't be imported."""
    try:
        return load_object(value)
    except Exception as error:  # noqa: BLE001 - whatever the project's own module raises
        close = get_close_matches(str(value), [_OURS.get(name, "")], 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        what = f"{name} can't be imported: {type(error).__name__}: {error}{hint}"
        raise TBloomError(what) from None


def _placed(fault: object, settings: BaseSettings, spider: type[Spider] | None = None) -> str:
    """Return the fault with the file of its setting."""
    return _at(_place(str(fault), settings, spider), str(fault))


def _at(place: str, fault: str) -> str:
    return f"{fault}\n{place}".rstrip()


def _raised_at(error: BaseException) -> str:
    """Return the project's last line on the way to the error; "" if none of its lines is."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}:{error.lineno}"
    return place_of(error)


def _place(fault: str, settings: BaseSettings, spider: type[Spider] | None = None) -> str:
    """Return the file of the setting that a fault names first, and its name; "" if it has a default."""
    named = re.search(r"\b[A-Z]+(_[A-Z]+)*\b", fault)
    priority = settings.getpriority(named[0]) if named else None
    in_file = range(SETTINGS_PRIORITIES["project"], SETTINGS_PRIORITIES["cmdline"])
    if named is None or priority is None or priority not in in_file:
        return ""
    module = os.environ.get(ENVVAR, "")
    if spider and priority >= SETTINGS_PRIORITIES["spider"]:
        bases = spider.__mro__
        sets = [each for each in bases if named[0] in (vars(each).get("custom_settings") or ())]
        module = (sets or [spider])[0].__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    return f"{_relative(file)}: {named[0]}" if file else ""


def _relative(file: str) -> str:
    """Return the path within the project's folder, if it is there."""
    root, path = Path(closest_scrapy_cfg() or "scrapy.cfg").resolve().parent, Path(file)
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
