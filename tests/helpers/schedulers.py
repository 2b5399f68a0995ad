"""Settings for both schedulers."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.core.scheduler import BaseScheduler, Scheduler
from scrapy.settings import BaseSettings

from tbloom import TimeBloom
from tbloom.bloom.claims.verbs import ClaimVerbs
from tbloom.engine.flow import Flow

SCRAPY = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}


SCRAPY_REDIS = {
    **SCRAPY,
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_QUEUE_KEY": "%(spider)s:requests",
}


ADDON = {"ADDONS": {"tbloom.scrapy.Addon": 500}}
DONE = {**ADDON, "TBLOOM_MARK": "done"}
AT_IDLE = {"EXTENSIONS": {"tests.helpers.crawl.AtIdle": 1}}


SETTINGS = {
    "scrapy": SCRAPY,
    "scrapy-redis": SCRAPY_REDIS,
    "add-on": ADDON,
    "add-on, scrapy-redis": {**ADDON, "SCHEDULER": "scrapy_redis.scheduler.Scheduler"},
}


#: Other stores. (The fixture ``crawl`` sets a capacity, which an exact store refuses.)
STORES = {
    "exact": {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None},
    "local": {"TBLOOM_STORE": "local"},
}


class Plain(BaseScheduler):
    """A scheduler that asks no dupefilter."""

    def __init__(self) -> None:
        self._queue: list[Request] = []

    def has_pending_requests(self) -> bool:
        return bool(self._queue)

    def enqueue_request(self, request: Request) -> bool:
        self._queue.append(request)
        return True

    def next_request(self) -> Request | None:
        return self._queue.pop() if self._queue else None


class AsksForAll(Scheduler):
    """A scheduler that filters all requests, whatever their ``dont_filter`` is."""

    def enqueue_request(self, request: Request) -> bool:
        is_seen: bool = self.df.request_seen(request)
        return not is_seen and super().enqueue_request(request.replace(dont_filter=True))


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


class EndsBetweenCalls:
    """An add-on: another crawler holds a page, and ends after an idle one has asked which crawlers live."""

    def update_settings(self, settings: BaseSettings) -> None:
        name = settings["TBLOOM_KEY"]
        other = TimeBloom.from_url(settings["REDIS_URL"], name, capacity=1000)
        other.claim(bytes.fromhex(settings["OTHER_ITEM"]), note=settings["OTHER_NOTE"])
        verb = ClaimVerbs.other_sessions
        ask = verb.flow

        def asked(seen: Any) -> Flow[dict[str, int]]:
            alive_until = yield from ask(seen)
            other.close()
            return alive_until

        verb.flow = asked
