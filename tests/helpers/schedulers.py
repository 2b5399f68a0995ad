"""Settings for both schedulers."""

from __future__ import annotations

import pytest

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

#: `make test` has the two that differ in everything.
WAYS = [
    pytest.param("scrapy", marks=pytest.mark.check),
    "scrapy-redis",
    "add-on",
    pytest.param("add-on, scrapy-redis", marks=pytest.mark.check),
]

UNREACHABLE = "redis://127.0.0.1:1/0"
