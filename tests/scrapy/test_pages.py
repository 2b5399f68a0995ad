"""``tbloom.scrapy.PageCacheStorage``: the HTTP cache of real crawls, beside Scrapy's own."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.http.request import NO_CALLBACK
from scrapy.responsetypes import responsetypes
from scrapy.settings import Settings
from scrapy.utils.request import fingerprint

from tbloom import ConfigError, ConfigMismatch
from tbloom.pages import PageStore
from tbloom.scrapy.extras.httpcache import KEY
from tbloom.scrapy.options import error_line
from tbloom.scrapy.settings import PAGES
from tests.helpers import crawl as crawls
from tests.helpers import website
from tests.helpers.cached import OURS, THEIRS, Opened, caching
from tests.helpers.documents import ROOT
from tests.helpers.fingerprinters import ByCallback, WithoutSession
from tests.helpers.forked import Forked

RFC2616 = "scrapy.extensions.httpcache.RFC2616Policy"
URL = "http://a.example/a"


@pytest.fixture
def site() -> Iterator[Any]:
    """A website of the test's own."""
    with website.served(website.Page, asked=Counter()) as server:
        yield server


def from_cache(result: dict[str, Any], what: str = "hit") -> int:
    """How many responses came from the cache, or what else it has counted."""
    count: int = result["stats"].get(f"httpcache/{what}", 0)
    return count


# Real crawls


def test_a_second_crawl_with_the_cache_fetches_nothing(tmp_path: Path) -> None:
    """Not even ``robots.txt``; and each page is stored byte for byte."""
    pages = [(path.name, path.read_bytes()) for path in sorted((ROOT / "docs").glob("*.md"))]
    settings = {**caching(tmp_path), "ROBOTSTXT_OBEY": True}
    asked: Any = [[page, {}] for page, _ in pages]
    with website.served(partial(SimpleHTTPRequestHandler, directory=ROOT / "docs")) as server:
        address = f"{server.url}/"
        first = crawls.start("pages", address, settings, pages=asked).result()
    second = crawls.start("pages", address, settings, pages=asked).result()
    assert [page for page, _ in pages] == sorted(first["fetched"]) == sorted(second["fetched"])
    assert (len(pages) + 1, 0) == (from_cache(second), from_cache(second, "miss"))
    with PageStore(tmp_path, readonly=True) as store:
        assert {f"{address}robots.txt", *(address + page for page, _ in pages)} == {*store}
        assert all(body == store.get(address + page).body for page, body in pages)


LONG = {"Cache-Control": "max-age=100000"}
OLD = formatdate(datetime.now(UTC).timestamp() - 3600, usegmt=True)
#: What the site's headers are besides; with the same ETag it answers 304, and with a status in place of them by it alone.
ANSWERS: dict[str, Any] = {
    "plain": {},
    "max-age?b=1&a=2": LONG,
    "max-age?a=2&b=1#part": LONG,  # the same page
    # (Once the site has said that it has not changed, it is new for longer than a test may take.)
    "stale": {"Cache-Control": "max-age=1000", "Date": OLD, "ETag": '"v1"'},
    "cut-later": {"ETag": '"v1"'},
    "no-store": {"Cache-Control": "no-store"},
    "expired": {"Expires": "0", "Last-Modified": "Mon, 03 Jun 2019 00:00:00 GMT"},
    "odd-headers": {**LONG, b"X-Caf\xe9": b"\xa0na\xefve\xff", "X-Empty": "", "X": ["a", "a"]},
    "gzip": {"Content-Encoding": "gzip"},
    "json": {"Content-Type": "application/json"},
    **{str(status): status for status in (301, 404, 410)},
}
REQUESTS = [
    *(Request(f"http://a.example/{path}") for path in ANSWERS),
    *(Request(f"{URL}/plain", method=method, body=body) for method in ("GET", "HEAD", "POST") for body in ("a", "b")),
    Request("http://a.example/plain", headers={"Cache-Control": "no-cache"}),
    Request("http://a.example/plain", meta={"dont_cache": True}),
]  # fmt: skip


def answer(request: Request, number: int) -> Response:
    """What the site answers when it is asked for the number-th time."""
    path = request.url.partition("example/")[2]
    given = ANSWERS.get(path, LONG)
    if path == "cut-later" and number:
        raise OSError
    if isinstance(given, int):
        return Response(request.url, given, headers=LONG)
    if "ETag" in given and request.headers.get("If-None-Match") == given["ETag"].encode():
        return Response(request.url, 304, headers={"X-Checked": str(number)})
    headers = {"Date": formatdate(usegmt=True), "Content-Type": "text/html", **given}
    body = b"%s %d" % (path.encode(), number)
    if "Content-Encoding" in given:
        body = gzip.compress(body, mtime=0)
    kind = responsetypes.from_args(headers=Headers(headers), url=request.url, body=body)
    response: Response = kind(request.url, headers=headers, body=body)
    return response


def exchanges(opened: Opened, asked: Counter[bytes]) -> Iterator[tuple[Any, ...]]:
    """What a spider gets for each request, by Scrapy's middleware."""
    for given in REQUESTS:
        request = given.replace()
        try:
            response: Any = opened.middleware.process_request(request)
            if response is None:
                number = asked[fingerprint(given)]
                asked[fingerprint(given)] += 1
                response = opened.middleware.process_response(request, answer(request, number))
        except IgnoreRequest:
            yield ("ignored",)
            continue
        except OSError as error:
            response = opened.middleware.process_exception(request, error)
        headers = {name: value for name, value in response.headers.items() if name != b"Date"}
        flags = "cached" in response.flags, "cache_timestamp" in request.meta
        yield type(response), response.url, response.status, headers, response.body, flags


def copy_cache(folder: Path, pages: Path) -> None:
    command = [sys.executable, ROOT / "examples/scrapy_cache.py", folder, pages]
    subprocess.run(command, check=True)


def test_the_example_copies_a_page_with_another_fingerprint_under_this(tmp_path: Path) -> None:
    plain, own = Request(URL, callback=NO_CALLBACK), Request(URL)
    with Opened(tmp_path / THEIRS, ByCallback(), storage=THEIRS) as opened:
        opened.store(own, Response(URL, body=b"own"))
        opened.store(plain, Response(URL, body=b"plain"))
    copy_cache(tmp_path / THEIRS / "tests", tmp_path / "copied")
    with Opened(tmp_path / "copied", ByCallback()) as opened:
        assert [b"own", b"plain"] == [opened.retrieve(each).body for each in (own, plain)]


@pytest.mark.parametrize(
    "policy",
    [RFC2616, pytest.param("scrapy.extensions.httpcache.DummyPolicy", marks=pytest.mark.check)],
)
def test_policies_do_as_with_scrapys_storage(policy: str, tmp_path: Path) -> None:
    """The same requests reach the site, and the same responses the spider, in two crawls and one from the store alone; so
    they do once the example has copied Scrapy's cache."""
    own = {"HTTPCACHE_POLICY": policy, "HTTPCACHE_IGNORE_HTTP_CODES": [410]}
    own["HTTPCACHE_GZIP"] = policy == RFC2616

    def crawled(folder: str, storage: str, asked: Counter[bytes], *, alone: bool = False) -> Any:
        settings = {**own, "HTTPCACHE_IGNORE_MISSING": alone}
        with Opened(tmp_path / folder, storage=storage, **settings) as opened:
            got = [*exchanges(opened, asked)]
            return got, {key: n for key, n in opened.stats.items() if key.startswith("httpcache/")}

    seen = []
    for storage in (THEIRS, OURS):
        asked = Counter[bytes]()
        crawls = [crawled(storage, storage, asked) for _ in range(2)]
        if storage == THEIRS:
            copy_cache(tmp_path / THEIRS / "tests", tmp_path / "copied")
            copied = crawled("copied", OURS, asked.copy(), alone=True)
        seen.append([*crawls, crawled(storage, storage, asked, alone=True), asked])
    assert seen[0] == seen[1]
    _, (_, stats), alone, _ = seen[0]
    assert alone == copied
    assert {"httpcache/hit", "httpcache/miss"} < stats.keys()
    checked = {"httpcache/revalidate", "httpcache/errorrecovery"}
    assert checked & stats.keys() == (checked if policy == RFC2616 else set())


def test_spiders_of_one_process_share_the_pages(site: Any, tmp_path: Path) -> None:
    """At once and one after the other; each finds the pages of the other."""

    def spider(*pages: str) -> tuple[Any, dict[str, Any]]:
        given = {"site": f"{site.url}/", "pages": [[page, {}] for page in pages], "fetched": []}
        return crawls.Pages, given

    rounds = [[spider("a", "b"), spider("c", "d")], [spider(*"abcd"), spider(*"abcd")]]
    results = Forked(crawls.run, rounds, **caching(tmp_path)).result()
    assert {1} == set(site.asked.values())
    assert [0, 0, 4, 4] == [*map(from_cache, results)]
    assert (tmp_path / "lock").read_text().strip() == ""  # closed by the last one


@pytest.mark.parametrize("folder", ["tests", "%(spider)s"])
def test_a_second_process_stops_at_the_start(
    crawl: Any, site: Any, tmp_path: Path, folder: str
) -> None:
    """With and without the spider's name in the path: nothing is fetched without the cache; one line says why. A crawl that only reads
    goes on, and stores nothing."""
    with PageStore(tmp_path / "tests") as store:
        result = crawl("pages", caching(tmp_path / folder), ["a"], f"{site.url}/")
        assert ([], "tbloom_error") == (result["failures"], result["finish_reason"])
        why = f"TBLOOM_PAGES_PATH: {str(tmp_path / 'tests')!r} is being written by process {os.getpid()}; close it there, "
        said = f"{why}or only read it here, with TBLOOM_PAGES_READONLY = True"
        assert (1, 0) == (result["log"].count(said), result["log"].count("Traceback"))
        assert ({}, []) == (site.asked, [*store])
        store.put(f"{site.url}/a", b"from the cache")
        settings = {**caching(tmp_path / folder), "TBLOOM_PAGES_READONLY": "True"}
        result = crawl("pages", settings, ["a", "b"], f"{site.url}/")
        assert (["a", "b"], {"/b": 1}) == (sorted(result["fetched"]), site.asked)
        assert [] == [stat for stat in result["stats"] if stat.startswith("tbloom/pages/")]
        assert 1 == len(store)


def crawl_with_small_files(largest: int, *arguments: Any, **given: Any) -> dict[str, Any]:
    """A crawl on a disk that is full for larger files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    return crawls.one(*arguments, **given)


def test_a_full_disk_does_not_stop_the_crawl(crawl: Any, site: Any, tmp_path: Path) -> None:
    """All pages are delivered; they are stored once there is room."""
    address, settings, pages = f"{site.url}/", caching(tmp_path), ["a", "b"]
    with PageStore(tmp_path) as store:
        store.put(URL, os.urandom(200_000))
    given = {"pages": [[page, {}] for page in pages]}
    full = Forked(crawl_with_small_files, 150_000, "pages", address, settings, **given).result()
    assert (pages, "finished") == (sorted(full["fetched"]), full["finish_reason"])
    assert 2 == full["stats"]["tbloom/pages/failed"]
    assert 1 == full["log"].count("the crawl goes on: [Errno 27]")
    first, second = (crawl("pages", settings, pages, address) for _ in range(2))
    assert [2, 0] == [from_cache(result, "firsthand") for result in (first, second)]
    assert [0, 2] == [*map(from_cache, (first, second))]


# The storage by itself


@pytest.mark.parametrize(
    ("body", "kept"), [(b"<p>decoded", []), (gzip.compress(b"<p>", mtime=0), [b"gzip"])]
)
def test_an_encoding_that_is_not_the_bodys_is_dropped(
    body: bytes, kept: list[bytes], tmp_path: Path
) -> None:
    """Another program may store bodies that it has decoded, which Scrapy would try to decode."""
    with PageStore(tmp_path) as store:
        store.put(URL, body, headers=[("Content-Encoding", "gzip")])
    with Opened(tmp_path) as opened:
        assert kept == opened.retrieve(URL).headers.getlist("Content-Encoding")


def test_a_get_is_addressed_by_its_canonical_url(tmp_path: Path) -> None:
    """scrapy#900. Whatever the URL of the response. Other requests, and those with other fingerprints than Scrapy's, by these."""
    led, verbatim = f"{URL}?y=1&x=2#part", Request(f"{URL}?b&a", meta={"verbatim_url": True})
    others = [Request(URL, method=method, body="a") for method in ("POST", "HEAD", "GET")]
    with Opened(tmp_path) as opened:
        opened.store(led, Response("http://a.example/led-to"))
        for request in (*others, verbatim):
            opened.store(request)
            assert opened.retrieve(request)
        assert opened.retrieve(URL) is None
        assert "http://a.example/led-to" == opened.retrieve(f"{URL}?x=2&y=1").url
    keys = {KEY + fingerprint(request) for request in others}
    with PageStore(tmp_path) as store:
        assert keys | {f"{URL}?x=2&y=1", verbatim.url} == {*store}
    with Opened(tmp_path, WithoutSession()) as opened:
        assert opened.retrieve(verbatim) is None
        opened.store(f"{URL}?session=1")
        assert f"{URL}?session=1" == opened.retrieve(f"{URL}?session=2").url
    with Opened(
        tmp_path, ByCallback()
    ) as opened:  # of a page with its own, another page may be made
        without, with_own = (
            Request(f"{URL}?x=2&y=1", callback=each) for each in (NO_CALLBACK, None)
        )
        assert "http://a.example/led-to" == opened.retrieve(without).url
        assert opened.retrieve(with_own) is None


@pytest.mark.parametrize(("seconds", "is_there"), [("0", True), ("86400", False), ("90000", True)])
def test_a_page_expires_by_its_time(tmp_path: Path, seconds: str, *, is_there: bool) -> None:
    with PageStore(tmp_path) as store:
        store.put(URL, b"", at=datetime.now(UTC) - timedelta(days=1, seconds=100))
    with Opened(tmp_path, HTTPCACHE_EXPIRATION_SECS=seconds) as opened:
        assert is_there is (opened.retrieve(URL) is not None)


@pytest.mark.parametrize(
    ("response", "warnings"), [(Response(URL, status=99), 1), (Response("ftp://a.example/a"), 0)]
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


def test_a_page_that_can_t_be_read_is_fetched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as not stored (scrapy#2222)."""
    with Opened(tmp_path) as opened:
        opened.store(URL)
        [segment] = tmp_path.glob("*.warc.gz")
        segment.write_bytes(bytes(segment.stat().st_size))
        assert (None, None) == (opened.retrieve(URL), opened.retrieve(URL))
        assert {"tbloom/pages/unread": 2} == opened.stats
    warning = f"<GET {URL}> could not be read from the page store, and counts as not stored"
    assert 1 == caplog.text.count(warning)


SLICES = {"TBLOOM_PAGES_GRANULARITY": "d", "TBLOOM_PAGES_SLICES": 7}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"TBLOOM_PAGES_PATH": "%(name)s"}, "TBLOOM_PAGES_PATH"),
        ({"TBLOOM_PAGES_READONLY": "True"}, "TBLOOM_PAGES_PATH"),  # there is none yet
        (SLICES | {"TBLOOM_PAGES_SLICES": "7.5"}, "TBLOOM_PAGES_SLICES"),
        ({"TBLOOM_PAGES_SLICES": 7}, "TBLOOM_PAGES_GRANULARITY"),
        ({"TBLOOM_PAGES_CODEC": "br"}, "TBLOOM_PAGES_CODEC"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], names: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{names}: expected"):
        Opened(tmp_path / "new", **settings)


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
