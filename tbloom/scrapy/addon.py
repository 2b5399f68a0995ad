"""The add-on."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object

from tbloom.engine.urls import parse_url
from tbloom.errors import ConfigError
from tbloom.scrapy.components import DupeFilter, PageDownloader, PageSpiderMiddleware
from tbloom.scrapy.hooks.engine import keep_spider_arguments
from tbloom.scrapy.inbox import FilteringScheduler
from tbloom.scrapy.settings import MARK

#: A name, not the class, because Scrapy's log shows it as it is set.
_DUPEFILTER = "tbloom.scrapy.DupeFilter"
#: The place of the spider middleware: next to the spider.
_NEXT_TO_SPIDER = 1_000_000

# Here, because Scrapy imports a project's add-ons before it makes a spider, and makes them after it.
keep_spider_arguments()


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter, which marks a page when it is done."""

    __module__ = "tbloom.scrapy"

    def update_settings(self, settings: BaseSettings) -> None:
        """Set tbloom's components. Scrapy calls this before the crawl.

        The project's own settings stay as they are.

        :raises NotConfigured: if the project has another dupefilter; Scrapy logs it, and goes on without the add-on.
        """
        if url := settings.get("REDIS_URL"):
            with suppress(ConfigError):  # it is raised later
                address, is_cluster = parse_url(url)
                if not is_cluster:
                    # scrapy-redis gives it to redis-py, which does not know valkey://.
                    settings.set("REDIS_URL", address, settings.getpriority("REDIS_URL") or 0)
        settings.set("DUPEFILTER_CLASS", _DUPEFILTER, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        if not issubclass(load_object(chosen), DupeFilter):
            message = f"DUPEFILTER_CLASS is {chosen!r}; remove that line, and tbloom filters"
            raise NotConfigured(message)
        if settings.get(MARK.name) is None:
            _set(settings, MARK.name, "done")
        scheduler, downloader = (
            load_object(settings[name]) for name in ("SCHEDULER", "DOWNLOADER")
        )
        # Scrapy refuses other classes, and says why. Its base has the methods that a scheduler may lack.
        if issubclass(scheduler, BaseScheduler):
            bases = dict.fromkeys((scheduler, BaseScheduler))
            _subclass(settings, "SCHEDULER", FilteringScheduler, *bases)
        if settings[MARK.name] == "done" and hasattr(downloader, "fetch"):
            _subclass(settings, "DOWNLOADER", PageDownloader, downloader)
        add = settings.setdefault_in_component_priority_dict
        add("SPIDER_MIDDLEWARES", PageSpiderMiddleware, _NEXT_TO_SPIDER)


def _subclass(
    settings: BaseSettings, name: str, ours: type[Any], project: type[Any], *bases: type[Any]
) -> None:
    """Set a subclass of the project's class, and of further ones.

    Scrapy's log shows it as ``tbloom.scrapy.FilteringScheduler[scrapy.core.scheduler.Scheduler]``.
    """
    shown = f"{ours.__name__}[{project.__module__}.{project.__qualname__}]"
    names = {"__module__": "tbloom.scrapy", "__qualname__": shown}
    _set(settings, name, type(ours.__name__, (ours, project, *bases), names))


def _set(settings: BaseSettings, name: str, value: Any) -> None:
    """Set a setting, with its own priority if that is higher than an add-on's: a project's setting would win otherwise."""
    priority = max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES["addon"])
    settings.set(name, value, priority)
