"""``TBLOOM_MARK = "done"``: a page is marked once its callback has ended and its items have passed, not before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers.schedulers import DONE, end

PIPELINE = {"ITEM_PIPELINES": {"tests.helpers.crawl.Fates": 300}}
SCRAPY_REDIS = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}


@pytest.fixture
def marked(url: str, name: str, site: str) -> Any:
    """Selects the pages that the filter has seen."""

    def marked(*pages: str) -> list[str]:
        with TimeBloom.from_url(url, name, capacity=1000) as seen:
            return [page for page in pages if fingerprint(Request(f"{site}{page}")) in seen]

    return marked


def items(*fates: str) -> dict[str, Any]:
    return {"request": {"cb_kwargs": {"fates": fates}}}


def test_a_page_is_kept_as_its_request_or_its_callback_says(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """``tbloom_keep`` in the request's meta, or in ``response.meta``; a wrong one is told, and the page kept as others."""
    pages = [
        ["a", {"tbloom_keep": 2}],
        ["b", end("keeps_it_for_one_slice")],
        ["c", {}],
        ["d", {"tbloom_keep": 8}],
    ]
    result = crawl("outcomes", DONE, pages)
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        live = [slice.label for slice in seen.info().slices]
        places = seen.last_seen_many(fingerprint(Request(f"{site}{page}")) for page in "abcd")
        assert [1, 0, 6, 6] == [live.index(place.label) for place in places if place]
    assert "expected a whole number of slices from 1 to 7, got 8" in result["log"]
    assert ["a", "b", "c", "d"] == sorted(result["fetched"])
    assert [] == crawl("outcomes", DONE, pages)["fetched"]


def test_a_redirect_to_what_another_crawler_works_on_is_left_to_the_next_link(
    crawl: Any, marked: Any, url: str, name: str, site: str
) -> None:
    """It may fail there."""
    with TimeBloom.from_url(url, name, capacity=1000, session_ttl=1) as other:
        other.claim(fingerprint(Request(f"{site}a")))
        crawl("outcomes", DONE, ["to/a"])
        assert [] == marked("a", "to/a")
    assert ["a"] == crawl("outcomes", DONE, ["to/a"])["fetched"]
    assert ["a", "to/a"] == marked("a", "to/a")


@pytest.mark.parametrize("mark", ["parsed", "done"])
def test_a_crawl_ends_without_asyncio_too(crawl: Any, marked: Any, mark: str) -> None:
    other = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}
    result = crawl("outcomes", {**DONE, **other, "TBLOOM_MARK": mark}, ["a", "b"])
    assert "finished" == result["finish_reason"]
    assert ["a", "b"] == marked("a", "b")


# How often a page that fails is tried, and what the log says of it


@pytest.mark.parametrize("queue", [{}, SCRAPY_REDIS], ids=["memory", "scrapy-redis"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_page_that_fails_is_tried_as_often_as_there_are_attempts(
    crawl: Any, attempts: int, queue: dict[str, Any]
) -> None:
    """However many links lead to it; and again as often by the next crawl, without any link."""
    settings = {**DONE, **PIPELINE, **queue, "TBLOOM_ATTEMPTS": attempts}
    for pages in ([["a", items("fails")], ["b", {}], ["a", {}]], []):
        result = crawl("outcomes", settings, pages)
        assert attempts == Counter(result["fetched"])["a"]
        assert 1 == result["stats"]["tbloom/left"] == result["stats"]["tbloom/left/pipeline/Fates"]
        said = "1 pages have failed, and are left to the next crawl (pipeline/Fates: 1), for example http"
        assert 1 == result["log"].count(said)
        assert "finished" == result["finish_reason"]


def test_a_page_that_waits_for_another_attempt_is_left_when_the_crawl_is_closed(crawl: Any) -> None:
    """Its pause is longer than the crawl."""
    settings = {**DONE, **PIPELINE, "TBLOOM_ATTEMPTS": 9, "CLOSESPIDER_TIMEOUT": 2}
    result = crawl("outcomes", settings, [["a", items("fails")]])
    assert 2 <= len(result["fetched"]) <= 3
    assert ("closespider_timeout", 1) == (result["finish_reason"], result["stats"]["tbloom/left"])


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_pipeline_that_fails_again_and_again_is_named_once(crawl: Any, attempts: int) -> None:
    """After the first 20 pages nothing is tried again for it."""
    settings = {**DONE, **PIPELINE, "TBLOOM_ATTEMPTS": attempts}
    result = crawl("outcomes", settings, [[f"p{i}", items("fails")] for i in range(40)])
    assert 1 == result["log"].count("The pipeline Fates fails again and again")
    assert len(result["fetched"]) <= 40 + 20 * (attempts - 1)
    assert 40 == result["stats"]["tbloom/left"]


def test_a_page_that_a_note_can_not_restore_is_marked_when_it_is_scheduled(
    crawl: Any, url: str, name: str
) -> None:
    """The log names the value and its class, once."""
    result = crawl("outcomes", DONE, [[page, {"can't be noted": True}] for page in "01"])
    assert ["0", "1"] == sorted(result["fetched"])
    assert 2 == result["stats"]["tbloom/not_noted"]
    assert 1 == result["log"].count("meta['client'] is a ")
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert (2, 0) == (seen.info().items, seen.info().claims)
