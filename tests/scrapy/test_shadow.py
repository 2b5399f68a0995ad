"""``TBLOOM_SHADOW`` in real crawls: the exact dupefilter decides, and stats count the disagreements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import schedulers
from tests.helpers.contents import keys_of
from tests.helpers.schedulers import UNREACHABLE, WAYS

SHADOW = {"TBLOOM_SHADOW": True}
ADDON = {**schedulers.ADDON, **SHADOW}
SCRAPY_REDIS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
}
PAGES = sorted(map(str, range(100)))


@pytest.fixture
def shadowed(crawl: Any, client: redis.Redis, name: str) -> Any:
    """Runs a spider with an exact set of the test's own; ``result["shadow"]`` has its tbloom/shadow stats."""

    def shadowed(spider: str, settings: dict[str, Any], pages: Any = ()) -> Any:
        own = {"SCHEDULER_DUPEFILTER_KEY": f"{name}:dupefilter"}
        result = crawl(spider, {**own, **settings}, pages)
        stats = [(key.partition("tbloom/shadow/")[2], n) for key, n in result["stats"].items()]
        result["shadow"] = {key: n for key, n in stats if key}
        return result

    yield shadowed
    client.delete(f"{name}:dupefilter", f"{name}:requests")


@pytest.fixture(params=["scrapy", "scrapy-redis"])
def exact(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A project without tbloom whose exact filter outlives the crawl."""
    return SCRAPY_REDIS if request.param == "scrapy-redis" else {"JOBDIR": str(tmp_path)}


@pytest.mark.parametrize("way", WAYS)
def test_tbloom_and_the_exact_filter_agree(shadowed: Any, way: str) -> None:
    """The sources' spider: 100 pages, 10 of them twice, in both filters."""
    settings = {**schedulers.SETTINGS[way], **SHADOW, "SCHEDULER_PERSIST": True}
    result = shadowed("ten_and_hundred", settings)
    assert PAGES == sorted(result["fetched"])
    assert {"asked": 110, "agreed": 110, "new": 100, "seen": 10} == result["shadow"]
    exact = "scrapy_redis" if "SCHEDULER" in settings else "scrapy.dupefilters"
    assert f"is only tried, beside {exact}" in result["log"]


def test_pages_that_tbloom_would_have_lost_are_fetched(shadowed: Any) -> None:
    """A filter that may be wrong nine times out of ten: stats count it, and the log shows the first 10."""
    bad = {"TBLOOM_ERROR_RATE": 0.9, "TBLOOM_SLICES": 1, "TBLOOM_CAPACITY": 100}
    result = shadowed("pages", {**ADDON, **bad}, [f"page {i}" for i in range(400)])
    shadow = result["shadow"]
    assert 400 == len(set(result["fetched"])) == len(result["fetched"]) == shadow["new"]
    assert 10 < shadow["lost"] == 400 - shadow["agreed"]
    assert 10 == result["log"].count("would have lost it")


def test_the_exact_filter_decides_until_tbloom_has_seen_enough(
    shadowed: Any, exact: dict[str, Any]
) -> None:
    """Which calls again what was seen before it; in the next crawl it agrees, and then it decides alone."""
    assert ["a", "b"] == sorted(shadowed("pages", exact, ["a", "b"])["fetched"])
    first = shadowed("pages", {**exact, **ADDON}, ["a", "b", "c"])
    assert ["c"] == first["fetched"]
    assert {"asked": 3, "agreed": 1, "again": 2, "new": 1, "seen": 2} == first["shadow"]
    assert "a> was seen, but tbloom calls it new" in first["log"]
    second = shadowed("pages", {**exact, **ADDON}, ["a", "d"])
    assert ["d"] == second["fetched"]
    assert {"asked": 2, "agreed": 2, "new": 1, "seen": 1} == second["shadow"]
    alone = {**exact, "DUPEFILTER_CLASS": None, **ADDON, "TBLOOM_SHADOW": False}
    third = shadowed("pages", alone, ["a", "b", "c", "d", "e"])
    assert (["e"], {}) == (third["fetched"], third["shadow"])


@pytest.mark.parametrize("scheduler", [{}, {**SCRAPY_REDIS, "SCHEDULER_PERSIST": False}])
def test_tbloom_forgets_after_the_crawl_if_the_exact_filter_does(
    shadowed: Any, client: redis.Redis, name: str, scheduler: dict[str, Any]
) -> None:
    """It uses a filter of its own: the filter TBLOOM_KEY, which may be in use, stays as it is."""
    with TimeBloom(client, name, capacity=1000) as relied_on:
        relied_on.add("item")
        for _ in range(2):
            result = shadowed("pages", {**scheduler, **ADDON}, ["a", "a"])
            assert ["a"] == result["fetched"]
            assert {"asked": 2, "agreed": 2, "new": 1, "seen": 1} == result["shadow"]
            assert 1 == relied_on.info().items
        assert [] == keys_of(client, f"{{{name}:shadow")  # (answers go after an hour)


@pytest.mark.parametrize(
    ("settings", "answered", "said"),
    [
        ({"REDIS_URL": UNREACHABLE, "TBLOOM_RETRY_FOR": 0}, 0, "does not answer, so the crawl goes on"),
        ({"TBLOOM_GROW": False, "TBLOOM_CAPACITY": 10}, 20, "the current slice is full"),
    ],
    ids=["Redis is down", "the filter is full"],
)  # fmt: skip
def test_a_filter_that_fails_costs_nothing(
    shadowed: Any, settings: dict[str, Any], answered: int, said: str
) -> None:
    """The log says it once."""
    result = shadowed("ten_and_hundred", {**ADDON, **settings})
    assert (PAGES, "finished") == (sorted(result["fetched"]), result["finish_reason"])
    assert 110 == result["shadow"]["asked"] <= result["shadow"]["unanswered"] + answered
    assert 1 == result["log"].count("the crawl goes on without it")
    assert said in result["log"]
    assert "TBLOOM_ON_ERROR" not in result["log"]
