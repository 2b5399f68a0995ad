"""``tbloom queue``, ``failed``, ``retry``, ``drop`` and ``push --again``: pages that one can see and free."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

from tbloom import Claim, History, Note, TimeBloom
from tbloom.bloom.claims.fleet import KeptPages, failed_queue_of, given_up_queue_of
from tbloom.bloom.claims.record import Record
from tbloom.cli.commands import fleet as commands
from tests.helpers.clock import shifted
from tests.helpers.commands import refused, tbloom, tbloom_asking, tbloom_in
from tests.helpers.crawl import SETTINGS
from tests.helpers.forked import Forked
from tests.helpers.making import clock_needed
from tests.helpers.schedulers import DONE
from tests.helpers.website import Page, served

SPIDER = """
import json
import os
import time
from pathlib import Path

import scrapy


class Shop(scrapy.Spider):
    name = "shop"

    async def start(self):
        for request in self.settings["LINKS"]:
            yield scrapy.Request(**{**request, "callback": getattr(self, request.get("callback", "parse"))})

    def CALLBACK(self, response):
        FAILS

    def parse(self, response, callback="parse", **given):
        request = response.request
        own = {"url": response.url, "callback": callback, "kind": type(request).__name__, "meta": repr(response.meta.get("own"))}
        own |= {"method": request.method, "body": repr(request.body), "header": repr(request.headers.get("X"))}
        with Path(self.settings["FETCHED"]).open("a") as file:
            file.write(json.dumps({**own, **given}) + "\\n")
"""
STORES = pytest.mark.parametrize("store", ["bloom", pytest.param("local", marks=pytest.mark.check)])
NOTHING = "no pages are claimed, left, failed or given up, and no crawlers are known"


class Flaky(Page):
    """/flaky answers 503 until the server is well; /slow waits until it is told to go on."""

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        if self.path.startswith("/flaky") and not self.server.is_well:
            self.server.asked[self.path] += 1
            self.answer(503)
            return
        while self.path.startswith("/slow") and not self.server.is_well:
            time.sleep(0.02)
        super().do_GET()


class Project:
    """A project with one spider, and its site."""

    def __init__(
        self, folder: Path, url: str, name: str, server: Any, store: str = "bloom"
    ) -> None:
        self.folder, self.server, self.site = folder, server, f"{server.url}/"
        own = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 1000, "BOT_NAME": "p"}
        if store == "local":
            own |= {"TBLOOM_STORE": "local", "TBLOOM_PATH": str(folder / "seen")}
            del own["REDIS_URL"]
        self.settings: dict[str, Any] = {**SETTINGS, **DONE, **own, "TBLOOM_ERROR_RATE": 1e-9}
        self.settings |= {"SPIDER_MODULES": ["spiders"], "FETCHED": str(folder / "fetched")}
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        self.write()

    def write(self, callback: str = "parse_item", fails: str = "", **settings: Any) -> None:
        code = SPIDER.replace("CALLBACK", callback)
        code = code.replace("FAILS", fails or f"self.parse(response, {callback!r})")
        (self.folder / "spiders.py").write_text(code)
        self.settings |= settings
        lines = [f"{key} = {value!r}" for key, value in self.settings.items()]
        (self.folder / "settings.py").write_text("\n".join(lines))

    def crawl(self, *links: str | dict[str, Any], **arguments: str) -> list[str]:
        """Crawls from these links; the pages whose callbacks have come to their ends, each with the callback."""
        done = self.start(*links, **arguments).result()
        assert done == "finished"
        return self.fetched()

    def fetched(self) -> list[str]:
        file = self.folder / "fetched"
        pages = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        file.unlink(missing_ok=True)
        self.pages = {page["url"].removeprefix(self.site): page for page in pages}
        return sorted(f"{path} {page['callback']}" for path, page in self.pages.items())

    def start(self, *links: str | dict[str, Any], **arguments: str) -> Forked:
        requests = [{"url": each} if isinstance(each, str) else dict(each) for each in links]
        for request in requests:
            request["url"] = f"{self.site}{request['url']}"
        return Forked(_crawl, self.folder, {"LINKS": requests}, arguments)

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return tbloom_in(self.folder, *words, stdin=stdin)

    def said(self, *words: str, stdin: str = "") -> str:
        """What a command prints that succeeds without a remark, less the site."""
        done = self.run(*words, stdin=stdin)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout.replace(self.site, "/").replace(self.site.split("/")[2], "site")

    def queue(self) -> dict[str, int]:
        """The numbers of pages that are not 0."""
        [queue] = json.loads(self.said("queue", "shop", "--json"))["queues"]
        return {state: number for state, number in queue["pages"].items() if number}


def _crawl(folder: Path, settings: dict[str, Any], arguments: dict[str, str]) -> str | None:
    os.chdir(folder)
    sys.dont_write_bytecode = True
    logging.basicConfig(filename=folder / "log", level=logging.DEBUG)
    known = get_project_settings()
    known.setdict({**settings, "LOG_ENABLED": False})
    process = CrawlerProcess(known)
    crawler = process.create_crawler("shop")
    process.crawl(crawler, **arguments)
    process.start()
    return crawler.stats.get_value("finish_reason")


@pytest.fixture
def server() -> Iterator[Any]:
    with served(Flaky, asked=Counter(), is_well=False) as server:
        yield server
        server.is_well = True


@pytest.fixture
def make(tmp_path: Path, url: str, name: str, server: Any) -> Callable[..., Project]:
    return lambda store="bloom": Project(tmp_path, url, name, server, store)


@STORES
def test_pages_of_a_renamed_callback_are_listed_and_retried(
    make: Callable[..., Project], store: str
) -> None:
    """Without a link. sidekiq#4703: the retry of a renamed job loses it."""
    project = make(store)
    project.write("parse_article", fails="raise KeyError")
    links = [{"url": page, "callback": "parse_article"} for page in "abcde"]
    assert [] == project.crawl(*links)
    assert {"failed": 5} == project.queue()
    project.write("parse_item")
    assert [] == project.crawl()
    shown = project.said("failed", "shop")
    assert "failed  unreadable/parse_article  site" in shown
    assert "parse_article" in shown
    assert {f"/{page}" for page in "abcde"} <= {*shown.split()}
    retry = "retry", "shop", "--reason", "unreadable", "--callback"
    words = "--callback: expected the name of a method of the spider 'shop', got 'parse_article'"
    refused(project.run(*retry, "parse_article", "--yes"), words)
    said = project.said(*retry, "parse_item", "--yes")
    assert "Retried 5 pages of 'shop'\n" == said
    assert {"left": 5} == project.queue()
    assert [f"{page} parse_item" for page in "abcde"] == project.crawl()
    assert {} == project.queue()


FAILS = """
        if response.url.endswith("key"):
            json.loads('{"title": 1}')["price"]
        json.loads("x" if response.url.endswith("json") else "1")
        yield {"price": response.url}


class Prices:
    def process_item(self, item):
        raise ValueError(f"no price [EUR]\\nat https://user:hunter2@shop.example/?token=hunter2 of {len(item)}")
"""


@STORES
def test_the_words_of_an_error_and_its_place_are_shown_wherever_its_page_is(
    make: Callable[..., Project], store: str
) -> None:
    """In the log, the lists and the page. The standard library is no place, and a URL's password no word."""
    project = make(store)
    project.write(fails=FAILS, ITEM_PIPELINES={"spiders.Prices": 1}, RETRY_ENABLED=False)
    lines = (project.folder / "spiders.py").read_text().splitlines()
    key, error, parse = (
        1 + next(n for n, line in enumerate(lines) if piece in line)
        for piece in ('["price"]', "raise ValueError", 'json.loads("x"')
    )
    failing = [{"url": page, "callback": "parse_item"} for page in ("key", "item", "json")]
    slow = {"url": "slow", "meta": {"download_timeout": 0.2}}
    assert [] == project.crawl("flaky", *failing, slow)
    expected = {
        "key": ("callback/KeyError", "'price'", f"spiders.py:{key}"),
        "item": (
            "pipeline/Prices",
            "no price (EUR) at https://***@shop.example/ of 1",
            f"spiders.py:{error}",
        ),
        "json": (
            "callback/JSONDecodeError",
            "Expecting value: line 1 column 1 (char 0)",
            f"spiders.py:{parse}",
        ),
        "flaky": ("status/503", "Service Unavailable", ""),
    }
    listed = [
        json.loads(line) for line in project.said("failed", "shop", "--json-lines").split("\n")[:-1]
    ]
    found = {
        line["url"].rpartition("/")[2]: (line["_reason"], line["_message"], line["_where"])
        for line in listed
    }
    reason, message, where = found.pop("slow")
    assert re.fullmatch("download/.*Timeout.*", reason)
    assert "took longer than 0.2 seconds" in message
    assert "" == where
    assert expected == found
    expected["slow"] = reason, message, where
    views = [project.said("failed", "shop")]
    if store != "local":
        html = project.run("watch", "shop", "--once", "-").stdout
        views.append(unescape(re.sub("<[^>]*>", "", html)))
    for view in views:
        assert [] == [word for each in expected.values() for word in each if word not in view]
    log = (project.folder / "log").read_text()
    [warning] = re.findall("5 pages have failed.*", log.replace("[EUR]", "(EUR)"))
    shown = [f"({' at '.join(filter(None, said))})" in warning for _, *said in expected.values()]
    assert 3 == shown.count(True)
    assert all("hunter2" not in view for view in (*views, str(listed), warning))
    assert f"has failed (callback/KeyError): 'price' at spiders.py:{key}" in log


@pytest.mark.check
def test_the_times_of_failed_pages_are_the_server_s(
    make: Callable[..., Project], client: redis.Redis
) -> None:
    """With a crawler three hours behind, and an operator five hours ahead."""
    clock_needed()
    project = make()
    project.write(LINKS=[{"url": f"{project.site}flaky/{n}"} for n in range(3)], LOG_ENABLED=False)
    began, _ = client.time()

    def run(offset: str, *words: str) -> str:
        environment = {**os.environ, **shifted(offset), "PYTHONDONTWRITEBYTECODE": "1"}
        own: dict[str, Any] = {"cwd": project.folder, "env": environment}
        command = [sys.executable, "-m", *words]
        return subprocess.run(command, **own, check=True, stdout=subprocess.PIPE, text=True).stdout

    run("-3h", "scrapy", "crawl", "shop")
    ended, _ = client.time()
    listed = run("+5h", "tbloom", "failed", "shop", "--json-lines", "--since", "1h")
    times = [json.loads(line)["_failed_at"] for line in listed.splitlines()]
    assert 3 == len([at for at in times if began <= at <= ended])
    for words in ["failed", "shop", "--since", "1h"], ["watch", "shop", "--once", "-"]:
        shown = re.sub("<[^>]*>", " ", run("+5h", "tbloom", *words))
        assert "status/503" in shown
        assert not re.search(r"\b\d+ h\b", shown)
    said = run("+5h", "tbloom", "drop", "shop", "--before", "2h", "--yes")
    assert said.startswith("Dropped 0 pages of 'shop': no pages")
    assert {"failed": 3} == project.queue()


def test_each_pushed_line_is_answered_and_again_fetches_it_once(
    make: Callable[..., Project], server: Any, url: str, name: str
) -> None:
    """With the callback with which it was kept. simplecrawler#286: a URL that has failed is a duplicate."""
    project = make()
    failing = {"url": "flaky", "callback": "parse_item", "meta": {"own": (1,)}}
    assert ["done parse_item"] == project.crawl({"url": "done", "callback": "parse_item"}, failing)
    item = scrapy.utils.request.fingerprint(scrapy.Request(f"{project.site}claimed"))
    given = "\n".join(
        f"{project.site}{page}" for page in ("done", "flaky", "claimed", "new", "new")
    )
    with TimeBloom.from_url(url, name, capacity=1000, error_rate=1e-9) as other:
        assert Claim.NEW is other.claim(item, note=Note("", "shop"))
        assert project.said("push", "shop", stdin=given) == (
            "5 lines: 1 new; not new: 1 done already, 1 failed, 1 claimed by a crawler, 1 repeated "
            "(--again fetches them now)\n"
        )
        assert {"left": 1, "failed": 1} == project.queue()
        counts = json.loads(project.said("push", "shop", "--again", "--json", stdin=given))
        expected = {"done": 1, "left": 1, "failed": 1, "claimed": 1, "repeated": 1}
        assert {"lines": 5, **expected} == {kind: n for kind, n in counts.items() if n}
        assert {"left": 3} == project.queue()
    server.is_well = True
    assert ["done parse", "flaky parse_item", "new parse"] == project.crawl()
    assert "(1,)" == project.pages["flaky"]["meta"]
    said = project.said("push", "shop", "--again", stdin=f"{project.site}done\n{project.site}b")
    assert "2 lines: 1 new; fetched again: 1 done\n" == said
    assert ["b parse", "done parse"] == project.crawl()


def test_a_line_with_a_callback_takes_the_place_of_the_kept_request(
    make: Callable[..., Project], server: Any
) -> None:
    project = make()
    project.crawl({"url": "flaky", "callback": "parse_item", "meta": {"own": 1}})
    line = {"url": f"{project.site}flaky", "callback": "parse", "meta": {"own": 2}}
    said = project.said("push", "shop", "--again", stdin=json.dumps(line))
    assert "1 line: 0 new; fetched again: 1 failed\n" == said
    server.is_well = True
    assert ["flaky parse"] == project.crawl()
    assert "2" == project.pages["flaky"]["meta"]


def test_a_page_of_a_dead_crawler_keeps_its_callback_when_it_is_pushed(
    make: Callable[..., Project], server: Any
) -> None:
    project = make()
    project.write(TBLOOM_SESSION_TTL=1)
    crawl = project.start({"url": "slow", "callback": "parse_item"})
    while {"claimed": 1} != project.queue():
        time.sleep(0.2)
    crawl.kill()
    while {"orphaned": 1} != project.queue():
        time.sleep(0.2)
    said = project.said("push", "shop", stdin=f"{project.site}slow")
    assert "1 line: 0 new; not new: 1 left already (--again fetches them now)\n" == said
    server.is_well = True
    assert ["slow parse_item"] == project.crawl()


def test_a_killed_crawler_is_shown_dead_with_its_pages_until_they_are_taken(
    make: Callable[..., Project], server: Any
) -> None:
    """flower#1422: offline workers for ever."""
    project = make()
    project.write(TBLOOM_SESSION_TTL=1)
    pages = [f"slow/{n}" for n in range(21)]
    crawl = project.start(*pages)
    while {"claimed": 21} != project.queue():
        time.sleep(0.2)
    while "works" not in project.said("queue", "shop"):  # a busy machine may keep it silent
        time.sleep(0.2)
    crawl.kill()
    while "  dead  " not in (shown := project.said("queue", "shop")):
        time.sleep(0.2)
    assert "of dead crawlers      21  left, as soon as a crawler asks for pages" in shown
    [row] = [line for line in shown.splitlines() if "  dead  " in line]
    assert "21" in row.split()
    server.is_well = True
    assert 21 == len(project.crawl())
    assert {} == project.queue()
    [row] = [line for line in project.said("queue", "shop").splitlines() if "  dead  " in line]
    assert "21" not in row.split()
    assert "1 ended (--all shows them)" in project.said("queue", "shop")
    assert "ended (finished)" in project.said("queue", "shop", "--all")


def test_listed_pages_are_pushed_as_they_were(make: Callable[..., Project], server: Any) -> None:
    """With bytes, headers, tuples and the class of a form."""
    project = make()
    project.crawl("a")
    form = {"url": f"{project.site}flaky/form", "callback": "parse_item", "method": "POST"}
    form |= {"_class": "scrapy.http.request.form:FormRequest", "dont_filter": True, "flags": ["f"]}
    form |= {
        "body": {"!bytes": "\xff\x00"},
        "headers": {"!dict": [[{"!bytes": "X"}, [{"!bytes": "\xfe"}]]]},
    }
    form |= {"meta": {"own": {"!tuple": [1, {"!set": [2]}]}}, "cookies": {"a": "b"}, "priority": 3}
    lines = [form, {"url": f"{project.site}flaky/\xe9"}]
    given = "\n".join(map(json.dumps, lines))
    assert "2 lines: 2 new\n" == project.said("push", "shop", stdin=given)
    project.crawl()
    listed = project.run("failed", "shop", "--json-lines").stdout
    about = {"_state": "failed", "_reason": "status/503", "_tries": 1}
    for line in map(json.loads, listed.splitlines()):
        assert {**line, **about} == line
        assert abs(time.time() - line["_failed_at"]) < 600
    assert "Dropped 2 pages of 'shop'\n" == project.said("drop", "shop", "--all", "--yes")
    assert {} == project.queue()
    assert "2 lines: 2 new\n" == project.said("push", "shop", stdin=listed)
    said = project.said("push", "shop", "--again", stdin=listed)
    assert "2 lines: 0 new; fetched again: 2 left\n" == said
    server.is_well = True
    assert ["flaky/%C3%A9 parse", "flaky/form parse_item"] == project.crawl()
    page = project.pages["flaky/form"]
    expected = {"kind": "FormRequest", "method": "POST", "meta": "(1, {2})"}
    expected |= {"body": repr(b"\xff\x00"), "header": repr(b"\xfe")}
    assert {**page, **expected} == page


RULES = """
import json
from pathlib import Path

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Shop(CrawlSpider):
    name = "shop"
    rules = [Rule(LinkExtractor(allow="a$"), callback="OTHER"), Rule(LinkExtractor(allow="b$"), callback="CALLBACK")]

    async def start(self):
        for request in self.settings["LINKS"]:
            yield scrapy.Request(request["url"], dont_filter=True)

    def OTHER(self, response):
        self.note(response, "OTHER")

    def CALLBACK(self, response):
        FAILS
        self.note(response, "CALLBACK")

    def note(self, response, callback):
        with Path(self.settings["FETCHED"]).open("a") as file:
            file.write(json.dumps({"url": response.url, "callback": callback}) + "\\n")
"""


@pytest.mark.parametrize("with_project", [True, False])
def test_the_callback_of_a_rule_is_replaced(
    make: Callable[..., Project], tmp_path: Path, url: str, name: str, *, with_project: bool
) -> None:
    """Though the page was kept with the spider's own callback, which finds the rule by its number."""
    project = make()
    code = RULES.replace("OTHER", "parse_other")
    failing = code.replace("CALLBACK", "parse_old").replace("FAILS", "raise KeyError")
    (tmp_path / "spiders.py").write_text(failing)
    assert ["a parse_other"] == project.crawl("")
    later = code.replace("CALLBACK", "parse_new").replace("FAILS", "pass")
    first, _, rest = later.partition("rules = [")
    (tmp_path / "spiders.py").write_text(
        f"{first}rules = [Rule(LinkExtractor(allow='c$'), callback='parse_other'), {rest}"
    )
    words = "retry", "shop", "--all", "--callback", "parse_new", "--yes"
    if with_project:
        assert "Retried 1 page of 'shop'\n" == project.said(*words)
    else:
        done = tbloom(*words, "--url", url, "-s", f"TBLOOM_KEY={name}")
        assert (0, "Retried 1 page of 'shop'\n") == (done.returncode, done.stdout)
    assert ["b parse_new"] == project.crawl()


def test_a_crawl_has_the_lock_on_a_filter_without_a_server(
    make: Callable[..., Project], server: Any
) -> None:
    project = make("local")
    for command in (["queue"], ["failed"], ["retry", "--all"], ["drop", "--all"]):
        words = "TBLOOM_PATH: expected a file that a crawl has made, got "
        refused(project.run(command[0], "shop", *command[1:]), words)
    crawl = project.start("slow")
    while not server.asked["/slow"] and not (project.folder / "seen.claims").exists():
        time.sleep(0.02)
    refused(
        project.run("queue", "shop"),
        "is in use by another process",
        "wait for the end of that crawl",
    )
    server.is_well = True
    crawl.result()
    assert f"shop at 'shop:tbloom', {project.folder / 'seen'}\n\n{NOTHING}\n".replace(
        "shop:tbloom", project.settings["TBLOOM_KEY"]
    ) == project.said("queue", "shop")
    words = "-s", "TBLOOM_STORE=local", "-s", f"TBLOOM_PATH={project.folder / 'seen'}"
    sizes = "-s", "TBLOOM_CAPACITY=1000", "-s", "TBLOOM_ERROR_RATE=1e-9"
    assert NOTHING in tbloom("queue", "shop", *words, *sizes).stdout


# Without a project


class Filter:
    """A filter with pages that crawlers have kept."""

    def __init__(self, seen: TimeBloom) -> None:
        self.seen = seen

    def keep(
        self, queue: str, *urls: str, reason: str = "", failures: int = 0, at: float = 0
    ) -> None:
        seen = self.seen
        seen.claim_many(urls, notes=[self.note(url, queue) for url in urls])
        if reason:
            its = given_up_queue_of(queue) if failures > 2 else failed_queue_of(queue)
            history = History(its, failures=failures, reason=reason, failed_at=round(at))
            seen.note_history(dict.fromkeys(urls, history))
        seen.leave_many(urls)

    @staticmethod
    def note(url: str, queue: str) -> Note:
        return Note(f"{'0' * 40}\n{json.dumps({'url': url, 'callback': 'parse_item'})}", queue)

    def tell(self, queue: str, **more: Any) -> None:
        about: dict[str, Any] = {"queue": queue, "project": "p", "host": "crawl-01", "pid": 7}
        self.seen.take(0, queue, idle=False)
        self.seen._claims.record = lambda _session: Record(**{**about, "ttl": 60, **more})
        self.seen._send_heartbeat()


@pytest.fixture
def kept(client: redis.Redis, name: str) -> Iterator[Filter]:
    with TimeBloom(client, f"{name}:tbloom", capacity=1000) as seen:
        yield Filter(seen)


@pytest.fixture
def said(url: str, name: str) -> Callable[..., str]:
    """What a command about this spider prints."""

    def said(command: str, *words: str, spider: str = name) -> str:
        done = tbloom(command, spider, *words, "--url", url)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    return said


def test_a_fleet_is_found_by_its_filter_and_its_server(
    kept: Filter, said: Any, name: str, url: str, tmp_path: Path
) -> None:
    """By ``--url``, the environment or ``-s``; by the spider's name or the filter's, with a prefix, or by a key of its own."""
    kept.keep(name, "http://a/")
    place = f"'{name}:tbloom', {url.partition('//')[2]}"
    assert said("queue").startswith(f"{name} at {place}\n\npages  number\nleft        1  for")
    assert said("queue") == said("queue", spider=f"{name}:tbloom")
    assert said("queue") == tbloom("queue", name, TBLOOM_URL=url).stdout
    assert said("queue") == tbloom("queue", name, "-s", f"REDIS_URL={url}").stdout
    port = url.split(":")[2].partition("/")[0]
    own = (
        "-s",
        f"REDIS_PORT={port}",
        "-s",
        "REDIS_HOST=127.0.0.1",
        "-s",
        "TBLOOM_KEY=%(spider)s:tbloom",
    )
    assert said("queue") == tbloom("queue", name, *own).stdout
    expected = f"no filter 'none:tbloom' or 'none' on {url} ('tbloom list' shows the filters)"
    refused(tbloom("queue", "none", "--url", url), expected)
    refused(tbloom("queue", name, "--url", url, "-s", "TBLOOM_KEYS=a"), "did you mean TBLOOM_KEY?")
    refused(tbloom("queue", name, "-s", "a"), "'-s': expected NAME=VALUE, got 'a'")
    refused(tbloom("queue", name, "--url", "redis://127.0.0.1:1/0"), "127.0.0.1:1")
    refused(
        tbloom_in(tmp_path, "push", name, "--url", url), "expected the folder of a Scrapy project"
    )
    with TimeBloom.from_url(url, "news", prefix=f"{name}:") as seen:
        Filter(seen).keep("news", "http://a/")
        shown = said("queue", "--prefix", f"{name}:", spider="news")
        assert shown.startswith("news at 'news', ")
        assert "left        1" in shown


def test_settings_and_a_server_go_over_those_of_the_project(
    make: Callable[..., Project], kept: Filter, url: str, name: str
) -> None:
    """And a filter is found there that is of no spider of the project."""
    project = make()
    project.write(REDIS_URL="redis://127.0.0.1:1/0", REDIS_DECODE_RESPONSES=True)
    kept.keep("shop", "http://a/1", reason="status/503", failures=1)
    key = "-s", f"TBLOOM_KEY={name}:tbloom", "-s", "TBLOOM_ERROR_RATE=1e-4", "--url", url
    assert f"shop at '{name}:tbloom', " in project.said("queue", "shop", *key)
    assert "status/503" in project.said("failed", "shop", *key)
    kept.tell(name)
    kept.keep(name, "http://a/2")
    assert f"{name} at '{name}:tbloom', " in project.said("queue", name, "--url", url)
    refused(project.run("queue", name), "127.0.0.1:1")
    error = "SPIDER: expected the name of a spider of this project (shop)"
    refused(project.run("push", name, "--url", url), error)
    refused(
        project.run("queue", "shop", "-s", "TBLOOM_RETRY_FOR=0"),
        "REDIS_URL is redis://127.0.0.1:1/0",
    )


def test_a_name_is_never_that_of_spiders_of_several_projects(
    kept: Filter, said: Any, name: str, url: str
) -> None:
    """Outside a project: that of its own name, or of the one project that has it."""
    for project in ("one", "two"):
        kept.tell(f"{project}:{name}")
        kept.keep(f"{project}:{name}", f"http://u:secret@{project}/", reason="x", failures=1)
    error = f"one:{name}, two:{name}): name one, with -s TBLOOM_KEY={name}:tbloom"
    refused(tbloom("drop", name, "--all", "--yes", "--url", url), error)
    own = "--url", url, "-s", f"TBLOOM_KEY={name}:tbloom"
    shown = tbloom("failed", f"two:{name}", *own).stdout
    assert "http://two/" in shown
    assert "secret" not in shown
    kept.tell(name)
    kept.keep(name, "http://a/own", reason="x", failures=1)
    assert f"Dropped 1 page of '{name}'\n" == said("drop", "--all", "--yes")
    refused(
        tbloom("queue", "-a", "country=de", "--url", url), "-a and --no-arguments need a SPIDER"
    )


def test_several_queues_are_shown_and_one_is_changed(kept: Filter, said: Any, name: str) -> None:
    others = (
        f"{name}\n[('country', 'de')]",
        f"{name}\n[('n', 1), ('when', datetime.date(2026, 1, 1))]",
    )
    kept.tell("other")
    kept.keep("other", "http://a/other")
    for queue in others:
        kept.tell(queue)
        kept.keep(queue, f"http://a/{len(queue)}", reason="status/503", failures=1)
    shown = said("queue")
    assert shown.startswith(f"{name} at ")
    assert "\n-a country=de " in shown
    assert "\n[('n', 1), ('when', datetime.date(2026, 1, 1))] " in shown
    assert "other" not in shown
    assert "\nother " in said("queue", spider=f"{name}:tbloom")
    words = "retry", "-a", "country=de", "--all", "--yes"
    assert f"Retried 1 page of '{name} -a country=de'\n" == said(*words)
    kept.tell(name)
    kept.keep(name, "http://a/plain", reason="status/503", failures=1)
    words = "retry", "--no-arguments", "--all", "--yes"
    assert f"Retried 1 page of '{name} --no-arguments'\n" == said(*words)
    dropped = said("drop", "--left", "--all", "--yes", spider=f"{name}:tbloom")
    assert dropped.startswith(f"Dropped 3 pages of '{name}:tbloom': 1 of ")
    assert {"other", name, f"{name} -a country=de"} == {
        *re.findall(r"1 of (.*?)(?:, |\n)", dropped)
    }


def test_crawlers_are_shown_as_they_have_told(kept: Filter, said: Any, name: str) -> None:
    kept.tell(name, up=7200, claimed=4120, done=25110, per_minute=218, taken=840, given=9120)
    shown = said("queue")
    assert [
        "crawler",
        "is",
        "started",
        "beat",
        "claimed",
        "done",
        "a",
        "minute",
        "taken",
        "given",
    ] == (shown.splitlines()[-2].split())
    row = shown.splitlines()[-1].split()
    assert ["crawl-01:7", "works", "2", "h"] == row[:4]
    assert ["4,120", "25,110", "218", "840", "9,120"] == row[6:]
    kept.tell(
        name, failed={"status/503": 48, "callback/KeyError": 13, "a": 2, "b": 1}, ended="shutdown"
    )
    shown = said("queue", "--all")
    assert "ended (shutdown)" in shown
    assert "64  status/503 48, callback/KeyError 13, a 2" in shown
    assert "pages" not in shown
    assert (
        "0 claimed or left, 0 done a minute; 25,110 done in the whole filter\n\n1 ended ("
        in said("queue")
    )
    [crawler] = json.loads(said("queue", "--json"))["queues"][0]["crawlers"]
    assert ("crawl-01", "ended", 48) == (
        crawler["host"],
        crawler["state"],
        crawler["failed"]["status/503"],
    )


def test_failed_pages_are_grouped_and_the_newest_are_shown(
    kept: Filter, said: Any, name: str, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    now = time.time()
    for n in range(15):
        kept.keep(name, f"http://a.example/{n}", reason="status/503", failures=1, at=now - 60 * n)
    kept.keep(
        name, "http://b.example/", reason="callback/KeyError", failures=3, at=now - 86_400 * 3
    )
    kept.keep(name, "http://c.example/left")
    shown = said("failed")
    rows = [line.split() for line in shown.splitlines() if ".example" in line]
    assert ["failed", "status/503", "a.example", "15"] == rows[0][:4]
    assert [
        "given",
        "up",
        "callback/KeyError",
        "b.example",
        "1",
        "3",
        "d",
        "3",
        "d",
        "parse_item",
    ] == rows[1]
    assert [f"http://a.example/{n}" for n in range(10)] == [row[-1] for row in rows[2:]]
    listed = said("failed", "--json-lines").splitlines()
    assert 16 == len(listed)
    assert ["http://c.example/left"] == [
        json.loads(line)["url"] for line in said("failed", "--left", "--json-lines").splitlines()
    ]

    def found(*words: str) -> int:
        return len(said("failed", "--json-lines", *words).splitlines())

    assert (15, 1) == (found("--reason", "status"), found("--given-up"))
    assert (11, 1) == (found("--since", "10.5min"), found("--before", "2d"))
    assert (2, 1) == (found("--match", "*/1?", "--since", "11.5min"), found("--host", "b.*"))
    none = "no pages are given up, or match"
    assert f"{none}\n" in said("failed", "--given-up", "--host", "c")
    assert f"{none}; --match is a whole URL: '*b.ex*' matches a part\n" in said(
        *("failed", "--given-up", "--match", "b.ex")
    )
    monkeypatch.setattr(commands, "_MOST_READ", 5)
    done = tbloom("failed", name, "--url", url)
    assert "there are more than 5 failed pages; --json-lines has all\n" == done.stderr
    refused(
        tbloom("failed", name, "--since", "2"),
        "expected a time such as 45s, 30min, 2h or 30d, got '2'",
    )


def test_without_a_filter_or_a_yes_nothing_is_changed(
    kept: Filter, said: Any, name: str, url: str
) -> None:
    """oban#1104, django-rq#179: all that match, after a question."""
    kept.keep(name, "http://a/1", "http://a/2", reason="status/503", failures=1)
    for command in "retry", "drop":
        words = "expected a choice, such as --reason status/503 or --host, or --all"
        refused(tbloom(command, name, "--yes", "--url", url), words)
        refused(tbloom(command, name, "--all", "--url", url), "--yes: needed where standard input")
        none = "no pages are failed or given up, or match"
        assert said(command, "--host", "none").endswith(f"0 pages of '{name}': {none}\n")
    question = f"Drop 2 pages of '{name}', for example http://a/"
    for answer in "n\n", "\n":
        done = tbloom_asking(answer, "drop", name, "--all", "--url", url)
        assert (1, "") == (done.returncode, done.stdout)
        assert done.stderr.startswith(question)
        assert done.stderr.endswith("? [y/N]: tbloom: nothing is dropped\n")
    assert 2 == len(said("failed", "--json-lines").splitlines())
    done = tbloom_asking("y\n", "drop", name, "--reason", "status", "--url", url)
    assert (0, f"Dropped 2 pages of '{name}'\n") == (done.returncode, done.stdout)
    assert [False, False] == kept.seen.contains_many(["http://a/1", "http://a/2"])
    assert Claim.NEW is kept.seen.claim("http://a/1", note=kept.note("http://a/1", name))
    kept.seen.leave_many(["http://a/1"])
    assert f"Dropped 1 page of '{name}'\n" == said("drop", "--left", "--all", "--yes")


def test_text_of_strangers_does_no_harm(kept: Filter, said: Any, name: str) -> None:
    """Neither in a terminal nor to the command."""
    kept.keep(name, "http://a/\x1b[2J\n", reason="status/\x1b[2J", failures=1)
    kept.tell(name, host="\x1b[2J", failed={"\x1b": 1})
    kept.tell(f"{name}\n[('\x1b[2J', '\x1b')]")
    kept.tell(f"{name}\n{'(' * 5000}")
    for note in (
        '{"a": 1, "_failed": [x]}',
        "no JSON",
        '{"url": ' + "[" * 9_000,
        '[1, "_failed": ["", 1]}',
    ):
        kept.seen.push(note, Note(f"{'0' * 40}\n{note}", failed_queue_of(name)))
    for command in (
        ["queue"],
        ["failed"],
        ["retry", "--all", "--yes"],
        ["drop", "--left", "--all", "--yes"],
    ):
        assert "\x1b" not in said(*command)


def test_a_link_that_comes_first_is_reported(
    kept: Filter, said: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(name, "http://a/1", "http://a/2", reason="status/503", failures=1)
    retry = KeptPages.retry

    def late(fleet: Any, pages: Any, new_note: Any) -> Any:
        known = [*pages]
        assert Claim.NEW is kept.seen.claim("http://a/1")
        return retry(fleet, known, new_note)

    monkeypatch.setattr(KeptPages, "retry", late)
    expected = "; 1 were no longer there: a link, or a crawl, came first\n"
    assert f"Retried 1 page of '{name}'{expected}" == said("retry", "--all", "--yes")


def test_a_push_into_a_full_server_says_how_far_it_came(
    make: Callable[..., Project], url: str
) -> None:
    project = make()
    (project.folder / "urls").write_text("\n".join(f"{project.site}{n}" for n in range(30_000)))
    assert 0 == project.run("push", "shop", stdin=f"{project.site}first").returncode
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 2_000_000)
        try:
            done = project.run("push", "shop", "urls")
        finally:
            client.config_set("maxmemory", 0)
        left = client.zcard(f"{{{project.settings['TBLOOM_KEY']}}}:left")
    said = refused(done, "memory is full", "before that: ")
    assert f"{(left - 1) // 1000 * 1000:,} lines: {(left - 1) // 1000 * 1000:,} new" in said


#: Commands that take the name of a filter or a spider, in the words before and after it.
_NAMING = (
    *(("info",), ("clear", "--yes"), ("check",), ("queue",), ("failed",)),
    *(("retry", "--all", "--yes"), ("drop", "--all", "--yes")),
)


def test_commands_about_a_filter_know_the_project(
    make: Callable[..., Project], kept: Filter, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server, and its spiders; a name that one takes, the others take. In place of a wrong one, a near one is named."""
    project = make()
    project.crawl("a")
    monkeypatch.setenv("TBLOOM_URL", "redis://127.0.0.1:1/0")
    kept.keep("other", "http://a/")
    assert f"{name}: 7 slices" in project.said("info", "shop")
    assert f"{name}: 7 slices" in project.said("info", "shop", "--url", url)
    assert f"{name}:tbloom" in project.said("list")
    assert f"tbloom queue {name} " in project.said("queue")
    for verb, *words in _NAMING:
        kept.keep("other", f"http://{verb}/")
        assert project.run(verb, "shop", *words).returncode == (verb == "check")
        refused(project.run(verb, "shopp", *words), "(did you mean 'shop'?)")
        done = tbloom(verb, f"{name}:tblom", *words, "--url", url)
        refused(done, f"(did you mean '{name}:tbloom'?)")
        assert tbloom(verb, f"{name}:tbloom", *words, "--url", url).returncode == (verb == "check")
        if verb == "clear":
            project.crawl("a")
    refused(project.run("push", "shp"), "a spider of this project (shop)")
    local = make("local")
    refused(local.run("info", "shop"), "TBLOOM_STORE", "tbloom queue shop")
    refused(local.run("queue", "shp"), "shop")
    refused(local.run("queue"), "expected SPIDER")


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_missing_password_is_named(
    make: Callable[..., Project], own: redis.Redis, own_url: str, *, is_inside: bool
) -> None:
    """In our words: Redis' own are of its protocol."""
    own.config_set("requirepass", "hunter2")
    project = make()
    project.write(REDIS_URL=own_url)
    words = "queue", "shop", *(() if is_inside else ("--url", own_url))
    error = refused(project.run(*words) if is_inside else tbloom(*words), "wants a password")
    assert "Authentication" not in error
    assert "NOAUTH" not in error
