"""Settings for both schedulers."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.misc import build_from_crawler, load_object

SCRAPY = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}
SCRAPY_REDIS = {**SCRAPY, "SCHEDULER": "scrapy_redis.scheduler.Scheduler"}
ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}}
DONE = {**ADDON, "TBLOOM_MARK": "done"}
SCHEDULED = {**ADDON, "TBLOOM_MARK": "scheduled"}
SETTINGS = {
    "scrapy": SCRAPY,
    "scrapy-redis": SCRAPY_REDIS,
    "add-on": ADDON,
    "add-on, scheduled": SCHEDULED,
    "add-on, scrapy-redis": {**SCHEDULED, "SCHEDULER": "scrapy_redis.scheduler.Scheduler"},
}


#: Other stores. (The fixture ``crawl`` sets a capacity, which an exact store refuses.)
STORES = {
    "exact": {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None, "TBLOOM_MARK": "scheduled"},
    "local": {"TBLOOM_STORE": "local"},
}


class Bare:
    """A scheduler that has only what Scrapy demands, and asks no dupefilter."""

    has_pending_requests: Any
    enqueue_request: Any
    next_request: Any
    has_pending_requests = enqueue_request = next_request = lambda *_: None


class Plain(Bare, BaseScheduler):
    """The same with Scrapy's base class."""


class HasOne(Plain):
    """It even makes the dupefilter."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        scheduler = cls()
        kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
        scheduler.df = build_from_crawler(kind, crawler)  # type: ignore[attr-defined]
        return scheduler


#: `make test` has the two that differ in everything.
WAYS = [
    pytest.param("scrapy", marks=pytest.mark.check),
    "scrapy-redis",
    "add-on",
    pytest.param("add-on, scrapy-redis", marks=pytest.mark.check),
]


def end(how: str) -> dict[str, Any]:
    """The meta of a page of the spider "outcomes" whose callback ends like this."""
    return {"request": {"cb_kwargs": {"end": how}}}


def refusal(result: dict[str, Any]) -> str:
    """The one line that says why a crawl has ended before its first request."""
    assert ([], [], "tbloom_error") == (
        result["fetched"],
        result["failures"],
        result["finish_reason"],
    )
    assert result["has_failed"]  # the exit code of `scrapy crawl` is 1
    assert "Traceback" not in result["log"]
    lines = result["log"].splitlines()
    [line] = [line for line in lines if line.startswith(("WARNING", "ERROR", "CRITICAL"))]
    return line.split(":", 2)[2]


UNREACHABLE = "redis://127.0.0.1:1/0"
