"""Scrapy's own HTTP caches, imported into a page store."""

from __future__ import annotations

import gzip
import importlib
import os
import pickle
import shutil
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.utils.request import fingerprint

from tbloom.errors import TBloomError
from tbloom.pages import PageStore, calendar
from tbloom.pages.exchange.importing import PagesImported, import_pages
from tbloom.scrapy import ScrapyRedisFingerprinter
from tbloom.scrapy.pages.caches import ScrapyCaches, caches_at
from tests.helpers import cachesite
from tests.helpers.cached import DOCUMENTATION, THEIRS, Opened, a_crawl, comparable, run
from tests.helpers.making import missing

DBM = "scrapy.extensions.httpcache.DbmCacheStorage"
URL = "http://a.example/a"
#: One in twenty of Debian's 530 pages.
PART = 20


def _is_there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


STORAGES: dict[str, dict[str, Any]] = {
    "files": {"storage": THEIRS},
    "gzipped": {"storage": THEIRS, "HTTPCACHE_GZIP": True},
    **{
        kind: {"storage": DBM, "HTTPCACHE_DBM_MODULE": f"dbm.{kind}"}
        for kind in ("dumb", "gnu", "ndbm", "sqlite3")
        if _is_there(f"dbm.{kind}")
    },
}
every_storage = pytest.mark.parametrize("settings", STORAGES.values(), ids=STORAGES)


def exchanges() -> list[tuple[Request, Response]]:
    """Requests of all kinds, and what a site answered."""
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    found: list[tuple[Request, Response]] = []
    for path in sorted(DOCUMENTATION.rglob("*.html"))[::PART]:
        url = f"https://docs.example/{path.relative_to(DOCUMENTATION)}"
        headers = {"Content-Type": "text/html", "Content-Length": str(path.stat().st_size)}
        found.append((Request(url), HtmlResponse(url, headers=headers, body=path.read_bytes())))
    latin = {"X-Caf\xe9".encode("latin-1"): b"na\xefve\xff", "X-Empty": "", "X-Space": "a  b"}
    gzipped = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
    some: dict[str, Response] = {
        "https://a.example/?y=1&x=2#part": TextResponse(
            "https://a.example/?y=1&x=2", body="caf\xe9", encoding="cp1252"
        ),
        f"{URL}/301": Response(f"{URL}/301", status=301, headers={"Location": "/b"}),
        f"{URL}/404": HtmlResponse(f"{URL}/404", status=404, body=b"<p>gone", flags=["a", "\xe9"]),
        f"{URL}/cookies": Response(
            f"{URL}/cookies", headers={"Set-Cookie": ["a=1", "b=2", "a=1"], "X-A": "1"}
        ),
        f"{URL}/bytes": Response(f"{URL}/bytes", body=bytes(range(256)) * 9, protocol="h2"),
        f"{URL}/gzip": Response(f"{URL}/gzip", headers=gzipped, body=gzip.compress(b"<p>")),
        f"{URL}/latin": Response(f"{URL}/latin", headers=latin, ip_address=ip_address("::1")),
        f"{URL}/feed": XmlResponse(f"{URL}/feed", body=b"<?xml?>", protocol="HTTP/1.1"),
        f"{URL}/json": JsonResponse(f"{URL}/json", body=b"{}", ip_address=ip_address("192.0.2.1")),
        f"{URL}/plain": Response(f"{URL}/plain", headers={"Content-Type": "text/html"}),
    }
    found += [(Request(url), response) for url, response in some.items()]
    found += [
        (Request(URL, method=method, body=body), TextResponse(URL, body=f"{method} {body}".encode()))
        for method in ("GET", "POST", "HEAD")
        for body in ("", "a", "b")
    ]  # fmt: skip
    if hasattr(Response, "to_dict"):  # Scrapy 2.19
        verbatim = Request("http://a.example/v?y=1&x=2", meta={"verbatim_url": True})
        found.append((verbatim, Response(verbatim.url, body=b"verbatim")))
    return found


def answers(opened: Opened, requests: list[Request]) -> tuple[list[list[Any]], Any]:
    """All that the storage says of each request; and the times of the pages."""
    found, times = [], []
    for request in requests:
        response = opened.retrieve(request)
        assert response is not None, request
        names = ["url", "status", "headers", "body"]
        if hasattr(Response, "to_dict"):  # before 2.19 Scrapy's storages give back less
            names += ["flags", "ip_address", "protocol"]
            names += ["encoding"] if isinstance(response, TextResponse) else []
            times.append(request.meta["cache_timestamp"])
        found.append([type(response), *(getattr(response, name) for name in names)])
    return found, pytest.approx(times, abs=2e-6)  # a page has microseconds


def caches(path: Path, **options: Any) -> ScrapyCaches:
    """The caches at a path where there are some."""
    found = caches_at(path, **options)
    assert found is not None
    return found


def imported(cache: Path, pages: Path, **options: Any) -> PagesImported:
    source = caches(cache, **options)
    with PageStore(pages) as store:
        result = import_pages(store, source)
    assert source.done == source.total
    return result


def filled(folder: Path, *urls: str) -> list[Path]:
    """The folders of pages with these URLs in a cache of files."""
    with Opened(folder, storage=THEIRS) as opened:
        for url in urls:
            opened.store(url)
    keys = [fingerprint(Request(url)).hex() for url in urls]
    return [folder / "tests" / key[:2] / key for key in keys]


@every_storage
def test_the_store_answers_like_the_cache(settings: dict[str, Any], tmp_path: Path) -> None:
    """Every page byte for byte, with its class and its time; and so after it was imported again."""
    asked = exchanges()
    with Opened(tmp_path / "cache", **settings) as opened:
        for request, response in asked:
            opened.store(request, response)
        theirs, times = answers(opened, [request for request, _ in asked])
    for stored, present in ((len(asked), 0), (0, len(asked))):
        result = imported(tmp_path / "cache", tmp_path / "pages")
        assert PagesImported(stored, present, {}, ()) == result
    with Opened(tmp_path / "pages") as opened:
        ours, imported_times = answers(opened, [request for request, _ in asked])
        assert (theirs, times) == (ours, imported_times.expected)
    with PageStore(tmp_path / "pages", readonly=True) as store:
        assert "https://a.example/?x=2&y=1" in store
        assert asked[0][1].body == store.get(asked[0][0].url).body


@pytest.mark.check
def test_a_crawl_with_an_imported_cache_fetches_nothing(tmp_path: Path) -> None:
    """Its spider gets what it got from the sites: the Python documentation, and one with answers of all kinds."""
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    files = [one for one in sorted(DOCUMENTATION.rglob("*")) if one.is_file()][:: 3 * PART]
    with cachesite.scripted(time.time()) as site, cachesite.folder(str(DOCUMENTATION)) as docs:
        # Scrapy refuses the odd headers; the others are not the same twice.
        never = [f"{site.url}/{name}" for name in ("odd-headers", "cut-later", "undated")]
        requests = [{**one, "url": site.url + one["url"]} for one in cachesite.REQUESTS]
        requests = [one for one in requests if one["url"] not in never and "meta" not in one]
        requests += [{"url": f"{docs.url}/{one.relative_to(DOCUMENTATION)}"} for one in files]
        crawls: list[list[dict[str, Any]]] = [[], []]
        for name in ("gzipped", "dumb"):
            theirs = {"HTTPCACHE_DIR": str(tmp_path / name), **STORAGES[name]}
            theirs["HTTPCACHE_STORAGE"] = theirs.pop("storage")
            for round, settings in zip(crawls, (theirs, {}), strict=True):
                crawl = a_crawl(tmp_path / f"{name}-pages", [], CONCURRENT_REQUESTS=1, **settings)
                round.append({**crawl, "requests": requests})
        first, _ = run(crawls[0])
        for name in ("gzipped", "dumb"):
            assert {} == imported(tmp_path / name, tmp_path / f"{name}-pages").skipped
        asked = site.asked + docs.asked
        second, log = run(crawls[1])
        assert (asked, False) == (site.asked + docs.asked, "Traceback" in log)
    for one, other in zip(first, second, strict=True):
        assert "httpcache/miss" not in other["stats"]
        assert len(requests) == len(one["got"])
        for result in (one, other):
            for item in result["got"]:
                for name in ("flags", "stamped"):
                    item.pop(name, None)
        assert comparable(one) == comparable(other)


@every_storage
def test_pages_expire_by_the_time_in_the_cache(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Opened(tmp_path / "cache", **settings) as opened:
        opened.store(URL)
    imported(tmp_path / "cache", tmp_path / "pages")
    with PageStore(tmp_path / "pages", readonly=True) as store:
        at = store.get(URL).at
    for seconds, is_there in ((59, True), (61, False)):
        now = at + timedelta(seconds=seconds)
        monkeypatch.setattr(calendar, "now", lambda now=now: now)
        with Opened(tmp_path / "pages", HTTPCACHE_EXPIRATION_SECS=60) as opened:
            assert is_there is (opened.retrieve(URL) is not None)


def test_the_newest_page_of_a_url_stays(tmp_path: Path) -> None:
    """Of several spiders, and of the store."""
    [first] = filled(tmp_path / "cache", URL)
    other = tmp_path / "cache" / "other" / first.parent.name / first.name
    shutil.copytree(first, other)
    (other / "response_body").write_bytes(b"newer")
    meta = (other / "meta").read_text()
    (other / "meta").write_text(meta.replace("'timestamp': ", "'timestamp': 9 + 0 * "))
    assert 1 == len(imported(tmp_path / "cache", tmp_path / "odd").damaged)  # no literal
    (other / "meta").write_text(meta.replace("'timestamp': 1", "'timestamp': 2"))
    assert 2 == caches(tmp_path / "cache").total
    assert 1 == caches(tmp_path / "cache" / "other").total
    imported(tmp_path / "cache", tmp_path / "pages")
    with PageStore(tmp_path / "pages") as store:
        assert b"newer" == store.get(URL).body
        store.put(URL, b"newest", at=datetime(2100, 1, 1, tzinfo=timezone.utc))
    assert (0, 2) == (
        (result := imported(tmp_path / "cache", tmp_path / "pages")).stored,
        result.present,
    )


class WithoutSession:
    """Gives URLs with different queries the same fingerprint: that of Scrapy's for the URL without one."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request.replace(url=request.url.partition("?")[0]))


@every_storage
def test_a_fingerprinter_of_ones_own(settings: dict[str, Any], tmp_path: Path) -> None:
    """What another one has made of a request is its address; the option is for one that agrees with Scrapy's on some."""
    for fingerprinter, by_fingerprint in (
        (WithoutSession(), True),
        (ScrapyRedisFingerprinter(), False),
    ):
        name = type(fingerprinter).__name__
        with Opened(tmp_path / name, fingerprinter, **settings) as opened:
            opened.store(URL)
            opened.store(Request(URL, method="POST"))
        imported(tmp_path / name, tmp_path / f"{name}-pages", by_fingerprint=by_fingerprint)
        with Opened(tmp_path / f"{name}-pages", fingerprinter) as opened:
            assert opened.retrieve(URL) is not None
            assert opened.retrieve(Request(URL, method="POST")) is not None
            assert by_fingerprint is (opened.retrieve(f"{URL}?session=1") is not None)


class Calls:
    """Its pickle calls ``os.mkdir``, or another function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.called = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.called


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta", b"os.mkdir('made')"),
        ("meta", b"{'url': "),
        ("meta", b"{}"),
        ("meta", b"\x1f\x8bno gzip"),
        ("meta", b"-" * 100_000 + b"1"),
        ("response_headers", None),
        ("response_body", None),
        ("request_body", None),
        ("response_data", b""),
        ("response_data", pickle.dumps({"flags": [Calls(os.mkdir, "made")]})),
        ("response_data", pickle.dumps({"flags": Calls(getattr, "", "join")})),
        ("response_data", pickle.dumps(["no dict"])),
    ],
)
def test_what_scrapy_did_not_write_is_damaged(
    name: str, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it is called; the other pages are imported."""
    monkeypatch.chdir(tmp_path)
    page, _ = filled(tmp_path / "cache", URL, f"{URL}b")
    (page / name).unlink(missing_ok=True)
    if content is not None:
        (page / name).write_bytes(content)
    elif name == "meta":
        page.rmdir()
    result = imported(tmp_path / "cache", tmp_path / "pages")
    assert (1, {"damaged": 1}) == (result.stored, result.skipped)
    assert result.damaged[0].startswith(f"{page}: ")
    assert not (tmp_path / "made").exists()


def test_a_database_of_strangers_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Opened(tmp_path / "cache", **STORAGES["dumb"]) as opened:
        opened.store(URL)
        opened.storage.db["aa_data"] = pickle.dumps(Calls(os.mkdir, "made"))
        opened.storage.db["bb_data"] = pickle.dumps({"url": URL})
        opened.storage.db["bb_time"] = "1"
        opened.storage.db["other"] = "no page"
    result = imported(tmp_path / "cache", tmp_path / "pages")
    assert (1, {"damaged": 2}) == (result.stored, result.skipped)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["my.HtmlResponse", "os.system", 5])
def test_a_class_of_others_is_chosen_by_scrapy(kind: object, tmp_path: Path) -> None:
    [page] = filled(tmp_path / "cache", URL)
    (page / "response_body").write_bytes(b"<html>")
    (page / "response_data").write_bytes(pickle.dumps({"_class": kind, "encoding": "cp1252"}))
    imported(tmp_path / "cache", tmp_path / "pages")
    with Opened(tmp_path / "pages") as opened:
        assert HtmlResponse is type(opened.retrieve(URL))


def test_what_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.db").write_bytes(b"another program's")
    (tmp_path / "file").write_bytes(b"")
    with PageStore(tmp_path / "pages") as store:
        store.put(URL, b"")
    for path in (tmp_path, *tmp_path.iterdir(), tmp_path / "missing"):
        assert caches_at(path) is None


def test_one_database_of_several_files(tmp_path: Path) -> None:
    """By its name, or the name of one of its files."""
    with Opened(tmp_path, **STORAGES["dumb"]) as opened:
        opened.store(URL)
    for name in ("", "tests.db", "tests.db.dat", "tests.db.dir"):
        assert 1 == caches(tmp_path / name).total


def test_a_database_that_can_t_be_opened(tmp_path: Path) -> None:
    gnu = (0x13579ACE).to_bytes(4, "little") + bytes(100)
    (tmp_path / "tests.db").write_bytes(gnu)
    with pytest.raises(TBloomError, match=r"tests\.db' can't be opened: "):
        caches_at(tmp_path)
