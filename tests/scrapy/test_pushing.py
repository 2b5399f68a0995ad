"""``tbloom push`` and ``tbloom queue`` in a project's folder, and crawlers that wait for what is pushed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy_redis.queue
from scrapy import Request
from scrapy_redis.dupefilter import RFPDupeFilter

from tbloom import TimeBloom
from tbloom.claims.fleet import Fleet
from tests.helpers import crawl as crawls
from tests.helpers.commands import refused, tbloom_in
from tests.helpers.crawl import LooksRarely
from tests.helpers.folders import Folder
from tests.helpers.forked import Forked
from tests.helpers.keptpages import view_of, waiting
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.schedulers import DONE
from tests.helpers.website import Page, served

SPIDERS = """
from tests.helpers.crawl import Fed as Base


class Fed(Base):
    def __init__(self, country="", **given):
        super().__init__(**given)
"""
UNREACHABLE = "redis://127.0.0.1:1/0"
FINGERPRINTERS = "tests.helpers.fingerprinters"


class Project(Folder):
    """A project, its filter, and crawls of its spider."""

    def __init__(self, path: Path, url: str, name: str, site: str) -> None:
        self.site, self.crawls = site, list[Forked]()
        own = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 10_000}
        super().__init__(path, SPIDERS, **DONE, **own, TBLOOM_ERROR_RATE=1e-9)
        self.seen = TimeBloom.from_url(url, name, capacity=10_000, error_rate=1e-9)

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.seen, "fed")

    def push(self, *lines: str | dict[str, Any], words: tuple[str, ...] = ()) -> tuple[int, int]:
        """Pushes lines in a file; how many were read, and how many were new."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (self.path / "urls").write_text("\n".join(texts))
        said = json.loads(self.said("push", "fed", "urls", "--json", *words))
        assert said["lines"] == sum(said.values()) - said["lines"]
        return said["lines"], said["new"]

    def start(self, **settings: Any) -> None:
        file = self.path / f"fetched-{len(self.crawls)}"
        own = {**self.settings, "SPIDER_MODULES": [], "TBLOOM_WHEN_IDLE": "wait", **settings}
        self.crawls.append(crawls.start("fed", self.site, own, fetched_file=str(file)))

    def crawl(self, **settings: Any) -> dict[str, Any]:
        """A crawl that ends once nothing is left."""
        self.start(TBLOOM_WHEN_IDLE="end", **settings)
        end: dict[str, Any] = self.crawls.pop().result()
        assert "finished" == end["finish_reason"]
        return end

    def fetched(self) -> list[dict[str, Any]]:
        texts = [file.read_text(encoding="utf-8") for file in self.path.glob("fetched-*")]
        # (A line may be half there.)
        return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            assert all(crawl.is_running for crawl in self.crawls)
            time.sleep(0.02)

    def stop(self) -> list[dict[str, Any]]:
        for crawl in self.crawls:
            crawl.send_signal(signal.SIGINT)
        ends = [crawl.result() for crawl in self.crawls]
        self.crawls.clear()
        return ends


@pytest.fixture
def project(tmp_path: Path, url: str, name: str, site: str) -> Any:
    project = Project(tmp_path, url, name, site)
    yield project
    project.stop()
    project.seen.close()


def test_a_waiting_fleet_fetches_each_pushed_page_once(project: Project, site: str) -> None:
    """Until a signal ends it. A page that is done is not new, nor one that is left, or repeated."""
    project.start()
    project.start()
    project.until(lambda: waiting(project.seen, "fed") == 2)
    urls = [f"{site}{n}" for n in range(100)]
    assert (100, 100) == project.push(*urls)
    project.until(lambda: len(project.fetched()) >= 100)
    project.until(lambda: waiting(project.seen, "fed") == 2 and not any(project.fleet.look().pages))
    assert (101, 1) == project.push(*urls, f"{site}later")
    project.until(lambda: len(project.fetched()) >= 101)
    ends = project.stop()
    assert ["shutdown"] * 2 == [end["finish_reason"] for end in ends]
    counts = Counter(page["path"] for page in project.fetched())
    assert dict.fromkeys([*map(str, range(100)), "later"], 1) == counts
    assert 101 == sum(end["stats"].get("tbloom/taken", 0) for end in ends) - sum(
        end["stats"].get("tbloom/given", 0) for end in ends
    )
    assert (4, 2) == project.push(f"{site}a", f"{site}1", f"{site}a", "", f"{site}b")
    assert (2, 0) == project.push(f"{site}a", f"{site}b")
    assert 2 == project.fleet.look().pages.left


def test_a_waiting_crawler_takes_what_is_pushed_after_an_outage(
    tmp_path: Path, name: str, site: str
) -> None:
    """bullmq#2466: a worker that Redis was away from processes no job that is added later."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    log = tmp_path / "log"
    with LocalRedis(needed(), *options) as server:
        project = Project(tmp_path, server.url, name, site)
        try:
            project.start(LOG_FILE=str(log))
            project.until(lambda: log.exists() and "waiting for pages" in log.read_text())
            server.kill()
            project.until(lambda: "the crawl waits for it" in log.read_text())
            server.restart()
            assert (1, 1) == project.push(f"{site}later")
            project.until(lambda: bool(project.fetched()))
            [ended] = project.stop()
        finally:
            project.stop()
            project.seen.close()
    assert ("later", 1) == (project.fetched()[0]["path"], ended["stats"]["tbloom/outages"])


class SlowPage(Page):
    """/slow is answered once 250 other pages were asked for."""

    def answer(self, *given: Any, **head: object) -> None:
        while self.path == "/slow" and len(self.server.asked) <= 250:
            time.sleep(0.02)
        super().answer(*given, **head)


def test_pushed_pages_are_taken_beside_a_slow_one(project: Project) -> None:
    """scrapy-redis#15: a crawler does not wait until it is idle. It takes 100 pages at once, here three times."""
    with served(SlowPage, asked=Counter()) as server:
        project.site = f"{server.url}/"
        project.start(EXTENSIONS={LooksRarely: 1})
        assert (1, 1) == project.push(f"{project.site}slow")
        project.until(lambda: [1] == [each.claimed for each in view_of(project.fleet).crawlers])
        project.push(*[f"{project.site}{n}" for n in range(250)])
        project.until(lambda: len(project.fetched()) >= 251)
        project.stop()
        assert "slow" in [page["path"] for page in project.fetched()[-16:]]


def test_others_fetch_what_a_stopped_crawler_has_taken(project: Project, site: str) -> None:
    """rq#1461: a worker that gets a signal does not take its jobs with it."""
    for _ in range(2):
        project.start(CONCURRENT_REQUESTS=2, DOWNLOAD_DELAY=0.01)
    project.until(lambda: waiting(project.seen, "fed") == 2)
    project.push(*[f"{site}{n}" for n in range(150)])
    project.until(lambda: len(project.fetched()) >= 20)
    stopped = project.crawls.pop()
    stopped.send_signal(signal.SIGTERM)
    assert "shutdown" == stopped.result()["finish_reason"]
    project.until(lambda: len(project.fetched()) >= 150)
    project.stop()
    assert [*range(150)] == sorted(int(page["path"]) for page in project.fetched())


def test_a_line_may_be_a_request(project: Project, site: str) -> None:
    """It comes to its callback with all that the line had. What was fetched in a version is not new without one."""
    given = {
        "callback": "parse_book",
        "errback": "parse",
        "meta": {"book": {"title": "Emma", "tags": ["a", "b"]}},
        "cb_kwargs": {"shelf": 7},
        "priority": 5,
        "headers": {"User-Agent": "mine"},
        "method": "POST",
        "body": "q=\u00e9",
    }
    book = {"url": f"{site}book", **given}
    within = {"url": f"{site}list", "meta": {"tbloom_within": 1}}
    assert (4, 3) == project.push(book, f"{site}plain", within, {**book, "priority": 6})
    first, second = ({"url": f"{site}a", "meta": {"tbloom_version": n}} for n in (1, 2))
    assert (3, 1) == project.push(within, first, first)
    project.crawl(DEFAULT_REQUEST_HEADERS={}, USER_AGENT="theirs")
    found = {page.pop("path"): page for page in project.fetched()}
    same = {name: given[name] for name in ("callback", "priority", "method", "body")}
    own = {"book": {"title": "Emma", "tags": ["a", "b"]}, "shelf": 7, "agent": "mine"}
    assert {**same, **own} == found.pop("book")
    plain = {"callback": "parse", "book": None, "priority": 0, "method": "GET", "body": ""}
    plain |= {"agent": "theirs"}
    assert {"plain": plain, "list": plain, "a": plain} == found
    assert (3, 1) == project.push(first, f"{site}a", second)


def test_a_pushed_new_version_takes_a_waiting_ones_place(project: Project, site: str) -> None:
    versions = [{"url": f"{site}a", "meta": {"tbloom_version": f"{n}"}} for n in range(3)]
    assert (1, 1) == project.push(versions[0])
    assert (1, 1) == project.push(versions[1])
    assert (2, 0) == project.push(versions[1], f"{site}a")
    assert (1, 0) == project.push(versions[2], words=("--again",))
    assert 1 == project.crawl()["stats"]["tbloom/done"]
    assert (1, 0) == project.push(versions[2])
    assert (2, 2) == project.push(*versions[:2])
    assert 1 == project.fleet.look().pages.left


def test_only_crawls_with_the_same_arguments_take_what_is_pushed(
    project: Project, site: str
) -> None:
    assert (1, 1) == project.push(f"{site}german", words=("-a", "country=de"))
    assert (2, 1) == project.push(f"{site}any", f"{site}german")
    others = [], ["-a", "country=de"], ["-a", "country=fr"]
    assert [1, 1, 0] == [project.queue_of("fed", *words)["left"] for words in others]
    project.crawl()
    assert ["any"] == [page["path"] for page in project.fetched()]


def test_standard_input_is_read_and_the_queue_is_shown(
    project: Project, site: str, url: str
) -> None:
    """With the pages that each crawler has."""
    done = project.run("push", "fed", stdin=f"\ufeff{site}a\r\n\r\n  {site}b \n{site}a")
    said = "3 lines: 2 new; not new: 1 repeated\n"
    assert (0, said, "") == (done.returncode, done.stdout, done.stderr)
    [title, _, _, row] = project.said("queue", "fed").splitlines()
    assert title.startswith(f"fed at '{project.seen.name}', 127.0.0.1:")
    assert "left        2  for the next crawler that has nothing to fetch" == row
    zero = dict.fromkeys(["claimed", "suspects", "orphaned", "failed", "held", "given_up"], 0)
    assert {"left": 2, **zero, "crawlers": []} == project.queue_of("fed")
    assert 2 == len(project.seen.take(2, "fed", idle=False).notes)
    with TimeBloom.from_url(url, project.seen.name, capacity=10_000, error_rate=1e-9) as other:
        other.take(1, "fed")
        session = other.session
        waits, works = sorted(project.queue_of("fed")["crawlers"], key=itemgetter("state"))
        said = project.said("queue", "fed")
    assert (works["session"], "works") == (project.seen.session, works["state"])
    assert (session, "waits") == (waits["session"], waits["state"])
    # By its session, until it has told where it runs.
    assert re.search(rf"({session}|:{os.getpid()}) +waits", said)


#: Lines of which none is a URL or a request, with what is said of each.
WRONG = [
    ("example.com", ["expected a URL, or a request", "begins with no scheme"]),
    ("{'url'", ["expected a URL, or a request as a JSON object"]),
    ('{"url": "SITEx", "calback": "parse"}', ["field: expected 'callback'", "'calback'"]),
    ('{"url": "SITEx", "dont_filter": 1}', ["dont_filter: expected true or false"]),
    ('{"url": "SITEx", "body": {"a": 1}}', ["body: expected text"]),
    ('{"url": "SITEx", "_class": "os:Request"}', ["expected a URL", "class of requests"]),
    ('{"url": "SITEx", "meta": {"a": {"!os:system": "ls"}}}', ["expected a URL"]),
    ('{"callback": "parse"}', ["expected the field 'url'"]),
    ('{"url": "SITEx", "callback": "gone"}', ["callback: ", "spider 'fed'", "'gone'"]),
    ('{"url": "SITEx", "errback": "name"}', ["errback: ", "spider 'fed'", "'name'"]),
    ('{"url": "SITEx", "priority": "5"}', ["priority: expected a whole number", "'5'"]),
    ('{"url": "SITEx", "meta": []}', ["meta: expected an object"]),
    ('{"url": "SITEx", "headers": {"a": {"b": 1}}}', ["headers: expected"]),
    ('{"url": "SITEx", "headers": {"a": [1]}}', ["headers: expected", "of texts"]),
    ('{"url": "SITEx", "meta": {"tbloom_within": 0}}', ["tbloom_within", "got 0"]),
    ('{"url": "SITEx", "meta": {"a": ' + "[" * 9_000 + "]" * 9_000 + "}}", ["expected"]),
    ('{"url": "SITEx", "meta": 1', ["expected a URL, or a request", "delimiter"]),
    ("http://[", ["expected a URL"]),
    ("\x1f\x8b\x08", ["expected a URL"]),
    (f"SITE{'x' * 70_000}", ["expected a URL", "too long"]),
    ('{"url": "SITE", "meta": {"tbloom_version": 1.5}}', ["meta['tbloom_version'] of <GET", "got 1.5"]),
    ('"SITEx"', ["begins with no scheme", "SITEx"]),
    ('SITEx,"A title"', ["""'"' is in no URL: %22 may be"""]),
    ("SITEx A title", ["' ' is in no URL: %20 may be"]),
    ("SITEx>", ["'>' is in no URL"]),
    ("mailto:me@example.com", ["download handlers for data, file, ftp, http, https, s3"]),
    ('{"url": "javascript:void(0)"}', ["download handlers for"]),
    ("https:///a", ["it has no host"]),
]  # fmt: skip


def test_each_wrong_line_is_named_and_nothing_is_pushed(project: Project, site: str) -> None:
    """browsertrix-crawler#67, scrapy#1463: twenty at once, with the number of the others."""
    good, wrong = [f"{site}a", "", f"{site}my%20file,b;c=%22"], [line for line, _ in WRONG]
    for start in range(0, len(wrong), 20):
        lines = [line.replace("SITE", site) for line in [*wrong[start:], *wrong[:start]]]
        (project.path / "urls").write_text("\n".join([*good, *lines]))
        done = project.run("push", "fed", "urls")
        assert (2, "") == (done.returncode, done.stdout)
        *named, more, last = done.stderr.splitlines()
        for number, (line, (_, words)) in enumerate(zip(named, WRONG[start:], strict=False), 4):
            assert line.startswith(f"tbloom: line {number}: ")
            assert [] == [word for word in words if word.replace("SITE", site) not in line], line
        assert (20, f"tbloom: {len(wrong) - 20} more wrong lines") == (len(named), more)
        every = f"{len(wrong)} of {len(wrong) + 2}"
        assert last.startswith(f"tbloom: wrong lines: {every}, so nothing is pushed (--skip-wrong")
    assert 0 == project.fleet.look().pages.left


def test_the_lines_that_are_not_wrong_can_be_pushed(project: Project, site: str) -> None:
    """Also from a pipe. Without the option, a wrong line behind a thousand others holds up all of them."""
    lines = "\n".join([*(f"{site}{n}" for n in range(1_200)), f'"{site}quoted"'])
    done = project.run("push", "fed", stdin=lines)
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("tbloom: line 1201: expected a URL")
    assert 0 == project.fleet.look().pages.left
    done = project.run("push", "fed", "--skip-wrong", stdin=lines)
    assert (1, "1,200 lines: 1,200 new\n") == (done.returncode, done.stdout)
    assert ["tbloom: line 1201:"] == [line[:18] for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"TBLOOM_MARK": "scheduled"}, ["TBLOOM_MARK: expected 'done'"]),
        ({"ADDONS": {}}, ["ADDONS: expected {'tbloom.scrapy.Addon': 500}"]),
        ({"TBLOOM_KEY": "a-%(timestamp)s"}, ["TBLOOM_KEY: expected the key of a filter that"]),
        ({"TBLOOM_SLICES": 3}, ["TBLOOM_SLICES is 3, the stored filter has 7"]),
        ({"REDIS_URL": UNREACHABLE, "TBLOOM_RETRY_FOR": 0}, ["REDIS_URL is redis://127.0.0.1:1/0: "]),
        pytest.param({"SPIDER_MODULES": ["gone"]}, ["a spider can't be imported: ModuleNotFoundError"], marks=pytest.mark.check),
        pytest.param({"REQUEST_FINGERPRINTER_CLASS": f"{FINGERPRINTERS}.Refuses"}, [f"REQUEST_FINGERPRINTER_CLASS is {FINGERPRINTERS}.Refuses, which raises AssertionError: refused here"], marks=pytest.mark.check),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["push", pytest.param("queue", marks=pytest.mark.check)])
def test_what_is_wrong_with_the_project_is_named(
    project: Project, command: str, settings: dict[str, Any], words: list[str]
) -> None:
    project.seen.add("the parameters are stored")
    project.write(**settings)
    refused(project.run(command, "fed"), *words)


def test_push_makes_the_fingerprints_of_a_crawl(project: Project, site: str) -> None:
    """zyte-spider-templates-project#28. Also if the fingerprinter asks the crawl for its middlewares and its stats."""
    addons = {**DONE["ADDONS"], f"{FINGERPRINTERS}.Addon": 600}
    project.write(ADDONS=addons, MARK="a")
    assert (3, 2) == project.push(f"{site}a", f"{site}b", f"{site}a#part")
    assert 0 == project.run("doctor").returncode
    assert 0 < project.crawl()["stats"]["fingerprints"]
    assert 2 == len(project.fetched())
    assert (2, 0) == project.push(f"{site}a", f"{site}b")
    project.write(REQUEST_FINGERPRINTER_CLASS=f"{FINGERPRINTERS}.RefusesLater")
    done = project.run("push", "fed", stdin=f"{site}a")
    refused(done, "which raises RuntimeError: refused: <GET")


class Old:
    """The queue and the set that scrapy-redis' crawlers of the project's spider have left."""

    def __init__(self, project: Project, client: redis.Redis, kind: str) -> None:
        self.client, self.key = client, f"{project.seen.name}-fed:requests"
        prints = {"REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter"}
        key = f"{project.seen.name}-%(spider)s:requests"
        project.write(SCHEDULER_QUEUE_KEY=key, **prints)
        self.spider = crawls.Fed(site=project.site, fetched_file="")
        self.queue = getattr(scrapy_redis.queue, kind)(client, self.spider, self.key)
        self.dupefilter = RFPDupeFilter(client, f"{self.key}:dupefilter")

    def push(self, *requests: Request) -> None:
        """As scrapy-redis' scheduler does."""
        for request in requests:
            if request.dont_filter or not self.dupefilter.request_seen(request):
                self.queue.push(request)

    def store(self, data: bytes) -> None:
        """Stores what is no request."""
        if isinstance(self.queue, scrapy_redis.queue.PriorityQueue):
            self.client.zadd(self.key, {data: 0})
        else:
            self.client.lpush(self.key, data)

    def __len__(self) -> int:
        return len(self.queue)


KINDS = [
    "PriorityQueue",
    *(pytest.param(k, marks=pytest.mark.check) for k in ("FifoQueue", "LifoQueue")),
]


@pytest.fixture(params=KINDS)
def old(project: Project, client: redis.Redis, request: pytest.FixtureRequest) -> Iterator[Old]:
    old = Old(project, client, request.param)
    yield old
    client.delete(old.key, f"{old.key}:copy", old.dupefilter.key)


def moved(project: Project, *words: str, code: int = 0) -> tuple[list[int], str]:
    """How many requests were read, were new, were seen and were refused; and what standard error says."""
    done = project.run("push", "fed", "--from-scrapy-redis", *words, "--json")
    assert code == done.returncode, done.stderr
    return [*json.loads(done.stdout).values()], done.stderr


def imported(project: Project, old: Old, url: str) -> None:
    """Imports scrapy-redis' set."""
    own = ("--from-set", old.dupefilter.key, "--url", url)
    assert 0 == project.run("migrate", project.seen.name, *own).returncode


def test_each_request_of_scrapy_redis_queue_is_fetched_once(
    project: Project, old: Old, site: str, url: str
) -> None:
    """With all that it had, though scrapy-redis' set has it, too; and what is in the set only is not fetched."""
    for n in range(5):
        old.dupefilter.request_seen(Request(f"{site}fetched-{n}"))
    book = {"title": "Emma", "tags": ("a", "b")}
    fields: dict[str, Any] = {"priority": 5, "method": "POST", "body": "q=\u00e9"}
    more = {"callback": old.spider.parse_book, "meta": {"book": book}, "cb_kwargs": {"shelf": 7}}
    old.push(Request(f"{site}book", headers={"User-Agent": "mine"}, **fields, **more))
    old.push(*(Request(f"{site}{n}") for n in range(40)))
    old.push(Request(f"{site}start", dont_filter=True))
    old.push(Request(f"{site}start", dont_filter=True, meta={"retry_times": 1}))
    old.push(Request(f"{site}within", meta={"tbloom_within": 1}))
    counts, _ = moved(project)
    assert [44, 43, 0, 0] == counts
    assert 0 == len(old)
    imported(project, old, url)
    assert (3, 0) == project.push(f"{site}fetched-0", f"{site}7", f"{site}start")
    for _ in range(2):
        project.start(TBLOOM_WHEN_IDLE="end", DEFAULT_REQUEST_HEADERS={})
    ends = [crawl.result() for crawl in project.crawls]
    project.crawls.clear()
    assert ["finished"] * 2 == [end["finish_reason"] for end in ends]
    pages = project.fetched()
    expected = ["book", "start", "within", *map(str, range(40))]
    assert sorted(expected) == sorted(page["path"] for page in pages)
    [found] = [page for page in pages if page["path"] == "book"]
    own = {"callback": "parse_book", "shelf": 7, "agent": "mine"}
    assert {"path": "book", **fields, **own, "book": {**book, "tags": ["a", "b"]}} == found
    assert not any(project.fleet.look().pages)


PACKED = """
import pickle
import zlib

def loads(data):
    return pickle.loads(zlib.decompress(data))
"""


@pytest.mark.parametrize("old", ["PriorityQueue"], indirect=True)
def test_a_failed_moved_page_is_left_to_the_next_crawl(
    project: Project, old: Old, site: str, url: str
) -> None:
    """The import of scrapy-redis' set does not call it seen; nor is it new. The queue has a serializer of its own."""
    (project.path / "packed.py").write_text(PACKED)
    project.write(SCHEDULER_SERIALIZER="packed")
    request = Request(f"{site}status/500")
    old.dupefilter.request_seen(request)
    old.store(zlib.compress(pickle.dumps(request.to_dict())))
    assert ([1, 1, 0, 0], "") == moved(project)
    imported(project, old, url)
    for left in 1, 1, 0:
        project.crawl()
        counts = project.queue_of("fed")
        assert (0, left) == (counts["left"], counts["failed"])
        assert (1, 0) == project.push(f"{site}status/500") or not left


def test_requests_that_were_moved_but_not_removed_are_not_new(
    project: Project, old: Old, client: redis.Redis, site: str
) -> None:
    """As after an interrupt. So they are removed."""
    old.push(*(Request(f"{site}{n}") for n in range(30)))
    client.copy(old.key, f"{old.key}:copy")
    assert ([30, 30, 0, 0], "") == moved(project)
    old.push(*(Request(f"{site}{n}") for n in range(30, 35)))
    assert ([30, 0, 0, 0], "") == moved(project, f"{old.key}:copy")
    assert not client.exists(f"{old.key}:copy")
    assert 5 == len(old)
    assert 30 == project.fleet.look().pages.left


def test_requests_that_can_t_be_moved_are_named_and_stay(
    project: Project, old: Old, site: str
) -> None:
    """The others are moved, in more than one batch."""
    requests = [Request(f"{site}{n}", priority=n % 3) for n in range(1_500)]
    old.push(*requests[:700])
    old.push(Request(f"{site}price", meta={"price": Fraction(1)}))
    old.push(Request(f"{site}wrong", meta={"tbloom_within": 0}))
    old.store(b"junk")
    gone = {"url": f"{site}gone", "callback": "gone"}
    old.store(pickle.dumps(gone))
    old.push(*requests[700:])
    for read in 1_504, 4:
        counts, said = moved(project, code=1)
        assert [read, read - 4, 0, 4] == counts
        lines = said.splitlines()
        assert [f"stays in '{old.key}': "] * 4 == [line[: len(old.key) + 13] for line in lines]
        for words in (
            [f"<GET {site}price>: meta['price'] is a fractions:Fraction"],
            [f"<GET {site}wrong>: meta['tbloom_within'] of"],
            ["a request: UnpicklingError: "],
            ["a request: ", "'gone'"],
        ):
            assert 1 == sum(all(word in line for word in words) for line in lines), said
        assert 4 == len(old)
    assert 1_500 == project.fleet.look().pages.left


def test_requests_stay_if_scrapy_redis_set_was_imported_before(
    project: Project, old: Old, site: str, url: str
) -> None:
    """They would be lost."""
    old.push(*(Request(f"{site}{n}") for n in range(10)))
    project.seen.add("makes the filter")
    imported(project, old, url)
    old.push(Request(f"{site}new"))
    counts, said = moved(project, code=1)
    assert [11, 1, 10, 0] == counts
    assert said.startswith(f"10 requests of pages that count as seen stay in '{old.key}': ")
    assert 10 == len(old)


@pytest.mark.parametrize("old", ["FifoQueue"], indirect=True)
def test_a_queue_that_is_none_is_refused(project: Project, old: Old, client: redis.Redis) -> None:
    refuse = partial(project.run, "push", "fed")
    line = refused(refuse("--from-scrapy-redis"), f"there is no queue '{old.key}' (REDIS_URL is ")
    assert "SCHEDULER_PERSIST" in line
    client.sadd(old.dupefilter.key, "a")
    refused(refuse("--from-scrapy-redis", old.dupefilter.key), "holds a set, no queue")
    refused(refuse("urls.txt", "--from-scrapy-redis"), "urls.txt")
    (project.path / "urls.txt").write_text("")
    words = "expected --from-scrapy-redis without FILE, --again and --skip-wrong"
    refused(refuse("urls.txt", "--from-scrapy-redis"), words)
    for name, value in (
        *(("SCHEDULER_SERIALIZER", "gone"), ("SCHEDULER_SERIALIZER", "os")),
        ("SCHEDULER_QUEUE_KEY", "%(name)s"),
    ):
        project.write(**{name: value})
        refused(refuse("--from-scrapy-redis"), f"{name}: expected a ", repr(value))


def test_a_wrong_spider_or_argument_is_named(project: Project, tmp_path: Path) -> None:
    refused(project.run("push", "fet"), "SPIDER: expected the name of a spider", "(fed)", "'fet'")
    refused(project.run("push", "fed", "-a", "country"), "'-a'", "expected NAME=VALUE")
    refused(project.run("push", "fed", "none"), "none", "No such file")
    project.write(TBLOOM_STORE="local")
    refused(project.run("push", "fed"), "TBLOOM_STORE: expected 'bloom'")
    project.write(TBLOOM_STORE="bloom")
    for data in gzip.compress(b"http://a/"), "http://a/".encode("utf-16"):
        (project.path / "urls").write_bytes(data)
        for words in [], ["--skip-wrong"]:
            done = project.run("push", "fed", "urls", *words)
            refused(done, "urls: expected lines of text in UTF-8")
    done = project.run("push", "fed", stdin="http://a/\0")
    refused(done, "standard input: expected lines of text in UTF-8")
    project.write(f"{SPIDERS}        raise OSError(country)")
    refused(project.run("queue", "fed", "-a", "country=de"), "can't be made", "OSError: de")
    for missing in ("given['shop']", "self.shop", "sys.exit('no shop')"):
        project.write(f"import sys\n{SPIDERS}        {missing}")
        assert 0 == project.run("queue", "fed").returncode
        refused(project.run("push", "fed"), "can't be made with these arguments: ", "shop")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project.path / "scrapy.cfg").unlink()
    refused(tbloom_in(elsewhere, "push", "fed"), "expected the folder of a Scrapy project")
