"""``tbloom.scrapy.PageCacheStorage``: the HTTP cache of real crawls, beside Scrapy's own."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response, XmlResponse
from scrapy.settings import Settings
from scrapy.utils.request import fingerprint

from tbloom import ConfigError, ConfigMismatch
from tbloom.pages import PageStore, calendar
from tbloom.scrapy import ScrapyRedisFingerprinter
from tbloom.scrapy.options import error_line
from tbloom.scrapy.settings import PAGES
from tbloom.scrapy.storage import KEY, _opened
from tests.helpers import website
from tests.helpers.cached import DOCUMENTATION, OURS, THEIRS, Opened, a_crawl, comparable, run
from tests.helpers.making import missing

#: One in 40 of its 530 pages is crawled.
PART = 40
DUMMY = "scrapy.extensions.httpcache.DummyPolicy"
RFC2616 = "scrapy.extensions.httpcache.RFC2616Policy"
URL = "http://a.example/a"


@pytest.fixture
def site() -> Iterator[Any]:
    with website.scripted(time.time()) as server:
        yield server


# Real crawls


def test_a_second_crawl_of_the_python_documentation_fetches_nothing(tmp_path: Path) -> None:
    """Not even ``robots.txt``; and it gets the same items, byte for byte."""
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    with website.folder(str(DOCUMENTATION)) as server:
        files = sorted(DOCUMENTATION.rglob("*.html"))[::PART]
        follow = [f"{server.url}/{path.relative_to(DOCUMENTATION)}" for path in files]
        start = f"{server.url}/contents.html"
        crawl = a_crawl(tmp_path / "pages", [start], ROBOTSTXT_OBEY=True) | {"follow": follow}
        [first], _ = run([crawl])
        asked = dict(server.asked)
        assert ({"/robots.txt", "/contents.html"}, {1}) == (
            {"/robots.txt", "/contents.html"} & asked.keys(),
            set(asked.values()),
        )
        assert 400 / PART < len(first["got"]) == first["stats"]["httpcache/store"] - 1
        [second], _ = run([crawl])
        assert asked == server.asked
        assert len(asked) == second["stats"]["httpcache/hit"]
        assert "httpcache/miss" not in second["stats"]
    assert all(item["flags"] == ["cached"] for item in second["got"])
    assert comparable(first) == comparable(second)
    with PageStore(tmp_path / "pages", readonly=True) as store:
        assert {start, f"{server.url}/robots.txt"} < set(store)
        body = (DOCUMENTATION / "contents.html").read_bytes()
        assert body == store.get(start).body


@pytest.mark.parametrize("policy", [pytest.param(DUMMY, marks=pytest.mark.check), RFC2616])
def test_policies_do_as_with_scrapys_storage(policy: str, tmp_path: Path) -> None:
    """The same requests reach the site, and the same responses the spider, in two crawls and one from the store alone."""
    began = time.time()
    seen = []
    for storage in (THEIRS, OURS):
        with website.scripted(began) as server:
            settings = {
                "HTTPCACHE_ENABLED": True, "HTTPCACHE_STORAGE": storage, "HTTPCACHE_POLICY": policy,
                "HTTPCACHE_DIR": str(tmp_path / storage), "HTTPCACHE_IGNORE_HTTP_CODES": [410],
                "CONCURRENT_REQUESTS": 1,
            }  # fmt: skip
            requests = [{**one, "url": server.url + one["url"]} for one in website.REQUESTS]
            crawl = {"settings": settings, "requests": requests}
            alone = {**crawl, "settings": {**settings, "HTTPCACHE_IGNORE_MISSING": True}}
            crawls, log = run([crawl], [crawl], [alone])
            assert "Traceback" not in log
            text = json.dumps(crawls).replace(server.url, "http://site")
            seen.append((server.asked, json.loads(text)))
    (theirs_asked, theirs), (ours_asked, ours) = seen
    assert theirs_asked == ours_asked
    for one, other in zip(theirs, ours, strict=True):
        cached = {key: n for key, n in one["stats"].items() if key.startswith("httpcache/")}
        assert cached == {k: n for k, n in other["stats"].items() if k.startswith("httpcache/")}
        assert comparable(one) == comparable(other)
    assert "httpcache/store" in ours[0]["stats"]
    assert {"httpcache/hit", "httpcache/miss"} < ours[1]["stats"].keys()
    assert ("httpcache/revalidate" in ours[1]["stats"]) is (policy == RFC2616)
    assert ("httpcache/errorrecovery" in ours[1]["stats"]) is (policy == RFC2616)


def test_spiders_of_one_process_share_the_pages(site: Any, tmp_path: Path) -> None:
    """At once and one after the other; each finds the pages of the other."""
    pages = [f"{site.url}/{name}" for name in ("plain", "json", "gzip", "text")]
    first = [a_crawl(tmp_path, pages[:2]), a_crawl(tmp_path, pages[2:], name="other")]
    crawls, _ = run(first, [a_crawl(tmp_path, pages), a_crawl(tmp_path, pages, name="other")])
    assert {1} == set(site.asked.values())
    assert [None, None, 4, 4] == [one["stats"].get("httpcache/hit") for one in crawls]
    assert (tmp_path / "lock").read_text().strip() == ""  # closed by the last one


def test_a_second_process_stops_at_the_start(site: Any, tmp_path: Path) -> None:
    """With and without the spider's name in the path: nothing is fetched without the cache; one line says why."""
    url = f"{site.url}/plain"
    with PageStore(tmp_path / "tests") as store:
        plain = a_crawl(tmp_path / "tests", [url])
        named = a_crawl(tmp_path / "%(spider)s", [url])
        crawls, log = run([plain], [named])
        assert [(None, "tbloom_error")] * 2 == [
            (crawl["failure"], crawl["finish_reason"]) for crawl in crawls
        ]
        why = f"TBLOOM_PAGES_PATH: {str(tmp_path / 'tests')!r} is being written by process {os.getpid()}; close it there, "
        assert 2 == log.count(f"{why}or only read it here, with TBLOOM_PAGES_READONLY = True")
        assert "Traceback" not in log
        assert ({}, []) == (site.asked, [*store])


def test_a_crawl_reads_beside_a_writer(site: Any, tmp_path: Path) -> None:
    """It stores nothing."""
    with PageStore(tmp_path) as store:
        store.put(f"{site.url}/plain", b"from the cache")
        urls = [f"{site.url}/plain", f"{site.url}/json"]
        [crawl], _ = run([a_crawl(tmp_path, urls, TBLOOM_PAGES_READONLY="True")])
        assert {"GET /json": 1} == site.asked
        assert "from the cache" in [item["body"] for item in crawl["got"]]
        assert 1 == len(store)


def test_a_full_disk_does_not_stop_the_crawl(site: Any, tmp_path: Path) -> None:
    """All pages are delivered, and those with room are stored."""
    urls = [f"{site.url}/{name}" for name in ("plain", "json")]
    with PageStore(tmp_path) as store:
        store.put(URL, os.urandom(200_000))
    [crawl], log = run([a_crawl(tmp_path, urls)], largest_file=150_000)
    assert [200, 200] == [item["status"] for item in crawl["got"]]
    assert (2, "finished") == (crawl["stats"]["tbloom/pages/failed"], crawl["finish_reason"])
    assert 1 == log.count("the crawl goes on: [Errno 27]")
    crawls, _ = run([a_crawl(tmp_path, urls)], [a_crawl(tmp_path, urls)])
    assert [(2, None), (None, 2)] == [
        tuple(one["stats"].get(f"httpcache/{what}") for what in ("firsthand", "hit"))
        for one in crawls
    ]


# The storage by itself


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[datetime]]:
    """``clock[0]`` is the current time."""
    times = [datetime(2019, 6, 3, 12, tzinfo=timezone.utc)]
    monkeypatch.setattr(calendar, "now", lambda: times[0])
    yield times
    assert {} == _opened


@pytest.mark.parametrize(
    "response",
    [
        Response(URL, status=299),
        HtmlResponse(URL, headers={"Content-Type": "text/html"}, body=b"<p>caf\xe9"),
        XmlResponse(URL, headers={"X-A": ["1", "2"], "x-b": b"\xe9", "Content-Type": "text/xml"}),
        Response("https://b.example/elsewhere#part", headers={"Content-Length": "7"}),
    ],
    ids=lambda response: type(response).__name__,
)
def test_what_comes_back(response: Response, tmp_path: Path) -> None:
    request = Request(URL)
    with Opened(tmp_path) as opened:
        opened.store(request, response.replace(ip_address=ip_address("192.0.2.1")))
        got = opened.retrieve(request)
    assert isinstance(got, type(response))
    for name in ("url", "status", "headers", "body"):
        assert getattr(response, name) == getattr(got, name)
    with PageStore(tmp_path, readonly=True) as store:
        page = store.get(URL)
    assert request.meta["cache_timestamp"] == page.at.timestamp()
    assert ("WARC-IP-Address", "192.0.2.1") in page.fields


@pytest.mark.parametrize(
    ("codings", "body", "kept"),
    [
        (["gzip"], b"<p>decoded", []),
        (["deflate", "gzip"], b"<p>decoded", []),
        (["gzip"], gzip.compress(b"<p>", mtime=0), ["gzip"]),
        (["gzip, br"], b"not looked into", ["gzip, br"]),
    ],
)
def test_an_encoding_that_is_not_the_bodys_is_dropped(
    codings: list[str], body: bytes, kept: list[str], tmp_path: Path
) -> None:
    """Scrapy would try to undo it, and fail."""
    headers = [("Content-Type", "text/html"), *(("Content-Encoding", one) for one in codings)]
    with PageStore(tmp_path) as store:
        store.put(URL, body, headers=headers)
    with Opened(tmp_path) as opened:
        response = opened.retrieve(URL)
    assert [one.encode() for one in kept] == response.headers.getlist("Content-Encoding")


def test_a_get_is_addressed_by_its_canonical_url(tmp_path: Path) -> None:
    """Whatever the URL of the response; other requests by their fingerprints."""
    with Opened(tmp_path) as opened:
        opened.store("http://a.example/b?y=1&x=2#part", Response("http://a.example/led-to"))
        posts = [Request(URL, method="POST", body=body) for body in ("a", "b")]
        more = [Request(URL, method="HEAD"), Request(URL, body="in a GET")]
        for request in [*posts, *more]:
            opened.store(request)
        verbatim = Request("http://a.example/v?y=1&x=2", meta={"verbatim_url": True})
        opened.store(verbatim)
        asked = [*posts, *more, verbatim]
        assert [True] * 5 == [opened.retrieve(request) is not None for request in asked]
        assert opened.retrieve(URL) is None
        addresses = {*opened.storage._store}
    keys = {KEY + fingerprint(request) for request in (*posts, *more)}
    url = "http://a.example/b?x=2&y=1"
    with PageStore(tmp_path) as store:
        assert "http://a.example/led-to" == store.get(url).url
    assert keys | {url, verbatim.url} == addresses


class WithoutSession:
    """Gives URLs with different queries the same fingerprint."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request.replace(url=request.url.partition("?")[0]))


def test_another_fingerprinter_decides_which_requests_are_the_same(tmp_path: Path) -> None:
    with Opened(tmp_path, WithoutSession()) as opened:
        opened.store(f"{URL}?session=1")
        assert f"{URL}?session=1" == opened.retrieve(f"{URL}?session=2").url
        opened.store(URL)
        assert URL == opened.retrieve(f"{URL}?session=1").url
        assert [KEY + fingerprint(Request(URL))] == [*opened.storage._store]
    with Opened(tmp_path, ScrapyRedisFingerprinter()) as opened:
        assert opened.retrieve(URL) is None


def test_a_page_expires_by_its_time(tmp_path: Path, clock: list[datetime]) -> None:
    """Its own time, when it was stored; 0: never."""
    with Opened(tmp_path, HTTPCACHE_EXPIRATION_SECS="60") as opened:
        opened.store(URL)
        stored = clock[0]
        for seconds, is_there in ((0, True), (60, True), (61, False)):
            clock[0] = stored + timedelta(seconds=seconds)
            assert is_there is (opened.retrieve(URL) is not None)
        opened.store(URL)
        assert opened.retrieve(URL) is not None
    clock[0] += timedelta(days=10_000)
    with Opened(tmp_path) as opened:
        assert URL == opened.retrieve(URL).url


@pytest.mark.parametrize(
    ("response", "warnings"),
    [
        (Response(URL, headers={"X-A": "a\r\nb"}), 1),
        (Response(URL, status=99), 1),
        (Response("ftp://a.example/a"), 0),
    ],
)
def test_a_response_that_can_t_be_stored_is_refused(
    response: Response, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Opened(tmp_path) as opened:
        opened.store(URL, response)
        opened.store(URL, response)
        assert opened.retrieve(URL) is None
        assert {"tbloom/pages/refused": 2} == opened.stats
    assert warnings == caplog.text.count(f"can't hold <GET {URL}>")


def test_what_can_t_be_read_is_fetched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Opened(tmp_path) as opened:
        opened.store(URL)
        [segment] = tmp_path.glob("*.warc.gz")
        segment.write_bytes(bytes(segment.stat().st_size))
        assert (None, None) == (opened.retrieve(URL), opened.retrieve(URL))
        assert {"tbloom/pages/unread": 2} == opened.stats
    warning = f"<GET {URL}> could not be read from the page store, and counts as not stored"
    assert 1 == caplog.text.count(warning)


# The settings

SLICES = {"TBLOOM_PAGES_GRANULARITY": "d", "TBLOOM_PAGES_SLICES": 7}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"TBLOOM_PAGES_PATH": 5}, "TBLOOM_PAGES_PATH"),
        ({"TBLOOM_PAGES_PATH": "%(name)s"}, "TBLOOM_PAGES_PATH"),
        ({"TBLOOM_PAGES_READONLY": "True"}, "TBLOOM_PAGES_PATH"),  # there is none yet
        (SLICES | {"TBLOOM_PAGES_GRANULARITY": "y"}, "TBLOOM_PAGES_GRANULARITY"),
        (SLICES | {"TBLOOM_PAGES_SLICES": "7.5"}, "TBLOOM_PAGES_SLICES"),
        ({"TBLOOM_PAGES_SLICES": 7}, "TBLOOM_PAGES_GRANULARITY"),
        ({"TBLOOM_PAGES_READONLY": "perhaps"}, "TBLOOM_PAGES_READONLY"),
        ({"TBLOOM_PAGES_CODEC": "br"}, "TBLOOM_PAGES_CODEC"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], names: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{names}: expected"):
        Opened(tmp_path / "new", **settings)
    assert {} == _opened


def test_other_slices_than_the_stores_are_refused(tmp_path: Path) -> None:
    """Also in the process that has the store open."""
    other = SLICES | {"TBLOOM_PAGES_SLICES": 8}
    with Opened(tmp_path, **SLICES), pytest.raises(ConfigMismatch) as caught:
        Opened(tmp_path, **other)
    line = error_line(caught.value, Settings(other), PAGES)
    assert line.startswith("TBLOOM_PAGES_SLICES is 8, the stored one has ")
    with pytest.raises(ConfigMismatch):
        Opened(tmp_path, **SLICES, TBLOOM_TIMEZONE="Asia/Tokyo")
    with Opened(tmp_path, TBLOOM_TIMEZONE="Asia/Tokyo") as opened:  # the filter's
        opened.store(URL)
