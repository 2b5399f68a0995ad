"""Settings for both schedulers."""

from __future__ import annotations

SCRAPY = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}


SCRAPY_REDIS = {
    **SCRAPY,
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_QUEUE_KEY": "%(spider)s:requests",
}


ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}}


SETTINGS = {
    "scrapy": SCRAPY,
    "scrapy-redis": SCRAPY_REDIS,
    "add-on": ADDON,
    "add-on, scrapy-redis": {**ADDON, "SCHEDULER": "scrapy_redis.scheduler.Scheduler"},
}

UNREACHABLE = "redis://127.0.0.1:1/0"
