"""How often a page that fails is tried, and what the log says of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tbloom import TimeBloom
from tests.helpers.schedulers import ADDON, refusal

DONE = {**ADDON, "TBLOOM_MARK": "done"}
PIPELINE = {"ITEM_PIPELINES": {"tests.helpers.pipelines.Fates": 300}}
SCRAPY_REDIS = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}


def items(*fates: str) -> dict[str, Any]:
    return {"request": {"cb_kwargs": {"fates": fates}}}


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


def test_a_page_that_succeeds_in_another_attempt_is_marked(crawl: Any, name: str) -> None:
    page = f"cut/once/{name}"
    result = crawl("pages", {**DONE, "TBLOOM_ATTEMPTS": 2}, [page])
    assert ([page], 1) == (result["fetched"], result["stats"]["tbloom/done"])
    assert 0 == result["stats"].get("tbloom/left", 0)


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
    result = crawl("corners", DONE, ["unnotable"])
    assert ["0", "1"] == sorted(result["fetched"])
    assert 2 == result["stats"]["tbloom/not_noted"]
    assert 1 == result["log"].count("meta['client'] is a ")
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert (2, 0) == (seen.info().items, seen.info().claims)


@pytest.mark.parametrize("wrong", [0, -1, "many", True, 1.5])
def test_a_wrong_number_of_attempts_is_refused(crawl: Any, wrong: Any) -> None:
    said = refusal(crawl("pages", {**DONE, "TBLOOM_ATTEMPTS": wrong}, ["a"]))
    assert said.startswith("TBLOOM_ATTEMPTS: expected a whole number from 1 on, got ")
