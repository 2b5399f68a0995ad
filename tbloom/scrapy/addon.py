"""The add-on: one settings line in place of several."""

from __future__ import annotations

from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object

from tbloom.scrapy.dupefilter.dupefilter import DupeFilter
from tbloom.scrapy.gates import (
    DownloaderGate,
    NearestToEngine,
    NearestToSpider,
    SchedulerGate,
    gated,
)
from tbloom.scrapy.settings import MARK, MARKS_DONE, SHADOW


class Addon:
    """``ADDONS = {"tbloom.scrapy.Addon": 500}`` makes tbloom the duplicate filter."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls this before the crawl. The project's own settings stay as they are, except
        that with TBLOOM_SHADOW tbloom's dupefilter calls the project's.

        :raises NotConfigured: if the project has another dupefilter; Scrapy logs it, and goes on without the add-on.
        """
        settings.set("DUPEFILTER_CLASS", DupeFilter, priority="addon")
        chosen = settings.get("DUPEFILTER_CLASS")
        shadow = SHADOW.value(settings)
        if not issubclass(load_object(chosen), DupeFilter):
            if not shadow:
                message = f"the project sets DUPEFILTER_CLASS to {chosen!r}; remove that line, and tbloom filters"
                raise NotConfigured(message)
            if shadow is True:
                settings.set(SHADOW.name, chosen, settings.getpriority(SHADOW.name) or 0)
            priority = settings.getpriority("DUPEFILTER_CLASS") or 0
            settings.set("DUPEFILTER_CLASS", DupeFilter, priority)
        for name, gate in (("SCHEDULER", SchedulerGate), ("DOWNLOADER", DownloaderGate)):
            # With the priority that the setting has: a project's own setting would win otherwise, and no gate be there.
            priority = max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES["addon"])
            kind = load_object(settings[name])
            is_scheduler, is_downloader = issubclass(kind, BaseScheduler), hasattr(kind, "fetch")
            if not (is_scheduler if gate is SchedulerGate else is_downloader):
                continue  # Scrapy refuses it, and says why
            settings.set(name, gated(gate, kind), priority)
        if (
            settings.get(MARK.name) in MARKS_DONE and not shadow
        ):  # in whose shadow nothing is claimed
            add = settings.setdefault_in_component_priority_dict
            add("SPIDER_MIDDLEWARES", NearestToEngine, -1_000_000)
            add("SPIDER_MIDDLEWARES", NearestToSpider, 1_000_000)
