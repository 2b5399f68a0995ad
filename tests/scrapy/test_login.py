"""Sites with a login: what docs/scrapy.md says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.http import FormRequest, Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers.projects import LOCAL, SHARED, Project, marked, path_of, times
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY, STORES

# A login that is dropped, because another crawl was logged in within the window

DROPPED = "it gets no cookie, unless the request has dont_filter=True"


class LogsIn(Project):
    """By a form on a start page, which it finds twice; then the page behind it has another form."""

    #: Of the requests.
    more: Any = {}

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def parse(self, response: Response) -> Any:
        for _ in range(2):
            yield self.form("login", **self.more)
        yield self.request("deep", dont_filter=True, callback=self.parse_deep)

    def parse_deep(self, response: Response) -> Any:
        yield self.form("search")

    def form(self, path: str, **more: Any) -> scrapy.Request:
        form = {"user": "me"}
        return FormRequest(
            f"{self.site}{path}", formdata=form, callback=self.parse_result, **more
        )

    def parse_result(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class LogsInAtOnce(LogsIn):
    """Without a start page."""

    def links(self) -> Iterator[Any]:
        yield self.form("login", **self.more)


class LogsInAgain(LogsIn):
    more: Any = {"dont_filter": True}


class LogsInByLink(LogsIn):
    more: Any = {"method": "GET"}


CHECK = pytest.mark.check
SETUPS = {
    "done": DONE,
    "scheduled": SCHEDULED,
    "dupefilter alone": SCRAPY,
    "exact": {**SCHEDULED, **STORES["exact"], "TBLOOM_ERROR_RATE": None},
    "local": {**SCHEDULED, "TBLOOM_STORE": "local", "TBLOOM_KEY": None},
    "done, local": {**DONE, "TBLOOM_STORE": "local", "TBLOOM_KEY": None},
    "scrapy-redis": {**SCHEDULED, "SCHEDULER": SHARED},
}


@pytest.mark.parametrize("spider", [LogsIn, LogsInAtOnce])
@pytest.mark.parametrize(
    "setup", [pytest.param(name, marks=[CHECK] * (name != "done")) for name in SETUPS]
)
def test_a_crawl_says_once_that_its_login_was_dropped_as_seen(
    project: Any, tmp_path: Path, setup: str, spider: Any
) -> None:
    """Not in the first crawl, which has logged in, and not of forms deeper in the site."""
    settings = SETUPS[setup]
    if settings.get("TBLOOM_STORE") == "local":
        settings = {**settings, "TBLOOM_PATH": str(tmp_path / "seen")}
    first, second = project(spider, spider, **settings)
    assert ["/login user=me"] == [path for path in first.fetched if "login" in path]
    assert [] == [path for path in second.fetched if "login" in path]
    assert [] == first.warnings("dont_filter=True")
    [line] = second.warnings(DROPPED)
    assert "/login" in line


@pytest.mark.parametrize("spider", [LogsInAgain, LogsInByLink])
def test_other_requests_are_dropped_in_silence(project: Any, spider: Any) -> None:
    crawls = project(spider, spider, **DONE)
    assert [[], []] == [crawl.warnings("dont_filter=True") for crawl in crawls]


class WithoutDepth(LogsIn):
    """Nothing says which page is a start page."""

    custom_settings = {"SPIDER_MIDDLEWARES": {"scrapy.spidermiddlewares.depth.DepthMiddleware": None}}  # noqa: RUF012


def test_without_scrapys_depth_nothing_is_said_of_a_login(project: Any) -> None:
    crawls = project(WithoutDepth, WithoutDepth, **DONE)
    assert [[], []] == [crawl.warnings("dont_filter=True") for crawl in crawls]


def test_a_crawl_says_that_another_one_has_claimed_its_login(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """Its cookie is the other one's."""
    form: dict[str, Any] = {"method": "POST", "body": "user=me"}
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.claim(fingerprint(scrapy.Request(f"{site}login", **form)))
        result = crawl("outcomes", DONE, [["login", {"request": form}]])
    assert ([], 1) == (result["fetched"], result["log"].count(DROPPED))
