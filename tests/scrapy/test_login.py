"""Sites with a login: what docs/scrapy.md says of them."""

from __future__ import annotations

import linecache
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
import scrapy
from scrapy.http import FormRequest, Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers.crawl import Part
from tests.helpers.documents import ROOT, blocks
from tests.helpers.projects import LOCAL, Project, path_of
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY

# A login that is dropped, because another crawl was logged in within the window

DROPPED = "If it logs this crawler in, give it dont_filter=True"


class LogsIn(Project):
    """Logs in by a form that its start page has twice; a page behind it has a search form. LOGIN: how the login is requested."""

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def parse(self, _: Response) -> Any:
        for _ in range(2):
            yield self.login()
        yield self.request("deep", dont_filter=True, callback=self.parse_deep)

    def parse_deep(self, _: Response) -> Any:
        yield self.form("search")

    def login(self) -> scrapy.Request:
        return self.form("login", **self.settings.get("LOGIN", {}))

    def form(self, path: str, **more: Any) -> scrapy.Request:
        given = {"formdata": {"user": "me"}, "callback": self.parse_result, **more}
        return FormRequest(f"{self.site}{path}", **given)

    def parse_result(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class LogsInAtOnce(LogsIn):
    """Without a start page."""

    def links(self) -> Iterator[Any]:
        yield self.login()


CHECK = pytest.mark.check
SETUPS = {"done": DONE, "scheduled": SCHEDULED, "dupefilter alone": SCRAPY}


@pytest.mark.parametrize("spider", [LogsIn, LogsInAtOnce])
@pytest.mark.parametrize(
    "setup", [pytest.param(name, marks=[CHECK] * (name != "done")) for name in SETUPS]
)
def test_a_crawl_says_once_that_its_login_was_dropped(
    project: Any, setup: str, spider: Any
) -> None:
    """Not in the first crawl, which has logged in, and not of forms deeper in the site."""
    first, second = project(spider, spider, **SETUPS[setup])
    assert ["/login user=me"] == [path for path in first.fetched if "login" in path]
    assert [] == [path for path in second.fetched if "login" in path]
    assert [] == first.warnings("dont_filter=True")
    [line] = second.warnings(DROPPED)
    assert "/login" in line


@pytest.mark.parametrize("login", [{"dont_filter": True}, {"method": "GET"}], ids=str)
def test_other_requests_are_dropped_in_silence(project: Any, login: Any) -> None:
    crawls = project(LogsIn, LogsIn, LOGIN=login)
    assert [[], []] == [crawl.warnings("dont_filter=True") for crawl in crawls]


def test_a_crawl_says_that_another_one_has_claimed_its_login(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """The other crawl has the login's cookie."""
    form: dict[str, Any] = {"method": "POST", "body": "user=me"}
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.claim(fingerprint(scrapy.Request(f"{site}login", **form)))
        result = crawl("outcomes", DONE, [["login", {"request": form}]])
    assert ([], 1) == (result["fetched"], result["log"].count(DROPPED))


# The spider of docs/recipes.md, on a site with a login

[CODE] = [each.code for each in blocks(ROOT / "docs/recipes.md") if "class Members" in each.code]
CODE = CODE.replace('"https://example.com/', 'self.site + "')
NAMES: dict[str, Any] = {"__name__": __name__}
linecache.cache["recipes.md"] = len(CODE), None, CODE.splitlines(keepends=True), "recipes.md"
exec(compile(CODE, "recipes.md", "exec"), NAMES)  # noqa: S102 - Scrapy reads the source of callbacks


class AddsMeta(Part):
    """Adds to the meta of each request of a callback, by its method."""

    async def process_spider_output(self, response: Any, result: Any) -> AsyncIterator[Any]:  # noqa: ARG002 - as Scrapy's
        async for output in result:
            if isinstance(output, scrapy.Request):
                output.meta.update(self.crawler.settings.get("META", {}).get(output.method, {}))
            yield output


class Members(NAMES["Members"]):  # type: ignore[misc]
    custom_settings: ClassVar[Any] = {"PASSWORD": "secret", "SPIDER_MIDDLEWARES": {AddsMeta: 1}}


class Forgot(Members):
    custom_settings: ClassVar[Any] = {"PASSWORD": "wrong"}


class ForMembers:
    """Articles for members, for each crawl with these options. The login sets a cookie, and leads to the list."""

    def __init__(self, *crawls: dict[str, Any]) -> None:
        self.crawls, self.cookie, self.left = crawls, "", 0

    def __call__(self, site: Any, path: str) -> None:
        number = int(site.server.number)
        options = {"articles": 2, "logs_out": 0, "redirects": False, **self.crawls[number]}
        is_member = site.headers.get("Cookie") == self.cookie
        if path.startswith("/login "):
            cookie, self.left = f"session={number}", options["logs_out"]
            self.cookie = cookie if path.endswith("password=secret") else ""
            site.answer(302, Location="/list", Set_Cookie=cookie)
        elif is_member and path == "/list":
            site.answer(200, b"".join(ARTICLE % n for n in range(options["articles"])))
        elif is_member and path == options.get("fails"):
            site.answer(503)
        elif is_member and path != "/login":
            self.left -= 1
            self.cookie = self.cookie if self.left else ""
            site.answer(200, b"<title>an article</title>")
        elif options["redirects"] and path != "/login":
            site.answer(302, Location="/login")
        else:
            site.answer(200, b'<form class="login" method="post">')


ARTICLE = b'<a class="article" href="/%d">'
MARKS = pytest.mark.parametrize("mark", ["done", LOCAL])
LOGIN = ["/login", "/login user=me&password=secret", "/list"]


@MARKS
def test_each_crawl_logs_in_and_fetches_the_new_pages(project: Any) -> None:
    first, second = project(Members, Members, answers=ForMembers({}, {"articles": 3}))
    assert [*LOGIN, "/0", "/1"] == [*first.fetched[:3], *sorted(first.fetched[3:])]
    assert ([*LOGIN, "/2"], 1) == (second.fetched, len(second.items))


@MARKS
@pytest.mark.parametrize("meta", [{}, {"cookiejar": "me"}], ids=["one account", "several"])
def test_a_failed_page_is_fetched_after_the_next_login(project: Any, meta: dict[str, Any]) -> None:
    """No link leads to it, and the site sees the new cookie."""
    answers = ForMembers({"fails": "/1"}, {"articles": 0})
    _, second = project(Members, Members, answers=answers, META={"GET": meta, "POST": meta})
    assert ([*LOGIN, "/1"], 1) == (second.fetched, len(second.items))


def test_a_failed_page_waits_for_a_login_that_works(project: Any) -> None:
    """Crawls whose login fails do not count."""
    answers = ForMembers({"fails": "/1"}, {}, {}, {}, {"articles": 0})
    _, *failed, last = project(Members, *[Forgot] * 3, Members, answers=answers)
    assert [("login_failed", 3)] * 3 == [(end.reason, len(end.fetched)) for end in failed]
    assert [*LOGIN, "/1"] == last.fetched


@MARKS
@pytest.mark.parametrize(("redirects", "why"), [(False, "tbloom_done"), (True, "status/302")])
def test_articles_after_a_logout_are_fetched_by_the_next_crawl(
    project: Any, *, redirects: bool, why: str
) -> None:
    """Whether the site shows its login in place of them, or redirects to it."""
    answers = ForMembers({"logs_out": 1, "redirects": redirects, "articles": 9}, {"articles": 9})
    first, second = project(Members, Members, answers=answers, CONCURRENT_REQUESTS=1)
    assert 8 == first.stats["tbloom/failed"] == first.stats[f"tbloom/failed/{why}"]
    assert 1 == len(first.items)
    assert 3 + 8 == len({*second.fetched}) == len(second.fetched)
