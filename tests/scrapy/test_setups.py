"""Set-ups of real projects: with the add-on, a crawl fetches what it fetches with Scrapy's own filter, and no more; pages that
succeed are marked, and no item is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import LocalBloom, TimeBloom
from tests.helpers import setups
from tests.helpers.forked import in_turn
from tests.helpers.localredis import free_port
from tests.helpers.projects import SHARED, marked
from tests.helpers.setups import MARKS, SETUPS, Result

#: Scrapy's own duplicate filter, in place of the add-on's with a TBLOOM_MARK; and scrapy-redis'.
OWN, SHARED_FILTER = "own", "scrapy_redis.dupefilter.RFPDupeFilter"
ERROR_RATE = 1e-9
SINGLE = [name for name, setup in SETUPS.items() if setup.crawlers == 1]
#: For `make test` and `make oldest`: every third of those that one crawler crawls, and where versions of Scrapy differ.
SOME = {
    *SINGLE[::3],
    "a middleware recovers",
    "a scheduler and a downloader",
    "process_start_requests",
    "raises, recovered",
}


def crawl(name: str, how: str, url: str, folder: Path, port: int) -> tuple[Result, set[str]]:
    """What the crawls of a set-up did by this filter, and the pages that it has seen then; ``url``: of the Redis."""
    setup, key = SETUPS[name], f"{folder.name}-{how}"
    folder = folder / how
    folder.mkdir()
    settings: dict[str, Any] = {
        "REDIS_URL": url,
        "SCHEDULER_QUEUE_KEY": f"{key}:requests",
        "SCHEDULER_DUPEFILTER_KEY": f"{key}:seen",
    }
    if how != OWN:
        settings |= {"TBLOOM_KEY": key, "TBLOOM_ERROR_RATE": ERROR_RATE, **marked(how, folder)}
    elif setup.settings.get("SCHEDULER") == SHARED:
        settings["DUPEFILTER_CLASS"] = SHARED_FILTER
    result = in_turn(setups.crawl, name, settings, port)
    if how == OWN:
        return result, set()
    with (
        LocalBloom(path=settings["TBLOOM_PATH"], error_rate=ERROR_RATE)
        if "TBLOOM_PATH" in settings
        else TimeBloom.from_url(url, key, error_rate=ERROR_RATE)
    ) as seen:
        requests = [Request(f"http://127.0.0.1:{port}{path}") for path in setup.paths()]
        answers = seen.contains_many(map(fingerprint, requests))
    return result, {path for path, is_in in zip(setup.paths(), answers, strict=True) if is_in}


def complaints(own: Result, result: Result) -> list[str]:
    """What is worse than with Scrapy's own filter."""
    wrong = []

    def compare(what: str, expected: Any, actual: Any) -> None:
        if expected != actual:
            wrong.append(f"{what}: expected {expected or 'none'}, got {actual or 'none'}")

    compare("requests too many", {}, Counter(result.requests) - Counter(own.requests))
    compare("pages not fetched", set(), {*own.requests} - {*result.requests})
    compare("items", sorted(own.items), sorted(result.items))
    compare("ends and errors", own.ends, result.ends)
    return wrong


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        pytest.param(name, mark, marks=[pytest.mark.check] * (name not in SOME or mark != "done"))
        for name, setup in SETUPS.items()
        for mark in MARKS
        if setup.works_with(mark)
    ],
)
def test_a_crawl_is_as_with_scrapys_own_filter(
    url: str, name: str, mark: str, tmp_path: Path
) -> None:
    """As many requests at most, every page, every item; pages that have failed are left to the next crawl, the others marked;
    and the log has no error that it does not have without tbloom."""
    setup, port = SETUPS[name], free_port()
    own, _ = crawl(name, OWN, url, tmp_path, port)
    result, seen = crawl(name, mark, url, tmp_path, port)
    assert [] == complaints(own, result)
    left = set() if mark == "scheduled" else {*setup.left}
    assert {*setup.paths()} - left == seen
