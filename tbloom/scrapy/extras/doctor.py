"""What is wrong with a project's settings and spiders, or with what Redis has stored for them: for ``tbloom doctor``."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import closing
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from typing import Any

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy import Spider
from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.misc import load_object
from scrapy.utils.project import ENVVAR

from tbloom import LocalBloom
from tbloom.engine.retries import is_outage
from tbloom.errors import TBloomError
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.extras.counts import KINDS, DistinctCounts, make_counters
from tbloom.scrapy.options import (
    error_line,
    make_store,
    naming_redis,
    needs_no_shared_queue,
    server_settings,
)
from tbloom.scrapy.settings import COUNTS, FILTER, MARK, STORE, expand

_PERSIST, _WARN_ONLY = "SCHEDULER_PERSIST", "SPIDER_LOADER_WARN_ONLY"
#: The classes of tbloom's that settings name.
_OURS = {"ADDONS": "tbloom.scrapy.Addon", "DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
#: How many spiders a fault names.
_NAMED = 3
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def faults(settings: BaseSettings) -> Iterator[str]:
    """Yield each fault of the project and its spiders: a line and, if the setting is in a file, a line with that file.

    A fault that only some spiders have names them.
    """
    spiders = list[type[Spider] | None]()
    try:
        _loaded("SPIDER_LOADER_CLASS", settings["SPIDER_LOADER_CLASS"])
    except ImportError as error:
        yield f"{error}\n{_place('SPIDER_LOADER_CLASS', settings, None)}".rstrip()
        return
    try:
        spiders += _spiders(settings, warn_only=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the project's own modules raise
        others = settings.getbool(_WARN_ONLY)
        what = "a spider can't be imported" + ", so none can crawl" * (not others)
        place = _raised_at(error) or _place("SPIDER_MODULES", settings, None)
        yield f"{what}: {_why(error)}\n{place}".rstrip()
        if others:
            spiders += _spiders(settings, warn_only=True)
    #: By fault, the spiders that have it.
    found, away = dict[str, dict[str, None]](), dict[str, str]()
    for spider in spiders or [None]:
        name = spider.name if spider else "spider"
        for fault in _faults_of(spider, name, settings, away):
            found.setdefault(fault, {})[name] = None
    for fault, names in found.items():
        more = len(names) - _NAMED
        shown = ", ".join([*names][:_NAMED]) + f" and {more} more" * (more > 0)
        yield fault if len(names) >= len(spiders) else f"spider {shown}: {fault}"


def _spiders(settings: BaseSettings, *, warn_only: bool) -> list[type[Spider]]:
    """Return the project's spiders. Raise what a spider raises that can't be imported; with ``warn_only``, leave it out."""
    settings = settings.copy()
    settings.set(_WARN_ONLY, warn_only, "cmdline")
    with warnings.catch_warnings(action="ignore"):  # Scrapy makes a warning of a traceback
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
    return [loader.load(name) for name in loader.list()]


def _faults_of(
    spider: type[Spider] | None, name: str, settings: BaseSettings, away: dict[str, str]
) -> Iterator[str]:
    """Yield the faults of one spider, or of a project without any; ``away``: the servers that have not answered, with the error."""
    settings = settings.copy()
    try:
        if spider:
            spider.update_settings(settings)
    except Exception as error:  # noqa: BLE001 - whatever the spider raises
        yield f"the settings of a spider can't be made: {_why(error)}\n{_raised_at(error)}".rstrip()
        return
    given = settings.copy()  # the add-on changes settings
    for fault in _until_one_hides_others(settings, name, away):
        yield f"{fault}\n{_place(fault, given, spider)}".rstrip()


def _until_one_hides_others(
    settings: BaseSettings, name: str, away: dict[str, str]
) -> Iterator[str]:
    try:
        yield from _check_settings(settings)
        if (server := server_settings(settings)) in away:
            yield away[server]
        else:
            yield from _check_stored(settings, name)
    except (ImportError, ValueError, NotConfigured) as error:  # a class, a bool of Scrapy's
        yield str(error)
    except (TBloomError, RedisError, RedisClusterException) as error:
        line = error_line(error, settings)
        if is_outage(error):
            away[server_settings(settings)] = line
        yield line


def _check_settings(settings: BaseSettings) -> Iterator[str]:
    """Yield faults that the settings alone show. Set what the add-on sets. Raise NotConfigured if tbloom is off."""
    _check_classes(settings)
    has_addon = Addon in _components("ADDONS", settings)
    if has_addon:
        try:
            Addon().update_settings(settings)
        except NotConfigured as error:
            raise NotConfigured(f"tbloom's add-on is off: {error}") from None
    if not issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter):
        names = sorted(name for name in settings if name.startswith("TBLOOM_"))
        raise NotConfigured(_OFF.format(f" (without effect: {', '.join(names)})" if names else ""))
    is_done, is_shared = settings.get(MARK.name) == "done", _is_shared(settings)
    if is_done and is_shared:
        yield str(needs_no_shared_queue())
    elif is_done and not has_addon:
        yield f"{MARK.name}: 'done' needs ADDONS = {{'tbloom.scrapy.Addon': 500}}"
    elif is_shared and not settings.getbool(_PERSIST):
        yield (
            f"{_PERSIST}: without it, scrapy-redis deletes the queue where a crawl is stopped, and its pages count as seen for "
            f"the whole window: set it to True; or remove SCHEDULER, and set {MARK.name} = 'done'"
        )


def _check_stored(settings: BaseSettings, name: str) -> Iterator[str]:
    """Yield what is wrong with the stored filter and counters of this spider, or with their server. Change nothing."""
    _keep_from_making_a_file(settings, name)
    with naming_redis(settings), closing(make_store(settings, name, retry_for=0)) as seen:
        seen.contains_many([b"a"])  # raises if other parameters are stored
        if not isinstance(seen, LocalBloom):
            yield from seen.warnings()
    if DistinctCounts in _components("EXTENSIONS", settings):
        counter = make_counters(settings, name)[KINDS[0]]
        with naming_redis(settings), closing(counter.client):
            try:
                counter.count()
            except TBloomError as error:
                yield error_line(error, settings, COUNTS)


def _keep_from_making_a_file(settings: BaseSettings, name: str) -> None:
    """Unset TBLOOM_PATH if the first crawl will make the file."""
    path = FILTER["path"]
    if STORE.value(settings) == "local" and (text := path.value(settings)) is not None:
        file = Path(expand(path, text, spider=name))
        if file.parent.is_dir() and not file.exists():
            settings.set(path.name, None, SETTINGS_PRIORITIES["cmdline"])


def _is_shared(settings: BaseSettings) -> bool:
    kinds = load_object(settings["SCHEDULER"]).__mro__
    return any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)


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
    root, path = Path(closest_scrapy_cfg() or "scrapy.cfg").resolve().parent, Path(file)
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


# Classes


def _check_classes(settings: BaseSettings) -> None:
    """Raise ImportError where a setting names no class, so that Scrapy could not start."""
    for name in ("DUPEFILTER_CLASS", "SCHEDULER", "DOWNLOADER"):
        if not isclass(_loaded(f"tbloom can't start: {name}", settings[name])):
            raise ImportError(f"tbloom can't start: {name} is no class, but {settings[name]!r}")


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


def _components(name: str, settings: BaseSettings) -> list[Any]:
    """Return the components that the setting switches on. Raise ImportError."""
    return [_loaded(name, path) for path, on in settings.getdict(name).items() if on is not None]
