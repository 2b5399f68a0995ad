"""What the log says of the filter at the start, what ``tbloom doctor`` says before it, and Scrapy's commands that try a spider."""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy import Request
from scrapy.extensions.httpcache import DummyPolicy
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter

from tbloom import ConfigMismatch, ExactFilter, LocalBloom, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.engine.urls import address_of
from tbloom.scrapy import ScrapyRedisFingerprinter
from tbloom.scrapy.dupefilter import described, summarize
from tbloom.scrapy.extras.doctor import examine
from tbloom.scrapy.options import error_line, make_client, make_store, server_settings
from tbloom.version import NEWEST_TESTED
from tests.helpers import crawl
from tests.helpers.commands import tbloom, tbloom_in
from tests.helpers.contents import keys_of
from tests.helpers.crawl import Part
from tests.helpers.fingerprinters import ByCallback, RefusesLater, WithoutSession
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.schedulers import ADDON, SCHEDULED, SCRAPY, STORES, UNREACHABLE, refusal
from tests.helpers.website import Handler, served

EXACT = {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None}
OTHER = {"REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter"}
SCRAPYS = "scrapy.utils.request.RequestFingerprinter"


def said(result: dict[str, Any], level: str) -> list[str]:
    """What the log has of tbloom, at one level."""
    start = f"{level}:tbloom.scrapy."
    lines = [line for line in result["log"].splitlines() if line.startswith(start)]
    return [line.split(":", 2)[2] for line in lines]


class Opens(Part):
    """Notes that it is opened and closed."""

    def note(self, what: str) -> None:
        with Path(self.crawler.settings["NOTED"]).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    def open_spider(self) -> None:
        self.note("opened")

    def close_spider(self) -> None:
        self.note("closed")

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
def test_a_crawl_that_can_not_begin_leaves_the_files_of_its_feeds(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """browsertrix-crawler#1075: Redis is away when a crawl begins. The last crawl's export is what its user has. Pipelines are opened."""
    feed, noted = tmp_path / "books.jsonl", tmp_path / "noted"
    feed.write_text("yesterday")
    feeds = {str(feed): {"format": "jsonlines", "overwrite": True}}
    with served(Handler) as site:
        more = {"ITEM_PIPELINES": {Opens: 1}, "NOTED": str(noted)}
        crawling = {**ADDON, **settings, "TBLOOM_RETRY_FOR": 0, "FEEDS": feeds, **more}
        end = crawl.start("ten_and_hundred", site.url, crawling).result()
    assert "tbloom_error" == end["finish_reason"]
    assert "yesterday" == feed.read_text()
    assert ["opened", "closed"] == noted.read_text().split()


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(ADDON, "7 daily slices"), ({**ADDON, **STORES["exact"]}, "exact")],
    ids=["bloom", "exact"],
)
def test_the_log_names_the_filter_and_a_fingerprinter_that_finds_nothing_in_it(
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


def test_the_log_names_the_session_of_the_crawler(
    crawl: Any, client: redis.Redis, name: str
) -> None:
    """At INFO, as ``tbloom queue --json`` shows it."""
    log = said(crawl("pages", {**ADDON, "TBLOOM_MARK": "done"}, ["a"]), "INFO")
    [session] = re.findall(r"^this crawler is session (\w+)$", "\n".join(log), re.MULTILINE)
    config = TimeBloom.open(client, name).config
    assert session in client.hgetall(config.keys.crawlers())


@pytest.mark.parametrize("mark", ["scheduled", "done"])
def test_scrapys_log_names_our_classes_as_settings_do(crawl: Any, mark: str) -> None:
    """And what the add-on has wrapped: the downloader only with "done"."""
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
        text, warnings = summarize(seen, described(RequestFingerprinter()))
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
    return "".join(summarize(seen, described(fingerprinter))[1])


def test_a_warning_says_which_fingerprints_are_others(url: str, name: str) -> None:
    """Whatever their class, which may make others: by a setting, an add-on below it, or an update."""
    seen = make_store(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop")
    seen.add("a")
    assert "" == finds(seen, RequestFingerprinter())
    assert "" == finds(
        seen, ByCallback(plain="parse")
    )  # Scrapy's fingerprints, from now on by this class
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


# ``tbloom doctor``

OFF = "tbloom is off: neither ADDONS nor DUPEFILTER_CLASS names it"
SHARED = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}
COUNTED = {"EXTENSIONS": {"tbloom.scrapy.DistinctCounts": 500}}
THEIRS = {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ADDON, ""),
        (SCRAPY, ""),
        ({**ADDON, "TBLOOM_STORE": "local", "REDIS_URL": UNREACHABLE}, ""),
        ({}, f"{OFF}. Set ADDONS"),
        ({"TBLOOM_SLICES": 3, "TBLOOM_KEY": "a"}, f"{OFF} (without effect: TBLOOM_KEY, TBLOOM_SL"),
        ({"ADDONS": {"tbloom.scrapy.AddOn": 500}}, "ADDONS can't be imported: NameError: M"),
        ({**ADDON, **THEIRS}, "tbloom's add-on is off: DUPEFILTER_CLASS is "),
        ({**SCRAPY, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled', or tbloom's add-on: ADDONS ="),
        ({**ADDON, "TBLOOM_SLCES": 3}, "unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?"),
        ({**SCHEDULED, **SHARED}, "SCHEDULER_PERSIST: without it, scrapy-redis deletes the queue"),
        ({**SCHEDULED, **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({**ADDON, **SHARED}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER; or remove SCHEDULER"),
        ({**ADDON, **STORES["exact"], "TBLOOM_MARK": None}, "TBLOOM_MARK: expected 'scheduled', with TBLOOM_STORE = 'exact' (the add-on's def"),
        ({**SCRAPY, **SHARED, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: expected 'scheduled' with scrapy-redis' SCHEDULER"),
        ({**ADDON, "REDIS_URL": UNREACHABLE}, "REDIS_URL is redis://127.0.0.1:1/0: Error 111"),
        ({"DUPEFILTER_CLASS": "x.y.Z"}, "DUPEFILTER_CLASS can't be imported: M"),
        ({**ADDON, **COUNTED, "TBLOOM_COUNT_MAX_MEMBERS": 0}, "TBLOOM_COUNT_MAX_MEMBERS: expected a"),
        ({**ADDON, **COUNTED, "TBLOOM_TIMEZONE": "Europe/Berlin"}, ""),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(url: str, settings: dict[str, Any], expected: str) -> None:
    found = examine(Settings({"REDIS_URL": url, **settings}))[0]
    assert len(found) == bool(expected)
    assert "".join(found).startswith(expected)


def test_a_password_in_a_setting_that_nobody_reads_is_named(crawl: Any) -> None:
    """By doctor, and by the crawl that can't begin; not if another one is refused (rq#809)."""
    hint = "(REDIS_PASSWORD has no effect: put it into REDIS_PARAMS, as 'password')"
    with LocalRedis(needed(), "--requirepass", "secret") as server:
        given = {**ADDON, "REDIS_URL": server.url, "REDIS_PASSWORD": "secret"}
        [fault], _ = examine(Settings(given))
        assert fault.endswith(hint)
        assert refusal(crawl("pages", given, ["a"])).endswith(hint)
        [fault], _ = examine(Settings({**given, "REDIS_PARAMS": {"password": "other"}}))
        assert hint not in fault
        assert [] == examine(Settings({**given, "REDIS_PARAMS": {"password": "secret"}}))[0]


def test_a_server_that_may_drop_slices_is_a_fault(own: redis.Redis, own_url: str) -> None:
    own.config_set("maxmemory", 100_000_000)
    own.config_set("maxmemory-policy", "allkeys-lru")
    try:
        [fault], _ = examine(Settings({**ADDON, "REDIS_URL": own_url}))
    finally:
        own.config_set("maxmemory-policy", "noeviction")
        own.config_set("maxmemory", 0)
    assert "set noeviction" in fault


def test_a_server_that_takes_no_writes_is_a_fault(own: redis.Redis, own_url: str) -> None:
    """A crawl would wait for it, as for a server that a failover has not yet made the master."""
    own.replicaof("127.0.0.1", 1)
    try:
        [fault], _ = examine(Settings({**ADDON, "REDIS_URL": own_url}))
    finally:
        own.replicaof("NO", "ONE")
    assert f"REDIS_URL is {own_url}: a replica" in fault
    assert "name its master" in fault
    assert [] == examine(Settings({**ADDON, "REDIS_URL": own_url}))[0]


def test_a_version_that_the_tests_do_not_know_is_a_note_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Settings({**ADDON, "TBLOOM_STORE": "local"})
    monkeypatch.setattr("tbloom.scrapy.extras.project.project_settings", lambda: project)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings")
    monkeypatch.setitem(NEWEST_TESTED, "redis", (10**6, 0))
    monkeypatch.setitem(NEWEST_TESTED, "scrapy", (2, 99))
    monkeypatch.setattr(scrapy, "__version__", "2.100.0")
    done = tbloom("doctor")
    note, verdict = done.stdout.splitlines()
    newest = "2.99, the newest that tbloom's tests have seen"
    assert (0, f"note: Scrapy 2.100.0 is newer than {newest}") == (done.returncode, note)
    assert verdict.startswith("✓")


def test_an_older_scrapy_is_named_with_the_one_that_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an import, and by doctor; it is the one in setup.cfg."""
    [needed] = {
        match[1]
        for line in requires("tbloom") or ()
        if (match := re.match(r"scrapy *>= *([\d.]+)", line))
    }
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings")
    older = "import scrapy; scrapy.version_info, scrapy.__version__ = (2, 13, 4), '2.13.4'"
    said = (
        f"tbloom.scrapy needs Scrapy {needed} or later; 2.13.4 is installed: pip install 'scrapy>="
    )
    for use in ("import tbloom.scrapy", "import tbloom.cli; exit(tbloom.cli.main(['doctor']))"):
        words = [sys.executable, "-c", f"{older}; {use}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert said in done.stderr.splitlines()[-1]
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))


def write_project(folder: Path, *lines: str) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (folder / "settings.py").write_text("\n".join(lines))


def test_doctor_reads_the_project_in_the_folder(tmp_path: Path) -> None:
    def doctor() -> tuple[int, str]:
        done = tbloom_in(tmp_path, "doctor")
        return done.returncode, done.stdout or done.stderr

    code, line = doctor()
    assert (2, True) == (code, "expected the folder of a Scrapy project" in line)
    for wrong, why in (("import gone", "gone"), ("a =", "SyntaxError"), ("ADDONS = 5", "int")):
        write_project(tmp_path, wrong)
        code, line = doctor()
        assert (2, True) == (code, why in line)
        assert line.startswith("tbloom: the project's settings can't be imported: ")
    lines = "ADDONS = {'tbloom.scrapy.Addon': 500}", "TBLOOM_STORE = 'local'"
    write_project(tmp_path, *lines)
    code, text = doctor()
    assert (0, True) == (code, "✓ tbloom filters the requests of this project" in text)
    write_project(tmp_path, *lines, "ADDONS = {}")
    code, text = doctor()
    assert (1, True) == (code, f"✗ {OFF}" in text)
    assert "\n  settings.py: ADDONS\n" in text
    assert text.endswith("1 fault: change what the ✗ says\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[deploy]\nproject = shop", "scrapy.cfg names no module: write [settings], and below it"),
        ("[settings]\ndefault = shop.setings", "there is no module shop.setings, which scrapy.cfg"),
    ],
)
def test_doctor_names_a_scrapy_cfg_that_leads_to_no_settings(
    tmp_path: Path, text: str, said: str
) -> None:
    """Scrapy would take its defaults, or name only a part of the module (scrapy#849, scrapy#141)."""
    (tmp_path / "shop.py").write_text("")
    (tmp_path / "scrapy.cfg").write_text(text)
    done = tbloom_in(tmp_path, "doctor")
    assert done.stderr.startswith("tbloom: the project's settings can't be imported: ")
    assert (2, True, 1) == (done.returncode, said in done.stderr, done.stderr.count("\n"))


def doctor_of(folder: Path, url: str, spiders: str, *lines: str) -> tuple[int, list[str]]:
    """The exit code and the lines for a project with these spiders."""
    modules, addon = "SPIDER_MODULES = ['spiders']", "ADDONS = {'tbloom.scrapy.Addon': 500}"
    write_project(folder, modules, addon, f"REDIS_URL = {url!r}", *lines)
    (folder / "spiders.py").write_text(spiders)
    done = tbloom_in(folder, "doctor")
    assert "" == done.stderr
    return done.returncode, done.stdout.splitlines()


def test_doctor_compares_the_settings_of_each_spider_with_what_is_stored(
    own: redis.Redis, own_url: str, tmp_path: Path
) -> None:
    """And changes nothing."""
    TimeBloom(own, "b:tbloom").add("a")
    TimeBloom(own, "c:tbloom", slices=3).add("a")
    ExactFilter(own, "exact").add("a", 100)
    DistinctCounter(own, "urls", mapping="counted").add("a")
    spiders = (
        "import scrapy",
        *("class A(scrapy.Spider): name = 'a'", "class B(scrapy.Spider): name = 'b'"),
        "class C(scrapy.Spider): name = 'c'",
        "class D(C):",
        *("  name = 'd'", "  custom_settings = {'TBLOOM_KEY': 'exact'}"),
        "class E(D): name = 'e'",
        "class F(C):",
        "  name = 'f'",
        "  @classmethod",
        "  def update_settings(cls, settings): settings.set('TBLOOM_KEY', 'counted', 'spider')",
    )
    before = {key: own.dump(key) for key in keys_of(own)}
    code, lines = doctor_of(tmp_path, own_url, "\n".join(spiders), "TBLOOM_SLICES = 3")
    assert before == {key: own.dump(key) for key in keys_of(own)}
    remedy = "another TBLOOM_KEY, or TBLOOM_SLICES = 7"
    assert lines == [
        f"✗ spider b: TBLOOM_SLICES is 3, the stored filter has 7: {remedy}",
        "  settings.py: TBLOOM_SLICES",
        "✗ spider d, e: TBLOOM_KEY: 'exact' is the name of an exact filter: take another name, or TBLOOM_STORE = 'exact'",
        "  spiders.py: TBLOOM_KEY",
        "✗ spider f: TBLOOM_KEY: 'counted' is the name of a mapping of distinct counters: take another name",
        "  spiders.py: TBLOOM_KEY",
        "3 faults: change what the ✗ says",
    ]
    assert 1 == code


@pytest.mark.parametrize("mark", ["scheduled", "done"])
def test_doctor_compares_the_settings_with_a_file(tmp_path: Path, mark: str) -> None:
    """And makes none: a crawl does."""
    local = "TBLOOM_STORE = 'local'", f"TBLOOM_MARK = {mark!r}", "TBLOOM_PATH = '%(spider)s.bloom'"
    spiders = "import scrapy\nclass A(scrapy.Spider): name = 'a'"
    code, _ = doctor_of(tmp_path, UNREACHABLE, spiders, *local)
    assert (0, []) == (code, [*tmp_path.glob("*.bloom*")])
    with LocalBloom(path=tmp_path / "a.bloom") as stored:
        stored.add("a")
    before = (tmp_path / "a.bloom").read_bytes()
    code, lines = doctor_of(tmp_path, UNREACHABLE, spiders, *local, "TBLOOM_SLICES = 3")
    assert lines[:2] == [
        "✗ TBLOOM_SLICES is 3, the stored filter has 7: another TBLOOM_PATH, or TBLOOM_SLICES = 7",
        "  settings.py: TBLOOM_SLICES",
    ]
    assert (1, before) == (code, (tmp_path / "a.bloom").read_bytes())
    code, lines = doctor_of(tmp_path, UNREACHABLE, spiders, *local[:2], "TBLOOM_PATH = 'gone/a'")
    assert (1, True) == (code, "No such file or directory" in lines[0])


def test_a_shared_queue_of_another_type_is_named(
    crawl: Any, own: redis.Redis, own_url: str
) -> None:
    """It said that TBLOOM_KEY were wrong (scrapy-redis#63, #192)."""
    queue = {"SCHEDULER_PERSIST": True, "SCHEDULER_QUEUE_KEY": "queue"}
    settings = {**SCHEDULED, **SHARED, **queue, "REDIS_URL": own_url}
    own.rpush("queue", "what a FIFO queue has")
    result = crawl("pages", settings, ["a"])
    assert [] == result["fetched"]
    [line] = said(result, "ERROR")
    assert line.startswith(
        "SCHEDULER_QUEUE_KEY: the stored queue is not of the type that SCHEDULER_QUEUE_CLASS reads"
    )


def test_doctor_looks_at_the_settings_of_each_spider(url: str, tmp_path: Path) -> None:
    """A misspelled setting in custom_settings, too (scrapy#4302, scrapy-redis#134)."""
    spiders = """import scrapy
class A(scrapy.Spider): name = "a"
class C(A):
    name = "c"
    custom_settings = {
        "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    }
class D(A):
    name = "d"
    custom_settings = {"ADDONS": {}, "TBLOOM_SLCES": 5}
class E(A):
    name = "e"
    custom_settings = {"TBLOOM_SLCES": 5}
class F(A):
    name = "f"
    @classmethod
    def update_settings(cls, settings):
        settings["GONE"]["a"]
"""
    code, lines = doctor_of(tmp_path, url, spiders)
    starts = (
        "✗ spider c: tbloom's add-on is off: DUPEFILTER_CLASS is 'scrapy.dupefi",
        "  spiders.py: DUPEFILTER_CLASS",
        f"✗ spider d: {OFF} (without effect: TBLOOM_SLCES)",
        "  spiders.py: ADDONS",
        "✗ spider e: unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?",
        "  spiders.py: TBLOOM_SLCES",
        "✗ spider f: update_settings of a spider fails: TypeError: 'NoneType'",
        "  spiders.py:18",
        "4 faults",
    )
    assert len(starts) == len(lines)
    assert [] == [
        line for line, start in zip(lines, starts, strict=True) if not line.startswith(start)
    ]
    assert 1 == code


@pytest.mark.parametrize(
    ("wrong", "why", "line"),
    [
        ("import gone", "ModuleNotFoundError: No module named 'gone'", 2),
        ("from scrapy import gone", "ImportError: cannot import name 'gone' from 'scrapy'", 2),
        ("a =", "SyntaxError: invalid syntax", 2),
        ("{}['a']", "KeyError: 'a'", 2),
        ("raise SystemExit(3)", "SystemExit: 3", 2),
    ],
)
def test_doctor_names_a_spider_that_cannot_be_imported(
    url: str, tmp_path: Path, wrong: str, why: str, line: int
) -> None:
    """The file, not SPIDER_MODULES (scrapy#2518, #2602). A crawl of any other spider ends, too."""
    code, lines = doctor_of(tmp_path, url, f"import scrapy\n{wrong}")
    assert lines[0].startswith(f"✗ a spider can't be imported, so none can crawl: {why}")
    assert (1, 3, f"  spiders.py:{line}") == (code, len(lines), lines[1])


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("DUPEFILTER_CLASS = 'tbloom.DupeFilter'", "tbloom.scrapy.DupeFilter"),
        ("ADDONS = {'tbloom.scrapy.AddOn': 500}", "tbloom.scrapy.Addon"),
    ],
)
def test_doctor_says_how_a_class_of_tbloom_is_spelt(
    url: str, tmp_path: Path, line: str, right: str
) -> None:
    _, lines = doctor_of(tmp_path, url, "", line)
    assert lines[0].endswith(f"; did you mean {right!r}?")
    assert lines[1].startswith("  settings.py: ")


def test_doctor_asks_a_server_that_is_away_once(tmp_path: Path) -> None:
    """Whatever the number of spiders, and never shows a password."""
    kinds = [f"class A{n}(scrapy.Spider): name = 'a{n}'" for n in range(50)]
    asked = list[object]()

    class HangsUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.client_address)

    with socketserver.TCPServer(("127.0.0.1", 0), HangsUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        code, lines = doctor_of(
            tmp_path, f"redis://:secret@{host}/0", "\n".join(["import scrapy", *kinds])
        )
        server.shutdown()
    assert 1 == len(asked)
    assert lines[0].startswith(f"✗ REDIS_URL is redis://***@{host}/0: ")
    assert (1, 3, "  settings.py: REDIS_URL") == (code, len(lines), lines[1])


def test_doctor_names_the_first_fault_of_each_spider(tmp_path: Path) -> None:
    """The one that its crawl names, once for all spiders that have it."""
    lines = "TBLOOM_CAPACITY = -1", "TBLOOM_TIMEZONE = 'Mars/Olympus'"
    spiders = (
        "import scrapy\nclass A(scrapy.Spider): name = 'a'",
        "class B(A): name = 'b'",
        "class C(A): name = 'c'; custom_settings = {'TBLOOM_TIMEZONE': 'UTC'}",
        "class D(C): name = 'd'; custom_settings = {'TBLOOM_CAPACITY': 9, 'TBLOOM_TIMEZONE': 'UTC'}",
    )
    code, said = doctor_of(tmp_path, UNREACHABLE, "\n".join(spiders), *lines)
    starts = (
        "✗ spider a, b: TBLOOM_TIMEZONE: expected an IANA time zone",
        "  settings.py: TBLOOM_TIMEZONE",
        "✗ spider c: TBLOOM_CAPACITY: expected a whole number from 1",
        "  settings.py: TBLOOM_CAPACITY",
        f"✗ REDIS_URL is {UNREACHABLE}: ",
        "  settings.py: REDIS_URL",
        "3 faults: change what the ✗ says",
    )
    assert [True] * 7 == [line.startswith(start) for line, start in zip(said, starts, strict=True)]
    assert 1 == code


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"ADDONS": {"gone.A": 1}, "TBLOOM_A": 1}, "ADDONS"),
        ({"ADDONS": {}, "TBLOOM_A": 1}, "ADDONS"),
        ({**COUNTED, "TBLOOM_COUNT_MAX_MEMBERS": 0, "TBLOOM_CAPACITY": -1}, "TBLOOM_COUNT_MAX_MEMBERS"),
        ({"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": 9}, "TBLOOM_MARK"),
        ({"TBLOOM_CAPACITY": -1}, "TBLOOM_CAPACITY"),
        ({"TBLOOM_RETRY_FOR": -1}, "TBLOOM_RETRY_FOR"),
        ({"TBLOOM_DONE_STATUSES": 404}, "TBLOOM_DONE_STATUSES"),
        ({"TBLOOM_SHARE": "hosts", "TBLOOM_SHARDS": 4}, "TBLOOM_SHARDS"),
        ({"REDIS_PARAMS": '{"password": "secret"'}, "REDIS_PARAMS"),
        ({"REDIS_URL": None, "REDIS_PORT": "six"}, "REDIS_PORT"),
        ({"FEEDS": {"a": {"format": "gone"}}}, "REDIS_URL"),
    ],
)  # fmt: skip
def test_the_first_fault_is_what_a_crawl_meets_first(settings: dict[str, Any], first: str) -> None:
    """Whatever else is wrong; and no note is said of settings that are."""
    [fault], notes = examine(Settings({**ADDON, "REDIS_URL": UNREACHABLE, **settings}))
    assert first == re.findall(r"[A-Z]+_[A-Z_]+|ADDONS", fault)[0], fault
    assert "secret" not in fault
    assert [] == notes


HOSTS = {"TBLOOM_SHARE": "hosts"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ""),
        ({"DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}, ""),  # as Scrapy's template
        ({"DOWNLOAD_DELAY": 3}, "DOWNLOAD_DELAY holds for each crawler; with TBLOOM_SHARE = 'hosts'"),
        ({"AUTOTHROTTLE_ENABLED": True}, "AUTOTHROTTLE_ENABLED holds for each crawler"),
        ({"DOWNLOAD_DELAY": 3, **HOSTS}, ""),
        ({"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}, ""),
        ({"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue", **HOSTS}, "SCHEDULER_PRIORITY_QUEUE lets no crawler give hosts away"),
        ({"TBLOOM_KEY": "a-%(timestamp)s"}, "TBLOOM_KEY: %(timestamp)s gives each crawler a separate filter"),
        ({"SCHEDULER_FLUSH_ON_START": True}, "SCHEDULER_FLUSH_ON_START clears the filter of"),
        ({"TBLOOM_MARK": "scheduled"}, "TBLOOM_MARK = 'scheduled' shares no work"),
        ({"TBLOOM_MARK": "scheduled", **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({"TBLOOM_TAKE_OVER": False}, "TBLOOM_TAKE_OVER = False shares no work"),
        ({"JOBDIR": "job"}, "JOBDIR: requests are lost unless each crawler has its own"),
        ({"JOBDIR": "job", "TBLOOM_STORE": "local"}, ""),
        *(({"FEEDS": {uri: {"format": kind, **more}}}, "FEEDS: 'LOSES items" * loses) for uri, kind, more, loses in (
            ("a.jsonl", "jsonlines", {}, False), ("a.json", "json", {}, True), ("a-%(time)s.json", "json", {}, False),
            ("%(name)s.xml", "xml", {}, True), ("a.jl", "jl", {"overwrite": True}, True), ("ftp://b/a.jl", "jl", {}, True),
            ("file:///a.csv", "csv", {}, False), ("stdout:", "json", {}, False),
            ("a.jl.gz", "jl", {"postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"]}, True))),
        ({"DOWNLOAD_DELAY": "soon"}, ""),  # Scrapy says that
    ],
)  # fmt: skip
def test_what_does_not_fit_several_crawlers_is_a_note_and_no_fault(
    url: str, name: str, settings: dict[str, Any], expected: str
) -> None:
    """A delay holds for each crawler (scrapyd#221); two can share no JOBDIR (hepcrawl#186), and no file of XML (scrapy#4103)."""
    found, notes = examine(Settings({**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, **settings}))
    assert [] == found
    notes = [note for note in notes if not note.startswith("FEEDS: ")]
    assert len(notes) == bool(expected)
    start = expected.replace("LOSES", f"{next(iter(settings.get('FEEDS', [''])))}' loses")
    assert "".join(notes).startswith(start and f"with several crawlers: {start}")


def made_like(path: str) -> type:
    """A pipeline with the name of a package's that keeps items."""
    module, _, name = path.rpartition(".")
    return type(name, (), {"__module__": module})


class OwnFiles(FilesPipeline):
    """With a store of its own."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls("files", crawler=crawler)


ELASTIC = made_like("scrapyelasticsearch.scrapyelasticsearch.ElasticSearchPipeline")
FILES, IMAGES = "scrapy.pipelines.files.FilesPipeline", "scrapy.pipelines.images.ImagesPipeline"


@pytest.mark.parametrize(
    ("pipeline", "settings", "note"),
    [
        (ELASTIC, {}, "ElasticSearchPipeline keeps up to 500 items"),
        (type("Own", (ELASTIC,), {}), {}, "Own keeps up to 500 items"),
        (ELASTIC, {"ELASTICSEARCH_BUFFER_LENGTH": 1}, ""),
        (ELASTIC, {"TBLOOM_MARK": "scheduled"}, ""),
        (made_like("s3pipeline.pipelines.S3Pipeline"), {}, "keeps up to 100 items"),
        (made_like("scrapy_mongodb.MongoDBPipeline"), {}, ""),
        (made_like("scrapy_mongodb.MongoDBPipeline"), {"MONGODB_BUFFER_DATA": 9}, "up to 9 items"),
        (FILES, {}, "FilesPipeline is off: FILES_STORE is not set"),
        (FILES, {"FILES_STORE": "files"}, ""),
        (OwnFiles, {}, ""),
        (IMAGES, {"FILES_STORE": "files"}, "ImagesPipeline is off: IMAGES_STORE is not set"),
        ("gone.Pipeline", {}, ""),  # Scrapy says that
    ],
)
def test_a_pipeline_that_keeps_items_or_is_off_is_a_note(
    url: str, name: str, pipeline: Any, settings: dict[str, Any], note: str
) -> None:
    pipelines = {type("Usual", (), {}): 0, pipeline: 1}
    own = {**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, "ITEM_PIPELINES": pipelines}
    found, notes = examine(Settings({**own, **settings}))
    assert [] == found
    assert [bool(note)] * bool(note) == [note in each for each in notes if "PIPELINES" in each]


FAILURES = [403, 408, 429, 500, 502, 503, 504, 522, 524]


class KeepsRefusals(DummyPolicy):
    """A cache's policy of a project."""

    def should_cache_response(self, response: Response, request: Request) -> bool:  # noqa: ARG002 - Scrapy's
        return response.status == 403


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({}, FAILURES),
        ({"HTTPCACHE_ENABLED": False}, []),
        ({"HTTPCACHE_STORAGE": "tbloom.scrapy.PageCacheStorage"}, FAILURES),
        ({"TBLOOM_STORE": "local"}, FAILURES),
        ({"TBLOOM_MARK": "scheduled"}, []),  # a failed page is lost, with a cache or without it
        ({"HTTPCACHE_IGNORE_HTTP_CODES": FAILURES}, []),
        ({"HTTPCACHE_IGNORE_HTTP_CODES": FAILURES[1:]}, [403]),
        ({"RETRY_HTTP_CODES": ["418"], "TBLOOM_DONE_STATUSES": [403]}, [418]),
        ({"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"}, []),
        ({"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy", "HTTPCACHE_ALWAYS_STORE": True}, []),
        ({"HTTPCACHE_POLICY": KeepsRefusals}, [403]),
        ({"HTTPCACHE_POLICY": "gone.Policy"}, []),  # Scrapy says that
    ],
)  # fmt: skip
def test_a_cache_that_serves_failures_again_is_a_note(
    url: str, name: str, settings: dict[str, Any], statuses: list[int]
) -> None:
    own = {**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, "HTTPCACHE_ENABLED": True}
    found, notes = examine(Settings({**own, **settings}))
    assert [] == found
    notes = [note for note in notes if note.startswith("HTTPCACHE")]
    assert len(notes) == bool(statuses)
    for note in notes:
        assert f"({', '.join(map(str, statuses))})" in note
        to_set = re.findall(r"HTTPCACHE_IGNORE_HTTP_CODES = (\[.*?\])", note)
        healed = {**own, **settings, "HTTPCACHE_IGNORE_HTTP_CODES": json.loads(to_set[0])}
        if settings.get("HTTPCACHE_POLICY") is not KeepsRefusals:
            assert [] == [each for each in examine(Settings(healed))[1] if "HTTPCACHE" in each]


SITEMAPS = """
import scrapy.spiders
import tbloom.scrapy

class Old(scrapy.spiders.SitemapSpider): name = "old"

class New(tbloom.scrapy.SitemapSpider): name = "new"
"""


def test_scrapys_sitemap_spider_which_misses_changes_is_a_note(url: str, tmp_path: Path) -> None:
    code, lines = doctor_of(tmp_path, url, SITEMAPS, "TBLOOM_MARK = 'scheduled'")
    found = [each for each in lines if each.startswith("note: spider")]
    assert (0, 1) == (code, len(found))
    assert found[0].startswith("note: spider old: Scrapy's SitemapSpider: ")


def test_doctor_names_feeds_that_cannot_be_opened_and_notes_those_that_may_be_emptied(
    tmp_path: Path,
) -> None:
    """By a crawl without items."""
    feeds: dict[str, dict[str, Any]] = {
        "a.jsonx": {"format": "jsonx"},
        "nowhere://b": {"format": "csv"},
        "fine-%(name)s-%(time)s.csv": {"format": "csv", "overwrite": True},
        "ftp://host/f.csv": {"format": "csv", "store_empty": False},
        "g.json": {"format": "json", "overwrite": True},
    }
    lines = "TBLOOM_STORE = 'local'", "TBLOOM_PATH = None"
    spiders = "import scrapy\nclass A(scrapy.Spider): name = 'a'"
    code, said = doctor_of(tmp_path, UNREACHABLE, spiders, *lines, f"FEEDS = {feeds}")
    opens = "FEEDS: the crawl ends before its first request, because a feed can't be opened"
    faults = [line for line in said if line.startswith("✗")]
    assert (1, faults) == (
        code,
        [
            f"✗ {opens}: Unknown feed format: jsonx",
        ],
    )
    del feeds["a.jsonx"]
    [fault], _ = examine(Settings({**ADDON, "TBLOOM_STORE": "local", "FEEDS": feeds}))
    assert fault == f"{opens}: Unknown feed storage scheme: nowhere"
    del feeds["nowhere://b"]
    code, said = doctor_of(tmp_path, UNREACHABLE, spiders, *lines, f"FEEDS = {feeds}")
    expected = [("g.json", "set 'store_empty': False")]
    notes = [line for line in said if line.startswith("note: ") and "FEEDS: " in line]
    assert (0, len(expected)) == (code, len(notes))
    for note, words in zip(notes, expected, strict=True):
        assert all(word in note for word in words)


def test_a_note_leaves_the_exit_code_and_names_the_spiders(url: str, tmp_path: Path) -> None:
    spiders = (
        "import scrapy\nclass A(scrapy.Spider): name = 'a'",
        "class B(A): name = 'b'; custom_settings = {'JOBDIR': 'job'}",
    )
    code, lines = doctor_of(tmp_path, url, "\n".join(spiders))
    start = "note: spider b: with several crawlers: JOBDIR: requests are lost unless each"
    assert (0, 2, True) == (code, len(lines), lines[0].startswith(start))
    code, lines = doctor_of(tmp_path, url, "\n".join(spiders), "TBLOOM_A = 1")
    assert (1, []) == (code, [line for line in lines if "note" in line])


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
    write_project(
        tmp_path,
        'SPIDER_MODULES = ["spiders"]',
        'ADDONS = {"tbloom.scrapy.Addon": 500}',
        'EXTENSIONS = {"tbloom.scrapy.DistinctCounts": 500}',
        'TBLOOM_MARK = "done"',
        f"TBLOOM_COUNT_KEY = TBLOOM_KEY = {name!r}",
        "TELNETCONSOLE_ENABLED = False",
        f"REDIS_PORT = {client.connection_pool.connection_kwargs['port']}",
        f"SCHEDULER_QUEUE_KEY = {queue!r}",
    )
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "files.py").write_text(SPIDER)
    for page in ("a.html", "b.html"):
        (tmp_path / page).write_text('<a href="a.html">a</a> <a href="b.html">b</a>')
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", command, *options, (tmp_path / "a.html").as_uri()],
        check=False, cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "neither uses nor changes tbloom's filter" in done.stderr
    assert "ERROR" not in done.stderr
    assert pages == done.stderr.count("Crawled (200)")
    assert [queue] == [*client.scan_iter(f"*{name}*")]
    client.delete(queue)
