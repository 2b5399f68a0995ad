"""Several crawlers of one spider, with TBLOOM_MARK = "done": what one has too many of, others fetch; and they end together."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.utils.request import fingerprint

from tbloom import Note, TimeBloom
from tbloom.bloom.claims.fleet import failed_queue_of, queues_of
from tbloom.bloom.claims.queues import queue_of
from tests.helpers import crawl as crawls
from tests.helpers.crawl import Part
from tests.helpers.forked import Forked
from tests.helpers.schedulers import DONE

#: Of a tree; of one on nine hosts.
PAGES, HOST_PAGES = 150, 72
IMPORT = "from tbloom.scrapy import Addon"


@pytest.fixture
def settings(url: str, name: str) -> dict[str, Any]:
    return {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "CONCURRENT_REQUESTS": 2}


@pytest.fixture
def fleet(site: str, settings: dict[str, Any], tmp_path: Path) -> Any:
    """Start a crawler, whose pages a file names."""

    def start(number: int, *, starts: bool = True, **more: Any) -> Forked:
        own = {"fetched_file": str(tmp_path / f"fetched-{number}")}
        own |= {} if starts else {"start": nothing}
        return crawls.start("tree", site, {**settings, **more}, size=PAGES, **own)

    return start


async def nothing(spider: scrapy.Spider) -> AsyncIterator[scrapy.Request]:  # noqa: ARG001 - a method
    """The start of a spider that has no work of its own."""
    return
    yield


def pages_in(folder: Path) -> list[list[int]]:
    """The pages that each crawler has fetched, without the start page: each crawler fetches that."""
    files = sorted(folder.glob("fetched-*"))
    return [[int(page) for page in file.read_text().split() if page != "0"] for file in files]


def is_waiting(session: bytes, entry: bytes) -> bool:
    """As docs/format.md says: until when it waits comes last."""
    return len(session) == 16 and not entry.endswith(b" 0")


def wait_for_waiting(url: str, name: str, crawlers: int) -> None:
    """Return once so many crawlers wait."""
    with redis.Redis.from_url(url) as client:
        sessions = f"{{{name}}}:sessions"
        while sum(is_waiting(*entry) for entry in client.hgetall(sessions).items()) < crawlers:
            time.sleep(0.05)


def test_one_start_page_is_enough_for_a_fleet(fleet: Any, tmp_path: Path) -> None:
    """scrapy-redis#40: no crawler is idle beside a full queue. Each page is fetched once, and all crawlers end by themselves."""
    results = [crawl.result() for crawl in [fleet(number) for number in range(4)]]
    assert ["finished"] * 4 == [result["finish_reason"] for result in results]
    assert [*range(1, PAGES)] == sorted(page for pages in pages_in(tmp_path) for page in pages)
    given, taken = (
        sum(r["stats"].get(f"tbloom/{what}", 0) for r in results) for what in ("given", "taken")
    )
    print([len(pages) for pages in pages_in(tmp_path)], f"{given=} {taken=}")
    assert given >= taken  # a later link to its page may claim what was given


def test_crawlers_that_wait_get_pages_of_a_busy_one(
    fleet: Any, url: str, name: str, tmp_path: Path
) -> None:
    waiting = [fleet(number, starts=False, TBLOOM_WHEN_IDLE="wait") for number in range(2)]
    wait_for_waiting(url, name, 2)
    busy = fleet(2, DOWNLOAD_DELAY=0.05)  # so that the others ask meanwhile
    result = busy.result()
    for crawl in waiting:
        crawl.send_signal(2)
        assert "shutdown" == crawl.result()["finish_reason"]
    assert "finished" == result["finish_reason"]
    pages = pages_in(tmp_path)
    assert [*range(1, PAGES)] == sorted(page for own in pages for page in own)
    assert all(pages)


class StartsLate(Part):
    """Holds the first page back until another crawler waits."""

    def process_request(self, request: Any) -> None:  # noqa: ARG002 - Scrapy gives it
        settings = self.crawler.settings
        if not self.crawler.stats.get_value("downloader/response_count"):
            wait_for_waiting(settings["REDIS_URL"], settings["TBLOOM_KEY"], 1)


def test_a_crawler_without_work_stays_open_while_the_first_page_is_in_work(
    fleet: Any, url: str, name: str, tmp_path: Path
) -> None:
    """scrapy-redis#9: no time is set. It ends with the one that has the page."""
    late = fleet(0, DOWNLOADER_MIDDLEWARES={StartsLate: 1}, DOWNLOAD_DELAY=0.02)
    with redis.Redis.from_url(url) as client:
        while not client.exists(
            f"{{{name}}}:sessions"
        ):  # else the other one has nothing to wait for
            time.sleep(0.05)
    idle = fleet(1, starts=False)
    assert ["finished"] * 2 == [crawl.result()["finish_reason"] for crawl in (late, idle)]
    pages = pages_in(tmp_path)
    assert [*range(1, PAGES)] == sorted(page for own in pages for page in own)
    assert all(pages)


def test_pages_that_have_failed_in_an_earlier_crawl_stay_with_the_one_that_took_them(
    fleet: Any, url: str, name: str, site: str
) -> None:
    """Or may have killed it. Given away, they would wait for the next crawl: running ones look for them at their start only."""
    waiting = fleet(0, starts=False, TBLOOM_WHEN_IDLE="wait")
    wait_for_waiting(url, name, 1)
    with TimeBloom.open(url, name) as seen:
        pages = range(100, 130)  # without links
        requests = [scrapy.Request(f"{site}{page}") for page in pages]
        items = [fingerprint(request) for request in requests]
        failed = failed_queue_of("tree")
        notes = [
            Note(
                f'{item.hex()}\n{{"url": "{request.url}"}}',
                failed,
                deaths=n % 2,
                failures=1 - n % 2,
            )
            for n, (item, request) in enumerate(zip(items, requests, strict=True))
        ]
        assert [True] * len(pages) == seen.push_many(items, notes)
        result = fleet(1, starts=False, DOWNLOAD_DELAY=0.05).result()
        assert len(pages) == sum(seen.contains_many(items)) == result["stats"]["tbloom/done"]
    waiting.send_signal(2)
    waiting.result()
    assert 0 == result["stats"].get("tbloom/given", 0)


def test_nothing_is_given_where_it_is_switched_off(fleet: Any, tmp_path: Path) -> None:
    crawlers = [fleet(number, TBLOOM_SHARE=False) for number in range(2)]
    results = [crawl.result()["stats"] for crawl in crawlers]
    assert [0, 0] == [stats.get("tbloom/given", 0) for stats in results]
    assert [*range(1, PAGES)] == sorted(page for own in pages_in(tmp_path) for page in own)


class Star(crawls.Tree):
    """Page 0 leads to all others, on so many hosts. Each fifth one has a cookie jar, so that it stays with its crawler."""

    hosts: int

    def parse(self, response: Any, **given: Any) -> Iterator[Any]:
        if response.url == f"{self.site}0":
            for number in range(1, self.size):
                host = f"host{number % self.hosts}.example"
                jar = {"cookiejar": "own"} if number % 5 == 0 else {}
                yield scrapy.Request(f"{self.site}{number}", meta={"download_slot": host, **jar})
        # Other links would claim again what was given.
        yield from (each for each in super().parse(response, **given) if isinstance(each, dict))


def crawl_star(
    site: str, settings: dict[str, Any], hosts: int, fetched_file: str
) -> dict[str, Any]:
    Star.fetched_file, Star.hosts = fetched_file, hosts
    [result] = crawls.run([[(Star, {"site": site, "size": PAGES})]], **settings)
    return result


@pytest.mark.parametrize(
    ("hosts", "kind"),
    [
        *((1, "disk"), (3, "memory")),
        *(pytest.param(*case, marks=pytest.mark.check) for case in ((1, "memory"), (3, "disk"))),
    ],
)
def test_what_is_given_changes_neither_the_order_of_a_queue_nor_scrapys_counts(
    fleet: Any, site: str, settings: dict[str, Any], tmp_path: Path, *, kind: str, hosts: int
) -> None:
    """Breadth-first, with Scrapy's queues for that: what a crawler keeps, it fetches in the order in which it was found."""
    waiting = [
        fleet(number, starts=False, TBLOOM_WHEN_IDLE="wait", TBLOOM_SHARE=False)
        for number in range(2)
    ]
    wait_for_waiting(settings["REDIS_URL"], settings["TBLOOM_KEY"], 2)
    settings |= {
        "CONCURRENT_REQUESTS": 1,
        "DEPTH_PRIORITY": 1,
        "DOWNLOAD_DELAY": 0.01,
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    }
    settings |= {"JOBDIR": str(tmp_path / "job")} if kind == "disk" else {}
    busy = Forked(crawl_star, site, settings, hosts, str(tmp_path / "fetched-2")).result()
    for crawl in waiting:
        crawl.send_signal(2)
        crawl.result()
    *others, own = pages_in(tmp_path)
    assert [*range(1, PAGES)] == sorted(page for pages in [*others, own] for page in pages)
    stats = busy["stats"]
    # Once its queue is empty, it takes what nobody else has taken yet.
    taken = stats.get("tbloom/taken", 0)
    kept = own[: len(own) - taken]
    for host in range(hosts):
        pages = [page for page in kept if page % hosts == host]
        assert sorted(pages) == pages
    assert {*range(5, PAGES, 5)} <= {*kept}
    assert stats["tbloom/given"] > 0
    counts = [stats[f"scheduler/{what}"] for what in ("enqueued", "dequeued")]
    assert [PAGES + taken] * 2 == counts


class Visits(Part):
    """Appends each visit to a host to a file: from when, until when, the host, and the page."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.begun = dict[scrapy.Request, float]()
        crawler.signals.connect(self.began, signals.request_reached_downloader)
        crawler.signals.connect(self.ended, signals.response_downloaded)

    def began(self, request: scrapy.Request) -> None:
        self.begun[request] = time.time()

    def ended(self, request: scrapy.Request) -> None:
        visit = [self.begun[request], time.time(), request.meta.get("download_slot"), request.url]
        with Path(self.crawler.settings["VISITS"]).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(visit)}\n")


class Hosts(crawls.Tree):
    """Pages of nine hosts, each of which leads to other hosts."""

    def parse(self, response: Any, **given: Any) -> Iterator[Any]:
        for found in super().parse(response, **given):
            if isinstance(found, scrapy.Request):
                number = int(found.url.removeprefix(self.site))
                found.meta["download_slot"] = f"host{number % 9}.example"
            yield found


def crawl_hosts(site: str, settings: dict[str, Any], fetched_file: str) -> dict[str, Any]:
    process = CrawlerProcess({**crawls.SETTINGS, **settings}, install_root_handler=False)
    crawler = process.create_crawler(Hosts)
    Hosts.fetched_file = fetched_file  # crawlers whose arguments differ share nothing
    process.crawl(crawler, site=site, size=HOST_PAGES)
    process.start()
    return dict(crawler.stats.get_stats())


@pytest.mark.parametrize("crawlers", [pytest.param(1, marks=pytest.mark.check), 3])
def test_a_host_has_one_owner_at_a_time(
    site: str, settings: dict[str, Any], tmp_path: Path, crawlers: int
) -> None:
    """scrapyd#221: the delay holds for all. No crawler visits a host while another one's request is under way."""
    settings |= {"TBLOOM_SHARE": "hosts", "DOWNLOAD_DELAY": 0.2, "EXTENSIONS": {Visits: 1}}
    fleet = [
        Forked(
            crawl_hosts,
            site,
            {**settings, "VISITS": str(tmp_path / f"visits-{number}")},
            fetched_file=str(tmp_path / f"fetched-{number}"),
        )
        for number in range(crawlers)
    ]
    stats = [crawl.result() for crawl in fleet]
    assert [*range(1, HOST_PAGES)] == sorted(page for own in pages_in(tmp_path) for page in own)
    visits = defaultdict[str, list[tuple[float, float, int]]](list)
    for number in range(crawlers):
        for line in (tmp_path / f"visits-{number}").read_text().splitlines():
            began, ended, host, _ = json.loads(line)
            if host.endswith("example"):  # not the start page, which each crawler fetches
                visits[host].append((began, ended, number))
    assert 9 == len(visits)
    moves = 0
    for of_host in visits.values():
        for (_, ended, crawler), (began, _, later) in pairwise(sorted(of_host)):
            if crawler != later:
                moves += 1
                assert ended <= began
    print([len(pages) for pages in pages_in(tmp_path)], f"{moves=}")
    assert (crawlers > 1) == any(each.get("tbloom/taken", 0) for each in stats)
    for each in stats:  # also of what was given
        assert each["scheduler/enqueued"] == each["scheduler/dequeued"]


class CountsIdles(Part):
    """Counts ``spider_idle``, and asks for a page at the first."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.idle, signals.spider_idle)

    def idle(self, spider: Any) -> None:
        self.crawler.stats.inc_value("idles")
        if self.crawler.stats.get_value("idles") == 1:
            self.crawler.engine.crawl(scrapy.Request(f"{spider.site}more", spider.note))


@pytest.mark.parametrize("store", ["bloom", "local"])
def test_a_crawl_that_is_alone_is_told_as_often_that_it_is_idle(
    crawl: Any, tmp_path: Path, store: str
) -> None:
    extensions = {"EXTENSIONS": {CountsIdles: 1}}
    local = {
        "TBLOOM_STORE": store,
        "TBLOOM_PATH": str(tmp_path / "seen") if store == "local" else None,
    }
    scrapys = {"ADDONS": {}, "REDIS_URL": None, "TBLOOM_KEY": None}
    own, expected = (
        crawl("pages", {**kind, **extensions}, ["a"]) for kind in ({**DONE, **local}, scrapys)
    )
    assert (["a", "more"], 2) == (expected["fetched"], expected["stats"]["idles"])
    assert (["a", "more"], 2) == (own["fetched"], own["stats"]["idles"])


class Country(scrapy.Spider):
    """Fails for one country, and says for which one it runs."""

    name = "news"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        if self._starts:  # type: ignore[attr-defined] # an argument
            yield scrapy.Request(f"{self._site}a")  # type: ignore[attr-defined] # an argument

    def parse(self, response: Any) -> Iterator[Any]:  # noqa: ARG002 - Scrapy gives it
        self.crawler.stats.inc_value(f"fetched {self.country}")  # type: ignore[attr-defined, union-attr]
        raise ZeroDivisionError
        yield


def crawl_for(site: str, settings: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    process = CrawlerProcess({**crawls.SETTINGS, **settings}, install_root_handler=False)
    crawler = process.create_crawler(Country)
    process.crawl(crawler, _site=site, **arguments)
    process.start()
    return {k: v for k, v in crawler.stats.get_stats().items() if k.startswith("fetched")}


def test_a_failed_page_is_fetched_by_crawls_with_the_same_arguments(
    settings: dict[str, Any], site: str
) -> None:
    """Arguments that begin with _ don't count, such as scrapyd's _job."""

    def run(**arguments: Any) -> dict[str, Any]:
        return Forked(crawl_for, site, settings, **arguments).result()

    assert {"fetched de": 1} == run(country="de", _starts=True, _job="1")
    assert {} == run(country="fr", _starts=False, _job="2")
    assert {"fetched de": 1} == run(country="de", _starts=False, _job="3")


class Client:
    """An object, as a program may give it to its spider."""


def crawl_and_warn(
    site: str, settings: dict[str, Any], **arguments: Any
) -> tuple[dict[str, Any], list[str]]:
    """What a crawl has fetched with two objects and a set as arguments, and tbloom's warnings of arguments."""
    log = io.StringIO()
    logging.basicConfig(handlers=[logging.StreamHandler(log)], level=logging.WARNING)
    others = {"client": Client(), "clients": [Client()], "ids": {8, 0}, "_hook": Client()}
    fetched = crawl_for(site, settings, **others, **arguments)
    return fetched, [line for line in log.getvalue().splitlines() if "arguments" in line]


def test_objects_and_sets_do_not_keep_crawls_apart(settings: dict[str, Any], site: str) -> None:
    """Their texts change from run to run. A warning names them."""

    def run(**arguments: Any) -> Any:
        return Forked(crawl_and_warn, site, settings, **arguments).result()

    first, [warning] = run(country="de", _starts=True)
    second, _ = run(country="de", _starts=False)
    assert [{"fetched de": 1}] * 2 == [first, second]
    assert ({}, [warning]) == run(country="fr", _starts=False)
    assert "client, clients, ids may" in warning


class Category(scrapy.Spider):
    """Keeps an argument as something else, and has an attribute that is none."""

    name = "news"

    def __init__(self, *, category: str) -> None:
        super().__init__()
        self.start_urls = [f"data:,{category}"]
        self.began = time.time()

    def parse(self, response: Any) -> None: ...


def queues_after(settings: dict[str, Any], **arguments: Any) -> list[str]:
    process = CrawlerProcess({**crawls.SETTINGS, **settings}, install_root_handler=False)
    process.crawl(Category, **arguments)
    process.start()
    with TimeBloom.from_url(settings["REDIS_URL"], settings["TBLOOM_KEY"], capacity=1000) as seen:
        return queues_of(seen)


def test_what_a_spider_makes_of_its_arguments_does_not_count(settings: dict[str, Any]) -> None:
    given = {"category": "books"}
    assert [queue_of("news", given)] == Forked(queues_after, settings, **given).result()


OF_ONE_SPIDER = """
import scrapy
{imported}

class News(scrapy.Spider):
    name = "news"
    start_urls = ["data:,"]
    custom_settings = {{"ADDONS": {{{addon}: 500}}}}

    def __init__(self, a, **more):
        super().__init__(**more)

    def parse(self, response):
        pass
"""


@pytest.mark.parametrize(
    ("imported", "addon"),
    [(IMPORT, "Addon"), pytest.param("", "'tbloom.scrapy.Addon'", marks=pytest.mark.check)],
    ids=["class", "name"],
)
def test_an_add_on_of_one_spider_knows_its_arguments_if_it_is_a_class(
    url: str, name: str, tmp_path: Path, imported: str, addon: str
) -> None:
    """Scrapy imports what ``custom_settings`` names when it has made the spider. A warning says so."""
    (tmp_path / "news.py").write_text(OF_ONE_SPIDER.format(imported=imported, addon=addon))
    words = f"runspider news.py -a a=b -s REDIS_URL={url} -s TBLOOM_KEY={name}".split()
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", *words],
        check=True, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    warning = f"ADDONS the class in place of its name: {IMPORT}"
    assert ("ERROR" in done.stderr, warning in done.stderr) == (False, not imported), done.stderr
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert [queue_of("news", {"a": "b"} if imported else {})] == queues_of(seen)


SAME = ["x", b"x", 1, 1.5, None, True, (), (1,), [], {}, {"b": [(1, "<A at 0x12>")], 2: {"c": ()}}]


@pytest.mark.parametrize("value", SAME)
def test_arguments_whose_texts_stay_the_same_keep_their_queue(value: Any) -> None:
    given = {"b": value, "a": "1"}
    assert f"news\n{sorted(given.items())!r}" == queue_of("news", given)


def test_arguments_whose_texts_change_from_run_to_run() -> None:
    objects = [Client(), lambda: 1, Client().__repr__, [{1: (Client(),)}], {1}, {(frozenset(),): 1}]
    for value in objects:
        assert "news" == queue_of("news", {"a": value})
        assert queue_of("news", {"b": "1"}) == queue_of("news", {"a": value, "b": "1"})


def test_no_secret_of_a_spider_is_in_redis_in_plain(url: str, name: str) -> None:
    queue = queue_of("news", {"password": "hunter2", "_job": "1"})
    assert queue == queue_of("news", {"password": "hunter2"}) != queue_of("news", {})
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.push("a", f"note for {len(queue)}")
        seen.take(queue=queue)
        dumped = [seen.client.dump(key) for key in seen.client.keys(f"*{name}*")]
    assert not any(b"hunter2" in value for value in dumped if value)
