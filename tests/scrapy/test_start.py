"""What the log says of the filter at the start; and Scrapy's commands that try a spider."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter

from tbloom import ConfigMismatch, TimeBloom
from tbloom.scrapy import DupeFilter, ScrapyRedisFingerprinter
from tbloom.scrapy.connection import address_of, make_client
from tbloom.scrapy.dupefilter.summary import FingerprinterNote, summarize
from tbloom.scrapy.errorline import error_line
from tbloom.scrapy.options import read_options
from tests.helpers.commands import tbloom
from tests.helpers.schedulers import ADDON

EXACT = {"TBLOOM_STORE": "exact", "TBLOOM_CAPACITY": None}
OTHER = {"REQUEST_FINGERPRINTER_CLASS": "tbloom.scrapy.ScrapyRedisFingerprinter"}
SCRAPYS = "scrapy.utils.request.RequestFingerprinter"


def said(result: dict[str, Any], level: str) -> list[str]:
    """What the log has of tbloom, at one level."""
    start = f"{level}:tbloom.scrapy."
    lines = [line for line in result["log"].splitlines() if line.startswith(start)]
    return [line.split(":", 2)[2] for line in lines]


def test_it_needs_scrapy_and_not_scrapy_redis() -> None:
    """An import without Scrapy names the extra; without scrapy-redis, an add-on and a dupefilter are there."""
    script = "import sys; sys.modules[%r] = None; from tbloom.scrapy import Addon, DupeFilter"
    words = [sys.executable, "-c"]
    done = subprocess.run([*words, script % "scrapy_redis"], capture_output=True, text=True)  # noqa: PLW1510
    assert (0, "") == (done.returncode, done.stderr)
    done = subprocess.run([*words, script % "scrapy"], capture_output=True, text=True)  # noqa: PLW1510
    assert "tbloom.scrapy needs Scrapy: pip install 'tbloom[scrapy]'" in done.stderr


@pytest.mark.parametrize(
    ("settings", "begins", "goes_on"),
    [
        (ADDON, "7 daily slices, 0 of 1,000 items today, 0.00 MB", "7 daily slices, 2 of 1,000 items"),
        ({**ADDON, **EXACT}, "exact", "exact, existing, at redis://127.0.0.1:"),
    ],
    ids=["bloom", "exact"],
)  # fmt: skip
def test_the_log_names_the_filter_and_a_fingerprinter_that_finds_nothing_in_it(
    crawl: Any, name: str, settings: dict[str, Any], begins: str, goes_on: str
) -> None:
    first = crawl("pages", settings, ["a", "b"])
    assert said(first, "INFO")[0].startswith(
        f"filter {name!r}: {begins}, new, at redis://127.0.0.1:"
    )
    assert [] == said(first, "WARNING")
    other = crawl("pages", {**settings, **OTHER}, ["c"])
    assert said(other, "INFO")[0].startswith(f"filter {name!r}: {goes_on}")
    [warning] = said(other, "WARNING")
    assert warning.startswith(
        "REQUEST_FINGERPRINTER_CLASS is tbloom.scrapy.ScrapyRedisFingerprinter, but"
    )
    assert f"was filled with the fingerprints of {SCRAPYS}: what it has" in warning


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"TBLOOM_GRANULARITY": "w"}, "7 weekly slices, 0 items this week, 0.00 MB, new"),
        ({"TBLOOM_GRANULARITY": "15min"}, "7 slices of 900s, 0 items now, 0.00 MB, new"),
        ({"TBLOOM_GRANULARITY": "None"}, "no window, 0 items now, 0.00 MB, new, at redis"),
        ({"TBLOOM_SHARDS": 3}, "7 daily slices, 0 items today, 0.00 MB, new, at redis"),
        ({"TBLOOM_STORE": "local"}, "items today, 0.00 MB, new, in the memory of this process"),
        ({"TBLOOM_STORE": "local", "TBLOOM_PATH": "PATH/%(spider)s"}, "0.00 MB, new, in PATH/shop"),
    ],
)  # fmt: skip
def test_the_line_of_a_filter_of_every_kind(
    url: str, name: str, tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    if "TBLOOM_PATH" in settings:
        settings = {**settings, "TBLOOM_PATH": f"{tmp_path}/%(spider)s"}
    expected = expected.replace("PATH", str(tmp_path))
    crawls = Settings({"REDIS_URL": url, "TBLOOM_KEY": name, **settings})
    with read_options(crawls, "shop").seen as seen:
        start = summarize(seen)
        assert start.text.startswith(f"filter {name!r}: ")
        assert expected in start.text
        seen.add("a")
        start = summarize(seen)
        assert not start.is_new
        assert " 1 item " in start.text
        assert "MB, existing, " in start.text


def test_the_size_is_that_of_info(url: str, name: str) -> None:
    """Also where the filter has grown, and has shards."""
    settings = Settings(
        {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 100, "TBLOOM_SHARDS": 2}
    )
    seen = read_options(settings, "shop").seen
    seen.add_many(map(str, range(1000)))
    info = seen.info()
    assert info.slices[-1].parts > 1
    held = f"{info.items:,} of 100 items today, {info.bytes / 2**20:.2f} MB, existing"
    assert held in summarize(seen).text


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"REDIS_URL": "redis://crawler:secret@h:7000/2"}, "redis://h:7000/2"),
        ({"REDIS_URL": "rediss://:secret@h"}, "rediss://h:6379/0"),
        ({"REDIS_URL": "unix://:secret@/run/redis.sock?db=3"}, "unix:///run/redis.sock?db=3"),
        ({"REDIS_HOST": "h", "REDIS_DB": 1, "REDIS_PARAMS": {"password": "secret"}}, "redis://h:6379/1"),
    ],
)  # fmt: skip
def test_the_address_has_no_password(settings: dict[str, Any], address: str) -> None:
    client, _ = make_client(Settings(settings))
    assert address == address_of(client)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"REDIS_PORT": 1, "REDIS_HOST": "h"}, "REDIS_HOST"),
        ({"REDIS_PORT": 1, "REDIS_PARAMS": {"password": "secret"}}, "REDIS_PORT"),
        ({"REDIS_PARAMS": {"url": "redis://:secret@h"}}, "REDIS_PARAMS"),
        (
            {"REDIS_PARAMS": {"redis_cls": "redis.RedisCluster", "startup_nodes": []}},
            "REDIS_PARAMS",
        ),
        ({"REDIS_PARAMS": {"socket_timeout": 5}}, "REDIS_URL"),
    ],
)
def test_a_server_that_is_not_there_is_called_by_its_setting(
    settings: dict[str, Any], named: str
) -> None:
    assert f"{named}: away" == error_line(redis.ConnectionError("away"), Settings(settings))


def test_a_key_of_another_program_is_called_by_the_setting_of_the_filter(
    url: str, client: redis.Redis, name: str
) -> None:
    client.rpush(f"{{{name}}}:config", "")
    settings = Settings({"REDIS_URL": url, "TBLOOM_KEY": name})
    with pytest.raises(redis.ResponseError) as error:
        read_options(settings, "shop").seen.contains("a")
    assert error_line(error.value, settings).startswith("TBLOOM_KEY: WRONGTYPE ")


@pytest.mark.parametrize(
    ("stored", "ours", "expected"),
    [
        ({"slices": 3}, {}, "TBLOOM_SLICES is 7, the stored filter has 3: `tbloom reconfigure NAME --slices 7 --url SERVER`, another TBLOOM_KEY, or 3"),
        ({}, {"TBLOOM_GRANULARITY": "h"}, "TBLOOM_GRANULARITY is 'h', the stored filter has 'd': another TBLOOM_KEY, or 'd'"),
        ({}, {"TBLOOM_CAPACITY": 5, "TBLOOM_SLICES": 3}, "TBLOOM_CAPACITY is 5, TBLOOM_SLICES is 3, the stored filter has None, 7: `tbloom reconfigure NAME --capacity 5 --slices 3 --url SERVER`, another TBLOOM_KEY, or None, 7"),
        ({}, {"BLOOMFILTER_BIT": 20}, "BLOOMFILTER_BIT is 1049088, BLOOMFILTER_HASH_NUMBER is 6, the stored filter has"),
        ({}, EXACT, "TBLOOM_KEY: 'NAME' is stored with other parameters: kind is None there and 'exact' here; take another name"),
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
    assert error_line(error.value, settings).startswith(
        expected.replace("NAME", name).replace("SERVER", url)
    )


def test_the_remedy_can_be_pasted_into_a_shell() -> None:
    error = ConfigMismatch("the news", {"slices": (3, 7)}, "")
    host = Settings({"REDIS_HOST": "h", "REDIS_PARAMS": {"password": "secret"}})
    remedy = "`tbloom reconfigure 'the news' --slices 7 --url redis://h:6379/0`"
    assert remedy in error_line(error, host)


def test_the_fingerprinter_stays_with_what_is_in_the_filter(
    url: str, client: redis.Redis, name: str
) -> None:
    """Through reconfigure; gone after clear; and that of a filter which takes the place of this one comes with it."""
    settings = Settings({"REDIS_URL": url, "TBLOOM_KEY": name})
    seen = read_options(settings, "shop").seen
    scrapys, other = RequestFingerprinter(), ScrapyRedisFingerprinter()

    def finds(ours: Any, *, is_new: bool = False) -> str | None:
        return FingerprinterNote(ours).write(seen, is_new=is_new)

    assert finds(other) is None  # nothing is known
    assert finds(scrapys, is_new=True) is None  # what was known is of an earlier filter
    assert [None, SCRAPYS] == [finds(scrapys), finds(other)]
    assert client.pttl(f"{{{name}}}:fingerprinter") > 0  # as all keys of a filter with a window
    seen.add("a")
    with TimeBloom.from_url(url, name, slices=14) as wider:
        wider.reconfigure()
    assert SCRAPYS == finds(other)
    with TimeBloom.from_url(url, f"{{{name}}}:new", slices=14) as built:
        built.add("b")
        client.set(f"{{{name}}}:new:fingerprinter", "theirs", ex=60)
        with TimeBloom.from_url(url, name, slices=14) as live:
            live.swap(built.name)
            assert "theirs" == finds(other)
            live.clear()
    assert [] == [key for key in client.scan_iter(f"{{{name}}}*") if ":lane:" not in key]


@pytest.mark.parametrize(
    "store", [{"TBLOOM_GRANULARITY": "1s", "TBLOOM_SLICES": 2}, {**EXACT, "TBLOOM_TTL": 2}]
)
def test_in_a_crawl_longer_than_the_window_the_fingerprinter_stays(
    url: str, client: redis.Redis, name: str, store: dict[str, Any]
) -> None:
    seen = DupeFilter(Settings({"REDIS_URL": url, "TBLOOM_KEY": name, **store}))
    seen.open()
    client.delete(f"{{{name}}}:fingerprinter")  # as if it had expired
    while not client.exists(f"{{{name}}}:fingerprinter"):
        seen.request_seen(Request("data:,"))
        time.sleep(0.1)
    seen.close()


@pytest.mark.parametrize("known", [b"a\nERROR: forged", b"\xff", b"a" * 1000])
def test_what_another_program_has_noted_is_not_shown(
    url: str, client: redis.Redis, name: str, known: bytes
) -> None:
    client.set(f"{{{name}}}:fingerprinter", known)
    seen = read_options(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop").seen
    assert FingerprinterNote(RequestFingerprinter()).write(seen) is None
    assert SCRAPYS == client.get(f"{{{name}}}:fingerprinter")


def test_an_import_of_scrapy_rediss_set_is_known(url: str, client: redis.Redis, name: str) -> None:
    client.sadd(f"{name}:dupefilter", "ab" * 20)
    try:
        done = tbloom("import", "--url", url, name, "--create", "--from-set", f"{name}:dupefilter")
        assert done.returncode == 0, done.stderr
    finally:
        client.delete(f"{name}:dupefilter")
    seen = read_options(Settings({"REDIS_URL": url, "TBLOOM_KEY": name}), "shop").seen
    assert FingerprinterNote(ScrapyRedisFingerprinter()).write(seen) is None
    assert "ScrapyRedisFingerprinter" in str(FingerprinterNote(RequestFingerprinter()).write(seen))


SPIDER = """
import scrapy

class Files(scrapy.Spider):
    name = "files"

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""
SHELL = "fetch(scrapy.Request(response.url)) or fetch(scrapy.Request(response.url)) or response.url"
#: Commands that try a spider: their options, and how many pages they fetch.
TRIALS = {
    "parse": (["--spider", "files", "--depth", "3"], 2),
    "shell": (["-c", SHELL], 3),
    "fetch": (["--spider", "files"], 1),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Scrapy project with a spider, and a site of two pages that link to each other."""
    links = '<a href="a.html">a</a> <a href="b.html">b</a>'
    (tmp_path / "spiders").mkdir()
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (tmp_path / "spiders" / "files.py").write_text(SPIDER)
    for page in ("a.html", "b.html"):
        (tmp_path / page).write_text(links)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "scheduler"),
    [
        ("parse", ["-s", "SCHEDULER=scrapy_redis.scheduler.Scheduler"]),
        ("shell", []),
        ("fetch", []),
    ],
    ids=["parse, scrapy-redis", "shell, scrapy", "fetch, scrapy"],
)
def test_scrapys_commands_that_try_a_spider_leave_redis_alone(
    project: Path, client: redis.Redis, name: str, command: str, scheduler: list[str]
) -> None:
    """``parse`` filters by itself, ``shell`` nothing, as without tbloom."""
    lines = [
        'SPIDER_MODULES = ["spiders"]',
        'ADDONS = {"tbloom.scrapy.Addon": 500}',
        'EXTENSIONS = {"tbloom.scrapy.DistinctCounts": 500}',
        'TBLOOM_MARK = "done"',
        f"TBLOOM_COUNT_KEY = {name!r}",
        "TELNETCONSOLE_ENABLED = False",
        f"TBLOOM_KEY = {name!r}",
        f"REDIS_PORT = {client.connection_pool.connection_kwargs['port']}",
        f"SCHEDULER_QUEUE_KEY = '{{{name}}}:requests'",
    ]
    options, pages = TRIALS[command]
    client.zadd(f"{{{name}}}:requests", {"of a crawler": 1})
    (project / "settings.py").write_text("\n".join(lines))
    page = (project / "a.html").as_uri()
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", command, *options, *scheduler, page],
        check=False,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "tbloom's filter is neither asked nor filled" in done.stderr
    assert "ERROR" not in done.stderr
    assert pages == done.stderr.count("Crawled (200)")
    assert [f"{{{name}}}:requests"] == [*client.scan_iter(f"*{name}*")]
    client.delete(f"{{{name}}}:requests")
