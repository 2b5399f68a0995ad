"""What Scrapy's own filter would fetch is fetched: no page is lost, and no item."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.utils.request import fingerprint

from tbloom import Claim, Note, TimeBloom
from tbloom.bloom.claims.fleet import FAILED, Fleet, failed_queue_of
from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import write_note
from tests.helpers.crawl import Part
from tests.helpers.proxy import Proxy
from tests.helpers.schedulers import ADDON, DONE, end

ITEMS = {"request": {"cb_kwargs": {"fates": ["stored", "stored"]}}}
MARKS = pytest.mark.parametrize("mark", ["scheduled", "done"])


@pytest.mark.parametrize(
    ("deaths", "fetched"),
    [(0, ["0", "1"]), (1, ["0", "2"]), (3, ["0", "4"]), (4, [])],
)
def test_a_request_counts_the_crawlers_that_die_while_they_work_on_it(
    crawl: Any, url: str, name: str, site: str, *, deaths: int, fetched: list[str]
) -> None:
    """A page that has ended four crawlers is given up: a warning names it, and a link to it is followed as any other."""
    page, item = f"{site}0", fingerprint(Request(f"{site}0"))
    fields = {"url": page, "callback": "parse", "cb_kwargs": {"end": "reports_its_note"}}
    note = Note(f"{item.hex()}\n{json.dumps(fields)}", "tests", "", deaths)
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.push(item, note)
    result = crawl("outcomes", DONE)
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


def test_a_request_that_a_crawler_cannot_read_stays_for_another_one(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """As of a newer version of the spider, during a deployment. sidekiq#4703: the retry loses the job."""
    fields = json.dumps({"url": f"{site}0", "callback": "parse_as_of_tomorrow"})
    item = fingerprint(Request(f"{site}0"))
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.push(item, Note(f"{item.hex()}\n{fields}", "tests"))
        result = crawl("outcomes", DONE)
        assert ([], 1) == (result["fetched"], result["stats"]["tbloom/not_taken"])
        assert (
            "1 kept pages can't be restored by this spider (parse_as_of_tomorrow)" in result["log"]
        )
        [page] = Fleet(other, "tests").kept([FAILED])
        assert ("unreadable/parse_as_of_tomorrow", 1) == (page.reason, page.tries)
        assert json.loads(fields) == page.fields
        taken = other.take(9, failed_queue_of("tests"), idle=False).notes
        assert [json.loads(fields)["url"]] == [page.url]
        assert [1] == [note.failures for note in taken]


def test_the_page_of_which_most_crawlers_have_died_is_fetched_last(
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


def test_a_crawl_says_how_many_of_its_pages_others_have_taken_over(crawl: Any) -> None:
    """Once, at its end. They are marked."""
    pages = [["a", end("is_taken_over")], ["b", {}], ["c", end("is_taken_over")]]
    result = crawl("outcomes", DONE, pages)
    assert ["a", "b", "c"] == sorted(result["fetched"])
    assert 3 == result["stats"]["tbloom/done"]
    assert 1 == result["log"].count("taken over")
    assert "2 pages were taken over by other crawlers before they were marked" in result["log"]
    assert [] == crawl("outcomes", DONE, pages)["fetched"]


@pytest.mark.parametrize("format", ["", "jsonlines", "csv", "json", "xml"])
def test_a_page_is_marked_at_once_and_its_items_are_in_the_file(
    crawl: Any, tmp_path: Path, format: str
) -> None:
    """Though no request leaves the queue: the only other page is not done yet. Nothing of it is in the memory of the crawler,
    which may be killed."""
    feed = str(tmp_path / "items")
    feeds = {"FEEDS": {feed: {"format": format, "fields": ["fate"]}}, "FEED_READ": feed}
    waits = end("waits_until_a_is_marked")
    result = crawl("outcomes", {**DONE, **(feeds if format else {})}, [["a", ITEMS], ["b", waits]])
    said = f"a is marked, {2 if format else 0} items are stored"
    assert ["a", said, "b"] == sorted(result["fetched"])


@pytest.mark.parametrize("half", ['{"fate": "sto', '{"fate": "stored"}\n'])
def test_a_feed_that_ends_in_half_a_line_is_continued_in_a_new_one(
    crawl: Any, tmp_path: Path, half: str
) -> None:
    """alltheplaces#17554"""
    feed = tmp_path / "items.jl"
    feed.write_text(half, encoding="utf-8")
    feeds = {"FEEDS": {str(feed): {"format": "jsonlines", "fields": ["fate"]}}}
    crawl("outcomes", {**DONE, **feeds}, [["a", ITEMS]])
    lines = [half.strip(), *2 * ['{"fate": "stored"}']]
    assert lines == feed.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("feeds", "more", "is_marked"),
    [
        ({"up://stores": {"format": "jsonlines"}}, {}, True),
        pytest.param(
            *(
                {"up://stores%(batch_id)d": {"format": "jsonlines", "batch_item_count": 1}},
                {},
                True,
            ),
            marks=pytest.mark.check,
        ),
        ({"up://interrupted": {"format": "jsonlines"}}, {}, True),
        ({"up://fails": {"format": "jsonlines"}}, {}, False),
        ({}, {"BUFFERS_FLUSH": True}, True),
        pytest.param({}, {"BUFFERS_FLUSH": False}, False, marks=pytest.mark.check),
    ],
    ids=[
        "a feed",
        "batches",
        "a SIGINT meanwhile",
        "a feed that fails",
        "a pipeline",
        "a pipeline that fails",
    ],
)
def test_a_page_is_done_once_its_items_are_stored(
    crawl: Any, *, feeds: dict[str, Any], more: dict[str, Any], is_marked: bool
) -> None:
    """The next crawl fetches it again, if they are not."""
    if more:
        more["ITEM_PIPELINES"] = {"tests.helpers.crawl.Buffers": 300}
    storages = {"up": "tests.helpers.crawl.Uploads"}
    settings = {**DONE, "FEED_STORAGES": storages, "FEEDS": feeds, **more}
    crawl("outcomes", settings, [["a", ITEMS]], alone="up://interrupted" in feeds)
    assert ([] if is_marked else ["a"]) == crawl("outcomes", DONE, ["a"])["fetched"]


# Links wait in the scheduler, are asked about together, and are settled in order


@MARKS
def test_a_page_costs_few_round_trips(crawl: Any, url: str, mark: str) -> None:
    """110 links on 11 pages, and one more call for each fetched page, to add or to commit it."""
    calls: list[int] = []
    with Proxy(url, calls.append) as proxy:
        settings = {**ADDON, "TBLOOM_MARK": mark, "REDIS_URL": proxy.url}
        result = crawl("ten_and_hundred", settings)
    assert sorted(map(str, range(100))) == sorted(result["fetched"])
    assert 10 == result["stats"]["dupefilter/filtered"]
    print(len(calls), "script calls")
    assert len(calls) < (30 if mark == "scheduled" else 130)


class LosesAnother(Part):
    """Another crawler, with a claimed page. It dies while the crawl is idle."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.opened, signals.spider_opened)

    def opened(self, spider: Any) -> None:
        settings, page = self.crawler.settings, Request(f"{spider.site}theirs", spider.note)
        own = settings["REDIS_URL"], settings["TBLOOM_KEY"]
        self._other = TimeBloom.from_url(*own, capacity=1000, session_ttl=3)
        self._other.take(queue=spider.name, idle=False)
        item = fingerprint(page)
        token = Token("0", (item.hex(),))
        note = write_note(page, token, spider, spider.name, one_owner=False)
        assert Claim.NEW is self._other.claim(item, note=note)
        asyncio.get_running_loop().call_later(2, self._other._stop_heartbeat)


@pytest.mark.check
def test_an_idle_crawl_waits_for_a_crawler_that_dies_and_takes_its_pages(crawl: Any) -> None:
    settings = {**DONE, "TBLOOM_SESSION_TTL": 3, "EXTENSIONS": {LosesAnother: 1}}
    result = crawl("outcomes", settings, ["a"])
    assert ["a", "theirs"] == result["fetched"]
    assert "waiting for pages of other crawlers" in result["log"]


@MARKS
def test_the_event_loop_goes_on_while_redis_is_asked(crawl: Any, own_url: str, mark: str) -> None:
    """Redis answers only after the event loop has done something else. (It is the test's own, because it stands still.)"""
    settings = {**ADDON, "TBLOOM_MARK": mark, "TBLOOM_RETRY_FOR": 0}
    settings["REDIS_URL"] = f"{own_url}?socket_timeout=600"
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
