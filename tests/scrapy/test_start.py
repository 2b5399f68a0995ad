"""What the log says of the filter at the start, what ``tbloom doctor`` says before it, and Scrapy's commands that try a spider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter

from tbloom import ConfigMismatch, TimeBloom
from tbloom.scrapy import ScrapyRedisFingerprinter
from tbloom.scrapy.compat import untested_versions
from tbloom.scrapy.dupefilter import summarize
from tbloom.scrapy.extras.doctor import faults
from tbloom.scrapy.options import address_of, error_line, make_client, read_options, server_settings
from tbloom.version import NEWEST_TESTED
from tests.helpers import crawl
from tests.helpers.commands import TBLOOM, tbloom
from tests.helpers.contents import keys_of
from tests.helpers.forked import Forked
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.schedulers import ADDON, SCRAPY, UNREACHABLE
from tests.helpers.website import Handler, served

EXACT = {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None}
OTHER = {"REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter"}
SCRAPYS = "scrapy.utils.request.RequestFingerprinter"


def said(result: dict[str, Any], level: str) -> list[str]:
    """What the log has of tbloom, at one level."""
    start = f"{level}:tbloom.scrapy."
    lines = [line for line in result["log"].splitlines() if line.startswith(start)]
    return [line.split(":", 2)[2] for line in lines]


def test_an_import_without_scrapy_names_the_extra() -> None:
    script = "import sys; sys.modules['scrapy'] = None; import tbloom.scrapy"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "tbloom.scrapy needs Scrapy: pip install 'tbloom[scrapy]'" in done.stderr


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(ADDON, "7 daily slices"), ({**ADDON, **EXACT}, "exact")],
    ids=["bloom", "exact"],
)
def test_the_log_names_the_filter_and_a_fingerprinter_that_finds_nothing_in_it(
    crawl: Any, name: str, settings: dict[str, Any], kind: str
) -> None:
    """It is asked how large it is while the first pages are fetched, which it may count."""
    line = f"filter '{name}': {kind}, [{{}}] items.* MB, {{}}, at 127.0.0.1:"
    first = crawl("pages", settings, ["a", "b"])
    assert re.match(line.format("012", "(new|existing)"), said(first, "INFO")[0])
    assert [] == said(first, "WARNING")
    other = crawl("pages", {**settings, **OTHER}, ["c"])
    assert re.match(line.format("23", "existing"), said(other, "INFO")[0])
    [warning] = said(other, "WARNING")
    expected = "REQUEST_FINGERPRINTER_CLASS is tbloom.scrapy.ScrapyRedis"
    assert expected in warning
    assert f"was filled with the fingerprints of {SCRAPYS}: what it has" in warning


def test_scrapys_log_names_our_classes_as_settings_do(crawl: Any) -> None:
    """And what the add-on has wrapped."""
    settings = {**ADDON, "TBLOOM_MARK": "done", **COUNTED}
    result = crawl("pages", settings, ["a"])
    lines = [line for line in result["log"].splitlines() if not re.match(r"\w+:tbloom\.", line)]
    named = re.findall(r"\btbloom\.[\w.]+(?:\[[\w.]+\])?", "\n".join(lines))
    names = {
        *("tbloom.scrapy.Addon", "tbloom.scrapy.DistinctCounts", "tbloom.scrapy.DupeFilter"),
        "tbloom.scrapy.FilteringScheduler[scrapy.core.scheduler.Scheduler]",
        "tbloom.scrapy.PageDownloader[scrapy.core.downloader.Downloader]",
        "tbloom.scrapy.PageSpiderMiddleware",
    }
    assert names == {*named}


def crawl_with_newer_scrapy(*arguments: Any, **given: Any) -> dict[str, Any]:
    NEWEST_TESTED.update({"scrapy": (2, 0), "redis": (10**6, 0)})
    return crawl.one(*arguments, **given)


@pytest.mark.parametrize("shadow", [False, True])
def test_the_log_names_a_version_that_the_tests_do_not_know_once(
    site: str, url: str, name: str, *, shadow: bool
) -> None:
    """Also where the filter is only tried."""
    settings = {**ADDON, "REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_SHADOW": shadow}
    given = {"pages": [["a", {}], ["b", {}]]}
    result = Forked(crawl_with_newer_scrapy, "pages", site, settings, **given).result()
    newer = (
        f"Scrapy {scrapy.__version__} is newer than 2.0, the newest that tbloom's tests have seen"
    )
    assert [newer] == [line for line in said(result, "DEBUG") if "newer" in line]


class Fetched(Handler):
    """Tells that a page was fetched."""

    def get(self) -> None:
        self.server.was_fetched.set()
        self.answer(200)


class Withholding(Proxy):
    """Lets a question for the filter's size wait until a page was fetched."""

    was_fetched: threading.Event

    def _pick(self, data: bytes) -> Fault | None:
        if b"\r\nHGETALL\r\n" in data:  # the command, not a word of a script
            assert self.was_fetched.wait(60), "pages wait for the answer"
        return super()._pick(data)


def test_no_page_waits_until_the_filter_has_said_how_large_it_is(url: str, name: str) -> None:
    """With Redis far away that takes several round trips."""
    own = {**ADDON, "TBLOOM_MARK": "done", "TBLOOM_KEY": name, "TBLOOM_RETRY_FOR": 600}
    was_fetched = threading.Event()
    with (
        served(Fetched, was_fetched=was_fetched) as site,
        Withholding(url, lambda _: None) as proxy,
    ):
        proxy.was_fetched = was_fetched
        settings = {**own, "REDIS_URL": proxy.url}
        result = crawl.start("pages", f"{site.url}/", settings, pages=[["a", {}]]).result()
    assert (["a"], "finished") == (result["fetched"], result["finish_reason"])
    assert " MB, " in said(result, "INFO")[0]


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
    with read_options(crawls, "shop").seen as seen:
        seen.add("a")
        text, warnings = summarize(seen, RequestFingerprinter())
    assert text.startswith(f"filter {name!r}: ")
    assert expected.replace("PATH", str(tmp_path)) in text
    assert [] == warnings


@pytest.mark.parametrize(
    ("settings", "address", "named"),
    [
        ({"REDIS_URL": "rediss://u:secret@h:7/2"}, "h:7/2", "REDIS_URL is rediss://***@h:7/2"),
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
        ({"slices": 3}, {}, "TBLOOM_SLICES is 7, the stored filter has 3: `tbloom reconfigure NAME --slices 7 --url SERVER`, another TBLOOM_KEY, or 3"),
        ({"prefix": "app1:"}, {"TBLOOM_KEY_PREFIX": "app1:", "TBLOOM_SLICES": 3}, "TBLOOM_SLICES is 3, the stored filter has 7: `tbloom reconfigure NAME --slices 3 --prefix app1: --url"),
        ({}, {"TBLOOM_CAPACITY": 5, "TBLOOM_SLICES": 3}, "TBLOOM_CAPACITY is 5, TBLOOM_SLICES is 3, the stored filter has None, 7: `tbloom reconfigure NAME --capacity 5 --slices 3 "),
        ({}, {"BLOOMFILTER_BIT": 20}, "BLOOMFILTER_BIT is 1048704, BLOOMFILTER_HASH_NUMBER is 6, the stored filter has"),
        ({}, EXACT, "TBLOOM_KEY: 'NAME' is stored with other parameters: kind is 'filter' there"),
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
        read_options(settings, "shop").seen.contains("a")
    line = error_line(error.value, settings)
    assert line.startswith(expected.replace("NAME", name).replace("SERVER", url))


def finds(seen: Any, fingerprinter: Any) -> str:
    """The warning about another fingerprinter."""
    return "".join(summarize(seen, fingerprinter)[1])


def test_the_fingerprinter_stays_with_what_is_in_the_filter(
    url: str, client: redis.Redis, name: str
) -> None:
    """Through reconfigure; gone after clear."""
    seen = read_options(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop").seen
    scrapys, other = RequestFingerprinter(), ScrapyRedisFingerprinter()
    assert "" == finds(seen, other)
    assert "" == finds(seen, scrapys)  # what was known is of an earlier filter
    assert client.pttl(f"{{{name}}}:fingerprinter") > 0  # as all keys of a filter with a window
    seen.add("a")
    with TimeBloom.from_url(url, name, slices=14) as wider:
        wider.reconfigure()
    seen = read_options(
        Settings({"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_SLICES": 14}), "shop"
    ).seen
    assert "" == finds(seen, scrapys)
    assert f"fingerprints of {SCRAPYS}" in finds(seen, other)
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
        ({"ADDONS": {"tbloom.scrapy.AddOn": 500}}, "ADDONS names what can't be imported: NameError: M"),
        ({**ADDON, **THEIRS}, "tbloom's add-on is off: the project sets DUPEFILTER_CLASS"),
        ({**SCRAPY, "TBLOOM_MARK": "done"}, "TBLOOM_MARK: 'done' needs ADDONS ="),
        ({**ADDON, "TBLOOM_SLCES": 3}, "unknown setting TBLOOM_SLCES; did you mean TBLOOM_SLICES?"),
        ({**ADDON, **SHARED}, "SCHEDULER_PERSIST: without it, scrapy-redis deletes the queue"),
        ({**ADDON, **SHARED, "SCHEDULER_PERSIST": True}, ""),
        ({**ADDON, "REDIS_URL": UNREACHABLE}, "REDIS_URL is redis://127.0.0.1:1/0: Error 111"),
        ({**ADDON, "REDIS_URL": UNREACHABLE, "REDIS_PARAMS": {"redis_cls": "valkey.Valkey"}}, "REDIS_URL is redis://127.0.0.1:1/0: Error 111"),
        ({**ADDON, "REDIS_URL": None, "REDIS_PARAMS": {"redis_cls": "valkey.ValkeyCluster", "host": "127.0.0.1", "port": 1}}, "REDIS_PARAMS['host'] is 127.0.0.1, REDIS_PARAMS['port'] is 1: Valkey Cluster can"),
        ({"DUPEFILTER_CLASS": "x.y.Z"}, "tbloom can't start: DUPEFILTER_CLASS names what can't be imported: M"),
        ({**ADDON, "SCHEDULER": "os.path"}, "tbloom can't start: SCHEDULER is no class, but"),
        ({**ADDON, **THEIRS, "TBLOOM_SHADOW": "x.Y"}, "tbloom can't start: TBLOOM_SHADOW names what can't be imported"),
        ({**ADDON, **COUNTED, "TBLOOM_COUNT_SLICES": 0}, "TBLOOM_COUNT_SLICES: expected a whole"),
        ({**ADDON, **COUNTED, "TBLOOM_TIMEZONE": "Europe/Berlin"}, ""),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(url: str, settings: dict[str, Any], expected: str) -> None:
    found = [*faults(Settings({"REDIS_URL": url, **settings}))]
    assert len(found) == bool(expected)
    assert "".join(found).startswith(expected)


def test_a_server_that_may_drop_slices_is_a_fault(own: redis.Redis, own_url: str) -> None:
    own.config_set("maxmemory", 100_000_000)
    own.config_set("maxmemory-policy", "allkeys-lru")
    try:
        [fault] = faults(Settings({**ADDON, "REDIS_URL": own_url}))
    finally:
        own.config_set("maxmemory-policy", "noeviction")
        own.config_set("maxmemory", 0)
    assert "set noeviction" in fault


def test_a_version_that_the_tests_do_not_know_is_a_note_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Settings({**ADDON, "TBLOOM_STORE": "local"})
    monkeypatch.setattr("tbloom.scrapy.extras.doctor.project_settings", lambda: project)
    monkeypatch.setitem(NEWEST_TESTED, "redis", (10**6, 0))
    monkeypatch.setitem(NEWEST_TESTED, "scrapy", (2, 99))
    monkeypatch.setattr(scrapy, "__version__", "2.100.0")
    done = tbloom("doctor")
    note, verdict = done.stdout.splitlines()
    newest = "2.99, the newest that tbloom's tests have seen"
    assert (0, f"note: Scrapy 2.100.0 is newer than {newest}") == (done.returncode, note)
    assert verdict.startswith("✓")


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        *(("9.10.0", False), ("9.10.99", False), ("9.9.11", False), ("8.11", False), ("9", False)),
        *(("9.11.0", True), ("9.11rc1", True), ("9.11.dev2+local", True), ("10.0b1", True)),
        ("unknown", False),
    ],
)
def test_versions_are_compared_by_major_and_minor(
    version: str, monkeypatch: pytest.MonkeyPatch, *, newer: bool
) -> None:
    monkeypatch.setitem(NEWEST_TESTED, "redis", (9, 10))
    monkeypatch.setitem(NEWEST_TESTED, "scrapy", (10**6, 0))
    monkeypatch.setattr(redis, "__version__", version)
    line = f"redis-py {version} is newer than 9.10, the newest that tbloom's tests have seen"
    assert [line] * newer == untested_versions()


def write_project(folder: Path, *lines: str) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (folder / "settings.py").write_text("\n".join(lines))


def test_doctor_reads_the_project_in_the_folder(tmp_path: Path) -> None:
    def doctor() -> tuple[int, str]:
        words = [*TBLOOM, "doctor"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
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
    assert text.endswith("1 fault: change what the ✗ says\n")


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
        ("shell", ["-c", SHELL], 3),
        ("fetch", ["--spider=files"], 1),
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
    assert "tbloom's filter is neither asked nor filled" in done.stderr
    assert "ERROR" not in done.stderr
    assert pages == done.stderr.count("Crawled (200)")
    assert [queue] == [*client.scan_iter(f"*{name}*")]
    client.delete(queue)
