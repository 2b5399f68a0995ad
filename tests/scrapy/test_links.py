"""Links wait in the scheduler, are asked about together, and are handed on in order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.schedulers import ADDON, end

MARKS = pytest.mark.parametrize("mark", ["scheduled", "done"])


@MARKS
def test_a_page_costs_few_round_trips(crawl: Any, url: str, mark: str) -> None:
    """110 links on 11 pages, and one more call for each fetched page, to add or to commit it."""
    calls: list[int] = []
    with Proxy(url, calls.append) as proxy:
        settings = {**ADDON, "TBLOOM_MARK": mark, "REDIS_URL": proxy.url}
        result = crawl("ten_and_hundred", settings)
    assert sorted(map(str, range(100))) == sorted(result["fetched"])
    assert 10 == result["stats"]["bloomfilter/filtered"]
    print(len(calls), "script calls")
    assert len(calls) < (30 if mark == "scheduled" else 130)


@MARKS
def test_the_event_loop_goes_on_while_redis_is_asked(crawl: Any, mark: str) -> None:
    """Redis answers only after the event loop has done something else."""
    settings = {**ADDON, "TBLOOM_MARK": mark, "TBLOOM_RETRY_FOR": 0}
    result = crawl("outcomes", settings, [["a", end("links_while_redis_waits")]])
    assert ["a", "b", "child"] == sorted(result["fetched"])
    assert "finished" == result["finish_reason"]


@MARKS
def test_the_order_is_kept_and_dont_filter_is_not_asked_for(crawl: Any, mark: str) -> None:
    pages = [
        [str(i % 30), {"request": {"dont_filter": True}} if i >= 60 else {}] for i in range(90)
    ]
    settings = {**ADDON, "TBLOOM_MARK": mark, "CONCURRENT_REQUESTS": 1}
    result = crawl(
        "outcomes", {**settings, "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}, pages
    )
    assert [str(i) for i in range(30)] * 2 == result["fetched"]
    assert 30 == result["stats"]["tbloom/new"]
