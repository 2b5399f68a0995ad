"""What Scrapy's own filter would fetch is fetched: no page is lost, and no item."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import Note, TimeBloom
from tests.helpers.schedulers import ADDON, DONE, end

ITEMS = {"request": {"cb_kwargs": {"fates": ["stored", "stored"]}}}
MARKS = pytest.mark.parametrize("mark", ["scheduled", "done"])


@pytest.mark.parametrize(
    ("deaths", "links", "fetched"),
    [
        (0, [], ["0", "1"]),
        (1, [], ["0", "2"]),
        (3, [], ["0", "4"]),
        (3, [["0", end("reports_its_note")]], ["0", "4"]),
        (4, [], []),
    ],
)
def test_a_request_counts_the_crawlers_that_die_of_it(
    crawl: Any, url: str, name: str, site: str, *, deaths: int, links: Any, fetched: list[str]
) -> None:
    """A link does not begin its count again (activepieces#15130). A page that has ended four crawlers is given up: a warning names it, and
    a link to it is followed as any other."""
    page, item = f"{site}0", fingerprint(Request(f"{site}0"))
    fields = {"url": page, "callback": "parse", "cb_kwargs": {"end": "reports_its_note"}}
    note = Note(f"{item.hex()}\n{json.dumps(fields)}", "tests", "", deaths)
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.push(item, note)
    result = crawl("outcomes", DONE, links)
    assert fetched == result["fetched"]
    stats = [
        result["stats"].get(f"tbloom/{stat}", 0) for stat in ("given_up", "not_taken", "failed")
    ]
    assert [not fetched, 0, 0] == stats
    warning = f"{page} is given up: 4 crawlers have died of it. Only a link leads to it again"
    assert (not fetched) == (warning in result["log"])
    if not fetched:
        assert [] == crawl("outcomes", DONE)["fetched"]
        assert ["0"] == crawl("outcomes", DONE, ["0"])["fetched"]


def test_the_page_that_killed_most_crawlers_is_fetched_last(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """jobseek#5794: a crawler whose memory runs out dies again and again, and the page in work is blamed. If another page is last
    each time, none is given up."""
    died = {str(page): 2 + page % 2 for page in range(8)}
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        for page, deaths in died.items():
            request = Request(f"{site}{page}")
            fields = json.dumps({"url": request.url, "callback": "parse"})
            note = Note(f"{fingerprint(request).hex()}\n{fields}", "tests", deaths=deaths)
            other.push(fingerprint(request), note)
    fetched = crawl("outcomes", DONE)["fetched"]
    assert {*died} == {*fetched}
    assert sorted(died.values()) == [died[page] for page in fetched]


def test_a_crawl_says_how_many_pages_others_took_over(crawl: Any) -> None:
    """They are marked."""
    pages = [["a", end("is_taken_over")], ["b", {}], ["c", end("is_taken_over")]]
    result = crawl("outcomes", DONE, pages)
    assert ["a", "b", "c"] == sorted(result["fetched"])
    assert 3 == result["stats"]["tbloom/done"]
    said = re.findall(r"other sessions had taken over (\d) items", result["log"])
    assert 2 == sum(map(int, said))
    assert [] == crawl("outcomes", DONE, pages)["fetched"]


def test_a_page_is_done_though_a_signal_interrupts_its_feed(crawl: Any) -> None:
    storages = {"up": "tests.helpers.crawl.Uploads"}
    settings = {**DONE, "FEED_STORAGES": storages}
    settings["FEEDS"] = {"up://interrupted": {"format": "jsonlines"}}
    result = crawl("outcomes", settings, [["a", ITEMS]], alone=True)
    assert (["a"], "finished", 1) == (
        result["fetched"],
        result["finish_reason"],
        result["stats"]["tbloom/done"],
    )
    assert [] == crawl("outcomes", DONE, ["a"])["fetched"]


# Links wait in the scheduler, are asked about together, and are settled in order


@MARKS
def test_the_order_is_kept_and_dont_filter_not_asked(crawl: Any, mark: str) -> None:
    pages = [
        [str(i % 30), {"request": {"dont_filter": True}} if i >= 60 else {}] for i in range(90)
    ]
    settings = {**ADDON, "TBLOOM_MARK": mark, "CONCURRENT_REQUESTS": 1}
    result = crawl(
        "outcomes", {**settings, "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}, pages
    )
    assert [str(i) for i in range(30)] * 2 == result["fetched"]
    assert 30 == result["stats"]["tbloom/new"]
