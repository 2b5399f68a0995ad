"""What is wrong with a project's settings, where Scrapy itself says nothing: for ``tbloom doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from inspect import isclass, isfunction
from typing import Any

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings, inside_project

from tbloom import LocalBloom
from tbloom.errors import TBloomError
from tbloom.scrapy.addon import Addon
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.extras.counts import KINDS, DistinctCounts, make_counters
from tbloom.scrapy.options import asks_nobody, error_line, naming_redis, read_options
from tbloom.scrapy.settings import MARK, SHADOW

_PERSIST = "SCHEDULER_PERSIST"
#: The methods by which a scheduler asks a dupefilter, or hands requests on to another scheduler.
_ASKS = {"request_seen", "enqueue_request"}
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def project_settings() -> BaseSettings | None:
    """Return the settings of the project in whose folder this process is; None where there is no project."""
    return get_project_settings() if inside_project() else None


def faults(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each fault, until one that hides others."""
    try:
        yield from _faults(settings)
    except (ImportError, ValueError) as error:  # a class, a bool of Scrapy's
        yield str(error)
    except NotConfigured as error:
        yield f"tbloom's add-on is off: {error}"
    except (TBloomError, RedisError, RedisClusterException) as error:
        yield error_line(error, settings)


def _faults(settings: BaseSettings) -> Iterator[str]:
    _check_classes(settings)
    scheduler = load_object(settings["SCHEDULER"])
    has_addon = Addon in _components("ADDONS", settings)
    if has_addon:
        Addon().update_settings(settings)
    if not issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter):
        names = sorted(name for name in settings if name.startswith("TBLOOM_"))
        yield _OFF.format(f" (without effect: {', '.join(names)})" if names else "")
        return
    if not _asks(scheduler):
        yield str(asks_nobody(scheduler))
    if settings.get(MARK.name) == "done" and not has_addon:
        yield f"{MARK.name}: 'done' needs ADDONS = {{'tbloom.scrapy.Addon': 500}}"
    kinds = load_object(settings["SCHEDULER"]).__mro__
    is_shared = any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)
    if is_shared and settings.get(MARK.name) != "done" and not settings.getbool(_PERSIST):
        yield (
            f"{_PERSIST}: without it, scrapy-redis deletes the queue where a crawl is stopped, and its pages count as seen for "
            f"the whole window: set it to True, or {MARK.name} = 'done'"
        )
    if DistinctCounts in _components("EXTENSIONS", settings):
        make_counters(settings, "spider")[KINDS[0]].client.close()
    with naming_redis(settings), closing(read_options(settings, "spider")) as answers:
        if not isinstance(answers.seen, LocalBloom):
            answers.seen.client.ping()
            yield from answers.seen.warnings()


def _asks(scheduler: type[Any]) -> bool:
    """Return whether the scheduler asks a dupefilter, or another scheduler, as far as its methods show."""
    methods = [
        vars(method).get("__wrapped__", method)
        for kind in scheduler.__mro__
        for method in vars(kind).values()
        if isfunction(method)
    ]
    return any(not _ASKS.isdisjoint(method.__code__.co_names) for method in methods)


def _check_classes(settings: BaseSettings) -> None:
    """Raise ImportError where a setting names no class, so that Scrapy could not start."""
    names = ["DUPEFILTER_CLASS", "SCHEDULER", "DOWNLOADER"]
    if isinstance(SHADOW.value(settings), str):
        names.append(SHADOW.name)
    for name in names:
        if not isclass(_loaded(f"tbloom can't start: {name}", settings[name])):
            raise ImportError(f"tbloom can't start: {name} is no class, but {settings[name]!r}")


def _loaded(place: str, value: Any) -> Any:
    """Return what the value names. Raise ImportError, which begins with the place."""
    try:
        return load_object(value)
    except Exception as error:  # noqa: BLE001 - whatever the project's own module raises
        why = f"{type(error).__name__}: {error}"
        raise ImportError(f"{place} names what can't be imported: {why}") from None


def _components(name: str, settings: BaseSettings) -> list[Any]:
    """Return the components that the setting switches on. Raise ImportError."""
    return [_loaded(name, path) for path, on in settings.getdict(name).items() if on is not None]
