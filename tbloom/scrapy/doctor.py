"""What is wrong with a project's settings, where Scrapy itself says nothing: for ``tbloom doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from redis import RedisError
from redis.exceptions import RedisClusterException
from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings, inside_project

from tbloom import LocalBloom
from tbloom.errors import ConfigError
from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
from tbloom.scrapy.gates import Addon
from tbloom.scrapy.options import error_line, naming_redis, read_options
from tbloom.scrapy.settings import MARK, MARKS_DONE

_PERSIST = "SCHEDULER_PERSIST"
_OFF = (
    "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it{}. Set ADDONS = {{'tbloom.scrapy.Addon': 500}}, "
    "once: a later line such as ADDONS = {{}}, which scrapy startproject writes, undoes it"
)


def project_settings() -> BaseSettings | None:
    """The settings of the project in whose folder this process is; None where there is no project."""
    return get_project_settings() if inside_project() else None


def faults(settings: BaseSettings) -> Iterator[str]:
    """A line for each fault, until one that hides others."""
    try:
        has_addon = Addon in [
            load_object(path) for path, on in settings.getdict("ADDONS").items() if on is not None
        ]
    except (ImportError, NameError, ValueError) as error:
        yield f"ADDONS names what can't be imported: {error}"
        return
    try:
        if has_addon:
            Addon().update_settings(settings)
    except NotConfigured as error:
        yield f"tbloom's add-on is off: {error}"
        return
    if not issubclass(load_object(settings["DUPEFILTER_CLASS"]), DupeFilter):
        names = sorted(name for name in settings if name.startswith("TBLOOM_"))
        yield _OFF.format(f" (without effect: {', '.join(names)})" if names else "")
        return
    if settings.get(MARK.name) in MARKS_DONE and not has_addon:
        yield f"{MARK.name}: 'done' and 'parsed' need ADDONS = {{'tbloom.scrapy.Addon': 500}}"
    kinds = load_object(settings["SCHEDULER"]).__mro__
    is_shared = any(kind.__module__.startswith("scrapy_redis.") for kind in kinds)
    if is_shared and settings.get(MARK.name) not in MARKS_DONE and not settings.getbool(_PERSIST):
        yield (
            f"{_PERSIST}: without it, scrapy-redis deletes the queue where a crawl is stopped, and its pages count as seen for "
            f"the whole window: set it to True, or {MARK.name} = 'done'"
        )
    try:
        with naming_redis(settings), closing(read_options(settings, "spider")) as answers:
            if not isinstance(answers.seen, LocalBloom):
                answers.seen.client.ping()
                yield from answers.seen.warnings()
    except (ConfigError, RedisError, RedisClusterException) as error:
        yield error_line(error, settings)
