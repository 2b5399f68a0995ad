"""Fingerprints: a crawl's are those of its fingerprinter, whichever that is, though tbloom computes Scrapy's own of plain URLs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import scrapy
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy.utils.request import RequestFingerprinter

from tbloom.scrapy.fingerprints import Fingerprints
from tests.helpers.fingerprinters import WithoutSession
from tests.helpers.projects import Project
from tests.helpers.schedulers import ADDON

SCRAPYS = RequestFingerprinter()


def given_by(fingerprinter: Any, request: Request) -> bytes:
    crawler: Any = SimpleNamespace(request_fingerprinter=fingerprinter)
    return Fingerprints(crawler).of(request)


@pytest.mark.parametrize(
    "url",
    [
        *("https://example.com/", "https://example.com", "http://a-b.c2.example.com/x/y-z_1.html"),
        *("https://example.com/A?b=c", "https://example.com/a/?b=c", "https://example.com/a?b="),
        *("https://example.com/a?b=1&a=2", "https://example.com/a#b", "https://example.com/a?b#c"),
        *("https://example.com/a/../b", "https://example.com/.a", "https://example.com/a//b"),
        *("https://example.com/%7ea", "https://example.com/a;b", "https://example.com/a?b=%41"),
        *("HTTPS://EXAMPLE.com/a", "https://example.com:443/", "https://u:p@example.com/a"),
        *("https://xn--4ca.example.com/", "https://é.example.com/é", "https://example.com./a"),
        *("http://127.0.0.1/a", "http://0x7f.1/", "http://[::0:1]/a", "http://localhost/a"),
        *(f"http://localhost:{port}/" for port in (80, 443, 999, 6379, 65535, 59999, "0080", "")),
        *(f"http://{'a' * 63}.com/", f"http://{'a' * 64}.com/", "data:,a", "ftp://example.com/a"),
    ],
)
@pytest.mark.parametrize(
    "more",
    [{}, {"method": "POST"}, {"body": "a"}, {"meta": {"verbatim_url": True}}],
    ids=["GET", "POST", "body", "verbatim"],
)
def test_each_form_of_url_has_the_fingerprint_of_scrapy(url: str, more: Any) -> None:
    request = Request(url, **more)
    assert SCRAPYS.fingerprint(request) == given_by(SCRAPYS, request)


def several(texts: st.SearchStrategy[str], *, between: str) -> st.SearchStrategy[str]:
    return st.lists(texts, max_size=3).map(between.join)


NAMES = st.text("aZ09-_.~%\u00e9 +", min_size=1, max_size=8) | st.sampled_from(["index.html", ".."])
LABELS = st.text("az09-", min_size=1, max_size=5) | st.sampled_from(["xn--4ca", "a" * 63])
URLS = st.builds(
    "{}://{}.{}{}{}".format,
    st.sampled_from(["http", "https"]),
    several(LABELS, between="."),
    st.sampled_from(["com", "example.com", "1"]),
    several(NAMES, between="/").map("/{}".format),
    st.just("") | st.builds("?{}={}".format, NAMES, NAMES) | NAMES.map("?{}".format),
)


@given(URLS)
def some_url(url: str) -> None:
    try:
        request, expected = Request(url), SCRAPYS.fingerprint(Request(url))
    except ValueError:  # of w3lib: it is no URL
        return
    assert expected == given_by(SCRAPYS, request)


@pytest.mark.parametrize("urls", [200, pytest.param(20_000, marks=pytest.mark.check)])
def test_any_url_has_the_fingerprint_of_scrapy(urls: int) -> None:
    settings(max_examples=urls, deadline=None)(some_url)()


class Own(RequestFingerprinter):
    """As a project's: a subclass of Scrapy's."""

    def fingerprint(self, request: Request) -> bytes:
        return WithoutSession().fingerprint(request)


class SetsOwn:
    """An add-on with a fingerprinter."""

    def update_settings(self, settings: Any) -> None:
        settings.set("REQUEST_FINGERPRINTER_CLASS", Own, "addon")


class Answers:
    """A downloader middleware that answers for every site."""

    def process_request(self, request: Request) -> Response:
        return HtmlResponse(request.url)


class Sessions(Project):
    """Asks for one page in two sessions."""

    def links(self) -> Any:
        for session in ("a", "b"):
            yield Request(f"https://www.example.com/page?session={session}")

    def parse(self, response: Response) -> Any:
        yield {"page": response.url}


class SetsOwnLater(Sessions):
    def links(self) -> Any:
        self.crawler.request_fingerprinter = WithoutSession()
        return super().links()


@pytest.mark.parametrize(
    ("spider", "own", "expected"),
    [
        pytest.param(Sessions, {}, 2, id="of Scrapy"),
        pytest.param(Sessions, {"REQUEST_FINGERPRINTER_CLASS": Own}, 1, id="a subclass"),
        pytest.param(Sessions, {"ADDONS": {SetsOwn: 400, **ADDON["ADDONS"]}}, 1, id="of an add-on"),
        pytest.param(SetsOwnLater, {}, 1, id="of the spider"),
    ],
)
def test_pages_are_one_if_the_fingerprinter_of_the_crawl_says_so(
    project: Any, spider: type[scrapy.Spider], own: dict[str, Any], expected: int
) -> None:
    [end] = project(spider, DOWNLOADER_MIDDLEWARES={Answers: 1}, **own)
    assert expected == len(end.items)
