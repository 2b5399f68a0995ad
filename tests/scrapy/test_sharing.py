"""Several crawlers of one spider, with TBLOOM_MARK = "done": what one has too many of, others fetch; and they end together."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.http import Response
from scrapy.utils.request import fingerprint

from tbloom import Note, TimeBloom
from tbloom.claims.fleet import failed_queue_of, queues_of
from tbloom.claims.queues import queue_of
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
    assert [*range(1, PAGES)] == sorted(chain(*pages_in(tmp_path)))
    given, taken = (
        sum(r["stats"].get(f"tbloom/{what}", 0) for r in results) for what in ("given", "taken")
    )
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
    assert [*range(1, PAGES)] == sorted(chain(*pages))
    assert all(pages)


class StartsLate(Part):
    """Holds the first page back until another crawler waits."""

    def process_request(self, request: Any) -> None:  # noqa: ARG002 - Scrapy gives it
        settings = self.crawler.settings
        if not self.crawler.stats.get_value("downloader/response_count"):
            wait_for_waiting(settings["REDIS_URL"], settings["TBLOOM_KEY"], 1)


def test_an_idle_crawler_stays_while_a_page_is_in_work(
    fleet: Any, url: str, name: str, tmp_path: Path
) -> None:
    """scrapy-redis#9: no time is set. It ends with the one that has the page."""
    late = fleet(0, DOWNLOADER_MIDDLEWARES={StartsLate: 1}, DOWNLOAD_DELAY=0.02)
    with redis.Redis.from_url(url) as client:
        # Else the other one has nothing to wait for.
        while not client.exists(f"{{{name}}}:sessions"):
            time.sleep(0.05)
    idle = fleet(1, starts=False)
    assert ["finished"] * 2 == [crawl.result()["finish_reason"] for crawl in (late, idle)]
    pages = pages_in(tmp_path)
    assert [*range(1, PAGES)] == sorted(chain(*pages))
    assert all(pages)


class Later(scrapy.Spider):
    """Fetches what is left. Each page fails, unless it is ``mended``."""

    name = "later"
    start = nothing
    mended = False

    def parse(self, _: Response) -> None:
        if not self.mended:
            raise ZeroDivisionError


def push_failed(seen: TimeBloom, site: str, queue: str, pages: int, **of_hosts: Any) -> list[bytes]:
    """Leave pages that have failed in two crawls to the next one; of each second one, a crawler has died since."""
    requests = [scrapy.Request(f"{site}{page}") for page in range(pages)]
    items = [fingerprint(request) for request in requests]
    notes = list[Note]()
    for n, (item, request) in enumerate(zip(items, requests, strict=True)):
        host = f"host{n % 8}.example"
        text = json.dumps({"url": request.url, "meta": {"download_slot": host}})
        own = Note(f"{item.hex()}\n{text}", failed_queue_of(queue), host, failures=2)
        notes.append(own._replace(deaths=n % 2, **of_hosts))
    assert [True] * pages == seen.push_many(items, notes)
    return items


@pytest.mark.parametrize(
    ("pages", "share"),
    [
        (60, True),
        *(pytest.param(*case, marks=pytest.mark.check) for case in ((160, "hosts"), (2500, True))),
    ],
)
def test_pages_that_failed_before_are_every_crawlers(
    site: str, settings: dict[str, Any], pages: int, share: Any
) -> None:
    """However many they are. Each crawler counts their failures on."""
    url, name = settings["REDIS_URL"], settings["TBLOOM_KEY"]
    settings |= {"TBLOOM_SHARE": share, "DOWNLOAD_DELAY": 0.2 if pages < 1000 else 0}
    waits = {**settings, "TBLOOM_WHEN_IDLE": "wait"}
    waiting = [Forked(crawl_as, Later, waits) for _ in range(2)]
    wait_for_waiting(url, name, 2)
    with TimeBloom.from_url(url, name) as seen:
        items = push_failed(seen, site, "later", pages, one_owner=share == "hosts")
        ends = [Forked(crawl_as, Later, settings).result()]
        for crawl in waiting:
            crawl.send_signal(2)
            ends.append(crawl.result())
        given_up = [each.get("tbloom/given_up", 0) for each in ends]
        assert pages == len([*seen.fleet("later").kept(["given up"])]) == sum(given_up)
        assert all(given_up)
        assert not any(seen.contains_many(items))


def test_failures_and_deaths_of_a_page_are_given_with_it(
    site: str, settings: dict[str, Any]
) -> None:
    """A program takes what a crawler gives, and ends without work on that."""
    url, name = settings["REDIS_URL"], settings["TBLOOM_KEY"]
    with TimeBloom.from_url(url, name) as seen:
        items = push_failed(seen, site, "later", 60)
        seen.take(0, "later")
        slow = {**settings, "DOWNLOAD_DELAY": 0.05}
        busy = Forked(crawl_as, Later, slow, mended=True)
        fleet, given = seen.fleet("later"), list[Note]()
        while (pages := fleet.look().pages).failed + pages.left > 0:
            time.sleep(0.05)  # until the crawler has them
        while len(given) < 10:
            given += seen.take(5, "later").notes
            time.sleep(0.05)
        for note in given:
            number = items.index(bytes.fromhex(note.text.partition("\n")[0]))
            assert (2, number % 2) == (note.failures, note.deaths)
        seen.end_session()
        assert len(given) <= busy.result()["tbloom/given"]
        assert all(seen.contains_many(items))


def test_nothing_is_given_where_it_is_switched_off(fleet: Any, tmp_path: Path) -> None:
    crawlers = [fleet(number, TBLOOM_SHARE=False) for number in range(2)]
    results = [crawl.result()["stats"] for crawl in crawlers]
    assert [0, 0] == [stats.get("tbloom/given", 0) for stats in results]
    assert [*range(1, PAGES)] == sorted(chain(*pages_in(tmp_path)))


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


def crawl_as(spider: Any, settings: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The stats of a crawl."""
    [result] = crawls.run([[(spider, given)]], **settings)
    return result["stats"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("hosts", "kind"),
    [
        (1, "disk"),
        *(
            pytest.param(*case, marks=pytest.mark.check)
            for case in ((1, "memory"), (3, "memory"), (3, "disk"))
        ),
    ],
)
def test_giving_changes_neither_a_queues_order_nor_scrapys_counts(
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
    given = {
        "site": site,
        "size": PAGES,
        "hosts": hosts,
        "fetched_file": str(tmp_path / "fetched-2"),
    }
    stats = Forked(crawl_as, Star, settings, **given).result()
    for crawl in waiting:
        crawl.send_signal(2)
        crawl.result()
    *others, own = pages_in(tmp_path)
    assert [*range(1, PAGES)] == sorted(chain(*others, own))
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


class Changes(scrapy.Spider):
    """Its list has links to pages on five hosts in version 1, and then in version 2. Stats name the pages that are fetched in 2."""

    name = "changes"
    site: str

    async def start(self) -> AsyncIterator[scrapy.Request]:
        if self.settings["STARTS"]:
            yield scrapy.Request(f"{self.site}list", self.parse_list, dont_filter=True)

    def parse_list(self, _: Response) -> Iterator[scrapy.Request]:
        for version in "12":
            for page in range(30):
                meta = {"tbloom_version": version, "download_slot": f"host{page % 5}.example"}
                yield scrapy.Request(f"{self.site}{page}", meta=meta)

    def parse(self, response: Response) -> None:
        assert self.crawler.stats
        if response.meta["tbloom_version"] == "2":
            self.crawler.stats.inc_value(f"page {response.url.removeprefix(self.site)}")


@pytest.mark.parametrize(
    ("share", "delay"), [(True, 0.05), pytest.param("hosts", 0.4, marks=pytest.mark.check)]
)
def test_a_page_is_fetched_in_its_newest_version_though_crawlers_wait(
    site: str, settings: dict[str, Any], share: Any, delay: float
) -> None:
    """A page that was queued in version 1 stays with the crawler that knows of version 2."""
    settings |= {"TBLOOM_SHARE": share, "DOWNLOAD_DELAY": delay}
    waits = {"STARTS": False, "TBLOOM_WHEN_IDLE": "wait"}
    waiting = Forked(crawl_as, Changes, {**settings, **waits}, site=site)
    wait_for_waiting(settings["REDIS_URL"], settings["TBLOOM_KEY"], 1)
    busy = Forked(crawl_as, Changes, {**settings, "STARTS": True}, site=site).result()
    waiting.send_signal(2)
    both = Counter(busy) + Counter(waiting.result())
    assert {f"page {page}": 1 for page in range(30)} == {
        stat: n for stat, n in both.items() if stat.startswith("page ")
    }


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


@pytest.mark.parametrize("crawlers", [pytest.param(1, marks=pytest.mark.check), 3])
def test_a_host_has_one_owner_at_a_time(
    site: str, settings: dict[str, Any], tmp_path: Path, crawlers: int
) -> None:
    """scrapyd#221: the delay holds for all. No crawler visits a host while another one's request is under way."""
    settings |= {"TBLOOM_SHARE": "hosts", "DOWNLOAD_DELAY": 0.2, "EXTENSIONS": {Visits: 1}}
    fleet = [
        Forked(
            crawl_as,
            crawls.Hosts,
            {**settings, "VISITS": str(tmp_path / f"visits-{number}")},
            site=site,
            size=HOST_PAGES,
            fetched_file=str(tmp_path / f"fetched-{number}"),
        )
        for number in range(crawlers)
    ]
    stats = [crawl.result() for crawl in fleet]
    assert [*range(1, HOST_PAGES)] == sorted(chain(*pages_in(tmp_path)))
    visits = defaultdict[str, list[tuple[float, float, int]]](list)
    for number in range(crawlers):
        for line in (tmp_path / f"visits-{number}").read_text().splitlines():
            began, ended, host, _ = json.loads(line)
            if host.endswith("example"):  # not the start page, which each crawler fetches
                visits[host].append((began, ended, number))
    assert 9 == len(visits)
    for of_host in visits.values():
        for (_, ended, crawler), (began, _, later) in pairwise(sorted(of_host)):
            assert crawler == later or ended <= began
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
def test_a_lone_crawl_is_idle_as_often_as_scrapys(crawl: Any, tmp_path: Path, store: str) -> None:
    path = {"TBLOOM_PATH": str(tmp_path / "seen")} if store == "local" else {}
    scrapys = {"ADDONS": {}, "REDIS_URL": None, "TBLOOM_KEY": None}
    for settings in scrapys, {**DONE, "TBLOOM_STORE": store, **path}:
        end = crawl("pages", {**settings, "EXTENSIONS": {CountsIdles: 1}}, ["a"])
        assert (["a", "more"], 2) == (end["fetched"], end["stats"]["idles"])


class Client:
    """An object, as a program may give it to its spider."""


class Country(scrapy.Spider):
    """Fails for one country, and says for which one it runs. It makes something else of its arguments."""

    name = "news"

    def __init__(self, *, country: str, **_: Any) -> None:
        super().__init__()
        self.country, self.began = country.upper(), time.time()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        if self.settings["STARTS"]:
            yield scrapy.Request(f"{self.settings['SITE']}a")

    def parse(self, response: Any) -> Iterator[Any]:  # noqa: ARG002 - Scrapy gives it
        assert self.crawler.stats
        self.crawler.stats.inc_value(f"fetched {self.country}")
        raise ZeroDivisionError
        yield


def crawl_for(
    settings: dict[str, Any], *, with_objects: bool, **arguments: Any
) -> tuple[list[str], list[str]]:
    """For which country a crawl has fetched its page, and tbloom's warnings of arguments."""
    log = io.StringIO()
    logging.basicConfig(handlers=[logging.StreamHandler(log)], level=logging.WARNING)
    if with_objects:
        others = {"client": Client(), "clients": [Client()], "ids": {8, 0}, "_hook": Client()}
        arguments |= others
    process = CrawlerProcess({**crawls.SETTINGS, **settings}, install_root_handler=False)
    crawler = process.create_crawler(Country)
    process.crawl(crawler, **arguments)
    process.start()
    fetched = [stat for stat in crawler.stats.get_stats() if stat.startswith("fetched")]
    return fetched, [line for line in log.getvalue().splitlines() if "arguments" in line]


@pytest.mark.parametrize("with_objects", [False, True])
def test_crawls_with_the_same_arguments_fetch_a_failed_page(
    settings: dict[str, Any], site: str, url: str, name: str, *, with_objects: bool
) -> None:
    """Arguments that begin with _ don't count, such as scrapyd's _job; nor objects and sets, whose texts change from run to run. A warning
    names these. What a spider makes of its arguments does not count."""

    def run(*, starts: bool, **arguments: Any) -> Any:
        own = {**settings, "STARTS": starts, "SITE": site}
        return Forked(crawl_for, own, with_objects=with_objects, **arguments).result()

    fetched, warnings = run(country="de", _job="1", starts=True)
    assert ["fetched DE"] == fetched
    assert [with_objects] == [*{"client, clients, ids may" in line for line in warnings or [""]}]
    assert ([], warnings) == run(country="fr", _job="2", starts=False)
    assert ["fetched DE"] == run(country="de", _job="3", starts=False)[0]
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        assert {queue_of("news", {"country": c}) for c in ("de", "fr")} >= {*queues_of(seen)}


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


@pytest.mark.check
@pytest.mark.parametrize(
    ("imported", "addon"),
    [(IMPORT, "Addon"), ("", "'tbloom.scrapy.Addon'")],
    ids=["class", "name"],
)
def test_a_spiders_own_add_on_knows_arguments_if_a_class(
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
