"""What is wrong with a project's settings and spiders, or with what Redis has stored for them: for ``tbloom doctor``."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import Spider
from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.misc import load_object
from scrapy.utils.project import ENVVAR

from tbloom import LocalBloom
from tbloom.engine.retries import is_outage
from tbloom.errors import ConfigError, ConfigMismatch, TBloomError
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.extras import fleet
from tbloom.scrapy.extras.counts import KINDS, DistinctCounts, make_counters
from tbloom.scrapy.options import (
    REDIS,
    error_line,
    make_client,
    make_store,
    naming_redis,
    needs_no_shared_queue,
    server_settings,
)
from tbloom.scrapy.settings import (
    COUNTS,
    FILTER,
    KNOWN,
    MARK,
    PAGES,
    STORE,
    Setting,
    check_settings,
    expand,
)

_PERSIST, _WARN_ONLY = "SCHEDULER_PERSIST", "SPIDER_LOADER_WARN_ONLY"
#: The classes of tbloom's that settings name.
_OURS = {"ADDONS": "tbloom.scrapy.Addon", "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
#: How many spiders a fault names.
_NAMED = 3
#: What is expected where there is no page store yet.
_PAGES_THERE = "a folder with a page store"
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def examine(settings: BaseSettings) -> tuple[list[str], list[str]]:
    """Return the faults of the project and its spiders, and notes about several crawlers at once, which are no faults.

    A fault is a line and, if the setting is in a file, a line with that file. What only some spiders have names them.
    """
    spiders, faults = list[type[Spider] | None](), list[str]()
    try:
        _loaded("SPIDER_LOADER_CLASS", settings["SPIDER_LOADER_CLASS"])
    except ImportError as error:
        return [f"{error}\n{_place('SPIDER_LOADER_CLASS', settings, None)}".rstrip()], []
    try:
        spiders += _spiders(settings, warn_only=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        others = settings.getbool(_WARN_ONLY)
        what = "a spider can't be imported" + ", so none can crawl" * (not others)
        place = _raised_at(error) or _place("SPIDER_MODULES", settings, None)
        faults.append(f"{what}: {_why(error)}\n{place}".rstrip())
        if others:
            spiders += _spiders(settings, warn_only=True)
    #: By text, the spiders that have it.
    found, noted = dict[str, list[str]](), dict[str, list[str]]()
    away = dict[str, str]()
    for spider in spiders or [None]:
        name = spider.name if spider else "spider"
        own, notes = _examine_spider(spider, name, settings, away)
        for texts, known in ((own, found), (notes, noted)):
            for text in dict.fromkeys(texts):
                known.setdefault(text, []).append(name)
    number = len(spiders) or 1
    return faults + _naming_spiders(found, number), _naming_spiders(noted, number)


def _naming_spiders(found: dict[str, list[str]], spiders: int) -> list[str]:
    """Return the texts, each with the names of the spiders that have it, unless all have."""
    texts = []
    for text, names in found.items():
        more = len(names) - _NAMED
        shown = ", ".join(names[:_NAMED]) + f" and {more} more" * (more > 0)
        texts.append(text if len(names) >= spiders else f"spider {shown}: {text}")
    return texts


def _spiders(settings: BaseSettings, *, warn_only: bool) -> list[type[Spider]]:
    """Return the project's spiders. Raise what a spider raises that can't be imported; with ``warn_only``, leave it out."""
    settings = settings.copy()
    settings.set(_WARN_ONLY, warn_only, "cmdline")
    with warnings.catch_warnings(action="ignore"):  # Scrapy makes a warning of a traceback
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
    return [loader.load(name) for name in loader.list()]


def _examine_spider(
    spider: type[Spider] | None, name: str, settings: BaseSettings, away: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return the faults of one spider, or of a project without any, and the notes.

    ``away``: the servers that have not answered, with the error.
    """
    settings = settings.copy()
    try:
        if spider:
            spider.update_settings(settings)
    except Exception as error:  # noqa: BLE001 - whatever the spider raises
        what = f"the settings of a spider can't be made: {_why(error)}"
        return [f"{what}\n{_raised_at(error)}".rstrip()], []
    one, notes = _Examination(settings, name, away), list[str]()
    faults = [f"{fault}\n{_place(fault, settings, spider)}".rstrip() for fault in one.faults()]
    if one.is_right:
        with suppress(Exception):  # a wrong setting of Scrapy's, which Scrapy names
            notes.extend(fleet.clashes(one.settings))
    return faults, notes


class _Examination:
    """Looks for the faults of one spider's settings.

    A check raises its first error. So that the next one shows, a wrong setting is left out, and the check made again.
    """

    def __init__(self, settings: BaseSettings, name: str, away: dict[str, str]) -> None:
        self._name, self._away = name, away
        #: Without the wrong ones, and with what the add-on sets.
        self.settings = settings.copy()
        self._wrong = set[str]()
        #: Whether tbloom filters, or is meant to: the name of its class may be wrong.
        self.filters = True

    @property
    def is_right(self) -> bool:
        """Whether tbloom filters, with the settings as they are given."""
        return self.filters and not self._wrong

    def faults(self) -> Iterator[str]:
        """Yield each fault, those that the settings alone show first. Change nothing."""
        for look in (self._classes, self._values, self._mark, self._stores):
            try:
                yield from look()
            # A class, a bool or a dict of Scrapy's.
            except (ImportError, TypeError, ValueError, NotConfigured) as error:
                yield str(error)

    def _classes(self) -> Iterator[str]:
        """Look at the classes without which Scrapy can't start, and whether they make tbloom the filter."""
        settings = self.settings
        for name in ("DUPEFILTER_CLASS", "SCHEDULER", "DOWNLOADER"):
            try:
                if not isclass(_loaded(f"tbloom can't start: {name}", settings[name])):
                    yield f"tbloom can't start: {name} is no class, but {settings[name]!r}"
                    self._leave_out(name)
            except ImportError as error:
                yield str(error)
                self._leave_out(name)
        yield from self._components("ADDONS")
        if self._has(Addon, "ADDONS"):
            try:
                Addon().update_settings(settings)
            except NotConfigured as error:
                yield f"tbloom's add-on is off: {error}"
                self.filters = False
        elif self._wrong.isdisjoint(_OURS):
            self.filters = issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter)
            if not self.filters:
                names = sorted(name for name in settings if name.startswith("TBLOOM_"))
                yield _OFF.format(f" (without effect: {', '.join(names)})" if names else "")

    def _values(self) -> Iterator[str]:
        """Look at the settings that begin with TBLOOM_, and at the classes that say which of them are used."""
        yield from self._errors(lambda: check_settings(self.settings))
        yield from self._components("EXTENSIONS")

    def _mark(self) -> Iterator[str]:
        """Look at what the queue and the add-on are to TBLOOM_MARK."""
        settings = self.settings
        is_done, is_shared = settings.get(MARK.name) == "done", fleet.shares_queue(settings)
        if not self.filters:
            return
        if is_done and is_shared:
            yield str(needs_no_shared_queue())
        elif is_done and not self._has(Addon, "ADDONS") and "ADDONS" not in self._wrong:
            yield f"{MARK.name}: 'done' needs ADDONS = {{'tbloom.scrapy.Addon': 500}}"
        elif is_shared and not settings.getbool(_PERSIST):
            yield (
                f"{_PERSIST}: without it, scrapy-redis deletes the queue where a crawl is stopped, and its pages count as seen for "
                f"the whole window: set it to True; or remove SCHEDULER, and set {MARK.name} = 'done'"
            )

    def _stores(self) -> Iterator[str]:
        """Look at the parameters of each store, then at its server and at what is stored."""
        asks = list[tuple[Mapping[str, Setting], Callable[[], Iterable[str]]]]()
        if STORE.name not in self._wrong:  # else its arguments may be right
            yield from self._errors(lambda: make_store(self._offline(), self._name).close())
            if self.filters:
                asks.append((FILTER, self._ask_filter))
        if self._has(DistinctCounts, "EXTENSIONS"):
            yield from self._errors(lambda: make_counters(self._offline(), self._name))
            asks.append((COUNTS, self._ask_counters))
        is_local = STORE.value(self.settings) == "local"
        if any(table is COUNTS or not is_local for table, _ in asks):
            yield from self._asked(FILTER, lambda: self._errors(self._make_client))
            if not self._wrong.isdisjoint(REDIS):  # it would be another server
                asks = [each for each in asks if each[0] is FILTER and is_local]
        for table, ask in asks:
            yield from self._asked(table, ask)
        if self.settings.getbool("HTTPCACHE_ENABLED"):
            storage = _loaded("HTTPCACHE_STORAGE", self.settings["HTTPCACHE_STORAGE"])
            if fleet.is_page_cache(storage):
                yield from self._asked(PAGES, lambda: self._ask_pages(storage))

    def _asked(
        self, table: Mapping[str, Setting], ask: Callable[[], Iterable[str]]
    ) -> Iterator[str]:
        """Yield what a store says, and the error that it raises."""
        names = {setting.name for setting in table.values()}
        # An unknown setting may be one of these, misspelled.
        is_unknown = any(n.startswith("TBLOOM_") and n not in KNOWN for n in self._wrong)
        are_right = names.isdisjoint(self._wrong) and not is_unknown
        try:
            yield from ask()
        except (TBloomError, RedisError, RedisClusterException) as error:
            if isinstance(error, ConfigMismatch) and not are_right:
                return
            line = error_line(error, self.settings, table)
            if is_outage(error):
                self._away[server_settings(self.settings)] = line
            yield line

    def _make_client(self) -> None:
        if server_settings(self.settings) not in self._away:
            make_client(self.settings)[0].close()

    def _ask_filter(self) -> Iterator[str]:
        settings, name = self.settings, self._name
        if STORE.value(settings) == "local":
            _keep_from_making_a_file(settings, name)
        elif line := self._away.get(server_settings(settings)):
            yield line
            return
        with naming_redis(settings), closing(make_store(settings, name, retry_for=0)) as seen:
            seen.contains_many([b"a"])  # raises if other parameters are stored
            if not isinstance(seen, LocalBloom):
                yield from seen.warnings()

    def _ask_counters(self) -> Iterator[str]:
        if line := self._away.get(server_settings(self.settings)):
            yield line
            return
        counter = make_counters(self.settings, self._name)[KINDS[0]]
        with naming_redis(self.settings), closing(counter.client):
            counter.count()

    def _ask_pages(self, kind: Any) -> Iterator[str]:
        """Look at the parameters, in a store that is made for it, then at the store that there is."""
        with TemporaryDirectory() as folder:
            new = {PAGES["path"].name: folder, PAGES["readonly"].name: False}
            yield from self._errors(lambda: self._open_pages(kind, **new))
        is_default = self.settings.get(PAGES["path"].name) is None
        if is_default and not Path(_root(), ".scrapy").is_dir():
            return  # Scrapy would make it
        try:
            self._open_pages(kind, **{PAGES["readonly"].name: True})
        except ConfigError as error:
            # The first crawl makes it.
            if PAGES["readonly"].value(self.settings) or error.expected != _PAGES_THERE:
                yield str(error)

    def _open_pages(self, kind: Any, **changed: Any) -> None:
        settings = self.settings.copy()
        settings.setdict(changed, "cmdline")
        storage = kind(settings)
        storage._open(self._name)  # noqa: SLF001 - open_spider needs a crawler
        storage.close_spider(Spider(self._name))

    def _offline(self) -> BaseSettings:
        """Return the settings without a server or a file: they make a store that asks nobody."""
        settings = self.settings.copy()
        for name in {*REDIS} & {*settings}:
            del settings[name]
        if STORE.value(settings) == "local":
            settings.set(FILTER["path"].name, None, "cmdline")
        return settings

    def _errors(self, check: Callable[[], object]) -> Iterator[str]:
        """Yield each error of a setting. A setting has one."""
        while True:
            try:
                check()
            except ConfigError as error:
                names = {*error.argument.split(", ")}
                if not names <= self._wrong:
                    yield str(error)
                    self._wrong |= names
                    for name in names & {*self.settings}:
                        del self.settings[name]
                elif not self._leave_out_what_lacks(check, str(error)):
                    return
            else:
                return

    def _leave_out_what_lacks(self, check: Callable[[], object], error: str) -> bool:
        """Leave out the setting that needs a wrong one, which was left out: it may be right. Return whether there is one."""
        for name in sorted(KNOWN.keys() & {*self.settings}):
            kept = self.settings.attributes.pop(name)
            try:
                check()
            except ConfigError as other:
                if str(other) == error:
                    self.settings.attributes[name] = kept
                    continue
            return True
        return False

    def _components(self, name: str) -> Iterator[str]:
        """Yield a fault for each component of the setting that can't be imported, and leave it out."""
        given = self.settings.getdict(name)
        for path in [path for path, on in given.items() if on is not None]:
            try:
                _loaded(name, path)
            except ImportError as error:
                yield str(error)
                self._wrong.add(name)
                del given[path]
                self.settings.set(name, given, self.settings.getpriority(name) or 0)

    def _has(self, kind: type[Any], name: str) -> bool:
        """Return whether the setting switches this component on."""
        given = self.settings.getdict(name)
        return any(load_object(path) is kind for path, on in given.items() if on is not None)

    def _leave_out(self, name: str) -> None:
        self._wrong.add(name)
        del self.settings[name]
        self.settings.set(name, Settings()[name], "default")


def _keep_from_making_a_file(settings: BaseSettings, name: str) -> None:
    """Unset TBLOOM_PATH if the first crawl will make the file."""
    path = FILTER["path"]
    if STORE.value(settings) == "local" and (text := path.value(settings)) is not None:
        file = Path(expand(path, text, spider=name))
        if file.parent.is_dir() and not file.exists():
            settings.set(path.name, None, SETTINGS_PRIORITIES["cmdline"])


# Where a fault is


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _raised_at(error: BaseException) -> str:
    """Return the project's last line on the way to the error; "" if none of its lines is."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(_relative(frame.filename))
        # An environment of Python may be in the project's folder.
        if not (path.is_absolute() or "site-packages" in path.parts or path.name.startswith("<")):
            return f"{path}, line {frame.lineno}"
    return ""


def _place(fault: str, settings: BaseSettings, spider: type[Spider] | None) -> str:
    """Return the file of the setting that a fault names first, and its name; "" if it has a default."""
    named = re.search(r"\b[A-Z]+(_[A-Z]+)*\b", fault)
    priority = settings.getpriority(named[0]) if named else None
    if named is None or priority is None or priority < SETTINGS_PRIORITIES["project"]:
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
    root, path = _root(), Path(file)
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _root() -> Path:
    return Path(closest_scrapy_cfg() or "scrapy.cfg").resolve().parent


# Classes


def _loaded(place: str, value: Any) -> Any:
    """Return what the value names. Raise ImportError, which begins with the place."""
    try:
        return load_object(value)
    except Exception as error:  # noqa: BLE001 - whatever the project's own module raises
        why = f"{type(error).__name__}: {error}"
        meant = next((path for name, path in _OURS.items() if place.endswith(name)), "")
        is_close = get_close_matches(str(value), [meant], 1)
        hint = f"; did you mean {meant!r}?" if is_close else ""
        raise ImportError(f"{place} names what can't be imported: {why}{hint}") from None
