"""What the log says of the filter at the start, and Scrapy's commands that try a spider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter

from tbloom import ConfigMismatch, TimeBloom
from tbloom.engine.urls import address_of
from tbloom.scrapy import ScrapyRedisFingerprinter
from tbloom.scrapy.options import error_line, make_client, make_store, server_settings
from tbloom.scrapy.summary import described, summarize
from tests.helpers.contents import keys_of
from tests.helpers.crawl import Part
from tests.helpers.fingerprinters import ByCallback, RefusesLater, WithoutSession
from tests.helpers.folders import Folder
from tests.helpers.schedulers import ADDON, DONE, STORES, UNREACHABLE

COUNTED = {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}
EXACT = {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None}
OTHER = {"REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter"}
SCRAPYS = "scrapy.utils.request.RequestFingerprinter"


def said(result: dict[str, Any], level: str) -> list[str]:
    """What the log has of tbloom, at one level."""
    start = f"{level}:tbloom.scrapy."
    lines = [line for line in result["log"].splitlines() if line.startswith(start)]
    return [line.split(":", 2)[2] for line in lines]


class Opens(Part):
    """Counts that it is opened and closed."""

    def open_spider(self) -> None:
        self.crawler.stats.inc_value("opened")

    def close_spider(self) -> None:
        self.crawler.stats.inc_value("closed")

    def process_item(self, item: Any) -> Any:
        return item


@pytest.mark.parametrize(
    "settings",
    [
        {"REDIS_URL": UNREACHABLE},
        {"TBLOOM_ERROR_RATE": 2},
        # It is made before the feed exporter.
        {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": -1}, "TBLOOM_COUNT_MAX_MEMBERS": "many"},
    ],
    ids=["Redis", "filter", "extension"],
)
def test_a_crawl_that_can_not_begin_leaves_its_feeds_files(
    crawl: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """browsertrix-crawler#1075: Redis is away when a crawl begins. The last crawl's export is what its user has. Pipelines are opened."""
    feed = tmp_path / "books.jsonl"
    feed.write_text("yesterday")
    more = {"FEEDS": {str(feed): {"format": "jsonlines", "overwrite": True}}}
    own = {**ADDON, **more, "ITEM_PIPELINES": {Opens: 1}, "TBLOOM_RETRY_FOR": 0}
    end = crawl("ten_and_hundred", {**own, **settings})
    assert ("tbloom_error", "yesterday") == (end["finish_reason"], feed.read_text())
    assert (1, 1) == (end["stats"]["opened"], end["stats"]["closed"])


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(ADDON, "7 daily slices"), ({**ADDON, **STORES["exact"]}, "exact")],
    ids=["bloom", "exact"],
)
def test_the_log_names_the_filter_and_a_wrong_fingerprinter(
    crawl: Any, name: str, settings: dict[str, Any], kind: str
) -> None:
    """It is asked how large it is while the first pages are fetched, which it may count."""
    line = f"filter '{name}': {kind}, [{{}}] items.* MB, {{}}, at 127.0.0.1:"
    first = crawl("pages", settings, ["a", "b"])
    # Beside it comes the line of the session, before or after it.
    assert re.search(line.format("012", "(new|existing)"), "\n".join(said(first, "INFO")))
    assert [] == said(first, "WARNING")
    other = crawl("pages", {**settings, **OTHER}, ["c"])
    assert re.search(line.format("23", "existing"), "\n".join(said(other, "INFO")))
    [warning] = said(other, "WARNING")
    expected = "REQUEST_FINGERPRINTER_CLASS is tbloom.scrapy.ScrapyRedis"
    assert expected in warning
    assert f"filled with other fingerprints, by {SCRAPYS}: to this crawl, every page" in warning


@pytest.mark.parametrize("mark", ["scheduled", "done"])
def test_the_log_names_our_classes_and_the_session(
    crawl: Any, client: redis.Redis, name: str, mark: str
) -> None:
    """Classes as settings do, and what the add-on has wrapped: the downloader only with "done". The session as ``tbloom queue --json``."""
    settings = {**ADDON, "TBLOOM_MARK": mark, **COUNTED}
    result = crawl("pages", settings, ["a"])
    lines = [line for line in result["log"].splitlines() if not re.match(r"\w+:tbloom\.", line)]
    named = re.findall(r"\btbloom\.[\w.]+(?:\[[\w.]+\])?", "\n".join(lines))
    names = {
        *("tbloom.scrapy.Addon", "tbloom.scrapy.DistinctCounts", "tbloom.scrapy.DupeFilter"),
        "tbloom.scrapy.FilteringScheduler[scrapy.core.scheduler.Scheduler]",
        "tbloom.scrapy.PageSpiderMiddleware",
    }
    if mark == "done":
        names.add("tbloom.scrapy.PageDownloader[scrapy.core.downloader.Downloader]")
        log = "\n".join(said(result, "INFO"))
        [session] = re.findall(r"^this crawler is session (\w+)$", log, re.MULTILINE)
        config = TimeBloom.open(client, name).config
        assert session in client.hgetall(config.keys.crawlers())
    assert names == {*named}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"TBLOOM_GRANULARITY": "15min", "TBLOOM_SHARDS": 3},
            "7 900s slices, 1 items (1 in the newest)",
        ),
        ({"TBLOOM_GRANULARITY": "None"}, "no window, 1 items (1 in the newest), 0."),
        ({"TBLOOM_STORE": "local"}, ", 0.03 MB, existing, at memory"),
        ({"TBLOOM_STORE": "local", "TBLOOM_PATH": "PATH/%(spider)s"}, "MB, existing, at PATH/shop"),
    ],
)
def test_the_line_of_a_filter_of_every_kind(
    url: str, name: str, tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    own = {key: str(v).replace("PATH", str(tmp_path)) for key, v in settings.items()}
    crawls = Settings({"REDIS_URL": url, "TBLOOM_KEY": name, **own})
    with make_store(crawls, "shop") as seen:
        seen.add("a")
        text, _, warnings = summarize(seen, described(RequestFingerprinter()))
    assert text.startswith(f"filter {name!r}: ")
    assert expected.replace("PATH", str(tmp_path)) in text
    assert [] == warnings


@pytest.mark.parametrize(
    ("settings", "address", "named"),
    [
        ({"REDIS_URL": "rediss://u:secret@h:7/2"}, "h:7/2", "REDIS_URL is rediss://***@h:7/2"),
        ({"REDIS_URL": "redis://:secret@h:7/2\n"}, "h:7/2", "REDIS_URL is redis://***@h:7/2"),
        ({"REDIS_PARAMS": {"url": "redis://h:7/2\n"}}, "h:7/2", "REDIS_PARAMS['url'] is redis://h:7/2"),
        ({"REDIS_URL": "unix://:secret@/r.sock?db=3"}, "/r.sock/3", "REDIS_URL is unix://***@/r.sock"),
        ({"REDIS_HOST": "h", "REDIS_DB": 1, "REDIS_PARAMS": {"password": "secret"}}, "h:6379/1", "REDIS_HOST is h"),
        ({"REDIS_PARAMS": {"host": "h", "password": "secret"}}, "h:6379/0", "REDIS_PARAMS['host'] is h"),
    ],
)  # fmt: skip
def test_a_server_is_named_without_its_password(
    settings: dict[str, Any], address: str, named: str
) -> None:
    """By its address at the start, and by the settings in errors."""
    client, _ = make_client(Settings(settings))
    assert (address, named) == (address_of(client), server_settings(Settings(settings)))


@pytest.mark.parametrize(
    ("stored", "ours", "expected"),
    [
        ({"slices": 3}, {}, "TBLOOM_SLICES is 7, the stored filter has 3: another TBLOOM_KEY, or TBLOOM_SLICES = 3"),
        ({"prefix": "app1:"}, {"TBLOOM_KEY_PREFIX": "app1:", "TBLOOM_SLICES": 3}, "TBLOOM_SLICES is 3, the stored filter has 7: another TBLOOM_KEY, or TBLOOM_SLICES = 7"),
        ({}, {"TBLOOM_CAPACITY": 5, "TBLOOM_SLICES": 3}, "TBLOOM_CAPACITY is 5, TBLOOM_SLICES is 3, the stored filter has None, 7: another TBLOOM_KEY, or TBLOOM_CAPACITY = None, TBLOOM_SLICES = 7"),
        ({}, {"BLOOMFILTER_BIT": 20}, "BLOOMFILTER_BIT is 1048704, BLOOMFILTER_HASH_NUMBER is 6, the stored filter has"),
        ({}, EXACT, "TBLOOM_KEY: 'NAME' is the name of a filter with slices: take another name, or TBLOOM_STORE = 'bloom'"),
    ],
)  # fmt: skip
def test_a_mismatch_names_the_settings_and_the_remedy(
    url: str, name: str, stored: dict[str, Any], ours: dict[str, Any], expected: str
) -> None:
    with TimeBloom.from_url(url, name, **stored) as seen:
        seen.add("a")
    settings = Settings({"REDIS_URL": url, "TBLOOM_KEY": name})
    settings.setdict({key: value for key, value in ours.items() if value is not None})
    with pytest.raises(ConfigMismatch) as error:
        make_store(settings, "shop").contains("a")
    line = error_line(error.value, settings)
    assert line.startswith(expected.replace("NAME", name).replace("SERVER", url))


def finds(seen: Any, fingerprinter: Any) -> str:
    """The warning about other fingerprints."""
    return "".join(summarize(seen, described(fingerprinter))[-1])


def test_a_warning_says_which_fingerprints_are_others(url: str, name: str) -> None:
    """Whatever their class, which may make others: by a setting, an add-on below it, or an update."""
    seen = make_store(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop")
    seen.add("a")
    assert "" == finds(seen, RequestFingerprinter())
    # Scrapy's fingerprints, from now on by this class:
    assert "" == finds(seen, ByCallback(plain="parse"))
    every, some = (
        "every page is new",
        "requests such as <GET https://example.com/> to parse are new",
    )
    assert f"by tests.helpers.fingerprinters.ByCallback: to this crawl, {every}" in finds(
        seen, ScrapyRedisFingerprinter()
    )
    assert f"by the same class: to this crawl, {some}" in finds(seen, ByCallback())
    assert "such as <GET https://example.com/?b=2&a=1&utm_source" in finds(seen, WithoutSession())
    assert "" == finds(seen, RefusesLater())  # its own requests may be right
    assert "" == finds(seen, RequestFingerprinter())
    seen.close()


def test_the_fingerprinter_stays_with_what_is_in_the_filter(
    url: str, client: redis.Redis, name: str
) -> None:
    """Gone after clear."""
    seen = make_store(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop")
    scrapys, other = RequestFingerprinter(), ScrapyRedisFingerprinter()
    assert "" == finds(seen, other)
    assert "" == finds(seen, scrapys)  # what was known is of an earlier filter
    assert client.pttl(f"{{{name}}}:fingerprinter") > 0  # as all keys of a filter with a window
    seen.add("a")
    seen = make_store(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop")
    assert "" == finds(seen, scrapys)
    assert f"other fingerprints, by {SCRAPYS}" in finds(seen, other)
    seen.clear()
    assert [] == keys_of(client, f"{{{name}}}")


# Scrapy's commands

SPIDER = """
import scrapy

class Files(scrapy.Spider):
    name = "files"

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""
SHELL = "fetch(scrapy.Request(response.url)) or fetch(scrapy.Request(response.url)) or response.url"


@pytest.mark.parametrize(
    ("command", "options", "pages"),
    [
        ("parse", ["--spider=files", "--depth=3", "-s", "SCHEDULER=scrapy_redis.scheduler.Scheduler"], 2),
        pytest.param("shell", ["-c", SHELL], 3, marks=pytest.mark.check),
        pytest.param("fetch", ["--spider=files"], 1, marks=pytest.mark.check),
    ],
    ids=["parse", "shell", "fetch"],
)  # fmt: skip
def test_scrapys_commands_that_try_a_spider_leave_redis_alone(
    tmp_path: Path, client: redis.Redis, name: str, *, command: str, options: list[str], pages: int
) -> None:
    """``parse`` filters by itself, ``shell`` nothing, as without tbloom. The site has two pages that link to each other."""
    queue = f"{{{name}}}:requests"
    client.zadd(queue, {"of a crawler": 1})
    own = {"TBLOOM_COUNT_KEY": name, "TBLOOM_KEY": name, "SCHEDULER_QUEUE_KEY": queue}
    port = client.connection_pool.connection_kwargs["port"]
    Folder(tmp_path, SPIDER, **DONE, **COUNTED, **own, REDIS_PORT=port, TELNETCONSOLE_ENABLED=False)
    for page in ("a.html", "b.html"):
        (tmp_path / page).write_text('<a href="a.html">a</a> <a href="b.html">b</a>')
    done = scrapy_in(tmp_path, command, *options, (tmp_path / "a.html").as_uri())
    assert done.returncode == 0, done.stderr
    assert "neither uses nor changes tbloom's filter" in done.stderr
    assert "ERROR" not in done.stderr
    assert pages == done.stderr.count("Crawled (200)")
    assert [queue] == [*client.scan_iter(f"*{name}*")]
    client.delete(queue)


@pytest.mark.check
def test_tblooms_errors_change_the_exit_code_failed_pages_do_not(
    url: str, name: str, site: str, tmp_path: Path
) -> None:
    """docs/scrapy.md and docs/operating.md say so."""
    spider = SPIDER.replace("def parse", f"start_urls = ['{site}status/503']\n\n    def parse")
    folder = Folder(tmp_path, spider, RETRY_ENABLED=False, TBLOOM_KEY=name)
    for server, code in (url, 0), (UNREACHABLE, 1):
        folder.write(REDIS_URL=server)
        assert code == scrapy_in(tmp_path, "crawl", "files").returncode


def scrapy_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scrapy", *words]
    own: dict[str, Any] = {"env": {**os.environ, "PYTHONPATH": str(folder)}, "cwd": folder}
    return subprocess.run(command, **own, check=False, capture_output=True, text=True)
