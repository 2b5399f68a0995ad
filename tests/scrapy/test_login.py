"""Sites with a login: what docs/scrapy.md says of them."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http import FormRequest, Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers.crawl import Part, run
from tests.helpers.documents import DOCUMENTS, blocks
from tests.helpers.forked import in_turn
from tests.helpers.projects import LOCAL, Project, marked, path_of, times
from tests.helpers.schedulers import DONE, SCHEDULED, SCRAPY
from tests.helpers.website import Handler, served

# A login that is dropped, because another crawl was logged in within the window

DROPPED = "If it logs this crawler in, give it dont_filter=True"


class LogsIn(Project):
    """Logs in by a form that its start page has twice; a page behind it has a search form."""

    #: How the login is requested.
    is_filtered, method = True, "POST"

    def links(self) -> Iterator[Any]:
        yield self.request("start", dont_filter=True)

    def parse(self, _: Response) -> Any:
        for _ in range(2):
            yield self.form("login", not self.is_filtered, self.method)
        yield self.request("deep", dont_filter=True, callback=self.parse_deep)

    def parse_deep(self, _: Response) -> Any:
        yield self.form("search")

    def form(self, path: str, dont_filter: bool = False, method: str = "POST") -> scrapy.Request:
        form = {"user": "me"}
        return FormRequest(
            f"{self.site}{path}",
            formdata=form,
            method=method,
            dont_filter=dont_filter,
            callback=self.parse_result,
        )

    def parse_result(self, response: Response) -> Any:
        yield {"page": path_of(response)}


class LogsInAtOnce(LogsIn):
    """Without a start page."""

    def links(self) -> Iterator[Any]:
        yield self.form("login", not self.is_filtered, self.method)


class LogsInUnfiltered(LogsIn):
    is_filtered = False


class LogsInByLink(LogsIn):
    method = "GET"


CHECK = pytest.mark.check
SETUPS = {"done": DONE, "scheduled": SCHEDULED, "dupefilter alone": SCRAPY}


@pytest.mark.parametrize("spider", [LogsIn, LogsInAtOnce])
@pytest.mark.parametrize(
    "setup", [pytest.param(name, marks=[CHECK] * (name != "done")) for name in SETUPS]
)
def test_a_crawl_says_once_that_its_login_was_dropped_as_seen(
    project: Any, setup: str, spider: Any
) -> None:
    """Not in the first crawl, which has logged in, and not of forms deeper in the site."""
    first, second = project(spider, spider, **SETUPS[setup])
    assert ["/login user=me"] == [path for path in first.fetched if "login" in path]
    assert [] == [path for path in second.fetched if "login" in path]
    assert [] == first.warnings("dont_filter=True")
    [line] = second.warnings(DROPPED)
    assert "/login" in line


@pytest.mark.parametrize("spider", [LogsInUnfiltered, LogsInByLink])
def test_other_requests_are_dropped_in_silence(project: Any, spider: Any) -> None:
    crawls = project(spider, spider, **DONE)
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


# The spider of docs/scrapy.md, on a site with a login


class Site(Handler):
    """Articles for members. The login sets a cookie, and leads to their list."""

    def get(self) -> None:
        site, cookie = self.server, self.headers.get("Cookie", "")
        form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        site.asked[-1].append(f"{self.command} {self.path[1:]}")
        is_member = cookie in site.members
        if form:
            cookie = f"session={len(site.asked)}"
            site.members = {cookie} if form == "user=me&password=secret" else set()
            self.answer(302, Location="/list", Set_Cookie=cookie)
        elif is_member and self.path == "/list":
            self.answer(200, b"".join(ARTICLE % n for n in range(site.articles)))
        elif is_member and self.path == site.fails:
            self.answer(503)
        elif is_member and self.path != "/login":
            site.logs_out -= 1
            if not site.logs_out:
                site.members = set()
            self.answer(200, b"<title>an article</title>")
        elif site.redirects and self.path != "/login":
            self.answer(302, Location="/login")
        else:
            self.answer(200, FORM)


FORM, ARTICLE = b'<form class="login" method="post">', b'<a class="article" href="/%d">'


def code_of_the_docs() -> str:
    """Return the code of the spider."""
    page = next(path for path in DOCUMENTS if path.name == "scrapy.md")
    [block] = [block for block in blocks(page) if "class Members" in block.code]
    return block.code


class AddsMeta(Part):
    """Adds to the meta of each request of a callback, by its method."""

    by_method: Mapping[str, Any]

    async def process_spider_output(self, response: Any, result: Any) -> AsyncIterator[Any]:  # noqa: ARG002 - as Scrapy's
        async for output in result:
            if isinstance(output, scrapy.Request):
                output.meta.update(self.by_method.get(output.method, {}))
            yield output


def crawl_members(
    file: Path, rounds: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[tuple[list[str], dict[str, Any]]]:
    """Run a crawl for each round, with its changes to the site and the settings. Return what each asked for, and its end."""
    usual = {"articles": 2, "logs_out": 0, "redirects": False, "fails": "", "members": set()}
    with served(Site, asked=[]) as site:
        code = file.read_text(encoding="utf-8")
        file.write_text(code.replace("https://example.com", site.url), encoding="utf-8")
        spider = runpy.run_path(str(file))["Members"]

        def begin() -> Iterator[Any]:
            for changes in rounds:
                site.asked.append([])
                for name, value in {**usual, **changes}.items():
                    setattr(site, name, value)
                middleware = type("OfCrawl", (AddsMeta,), {"by_method": changes.get("meta", {})})
                own = {
                    "SPIDER_MIDDLEWARES": {middleware: 1},
                    "PASSWORD": changes.get("password", "secret"),
                }
                yield [(spider, {"custom_settings": own})]

        ends = run(begin(), **settings)
        return [*zip(site.asked, ends, strict=True)]


@pytest.fixture
def crawls(url: str, name: str, tmp_path: Path) -> Any:
    """Return a function that calls ``crawl_members``."""

    def crawls(mark: str, *rounds: Mapping[str, Any], **more: Any) -> Any:
        own = {"REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_ERROR_RATE": 1e-9, **more}
        settings = {**own, **marked(mark, tmp_path)}
        settings = {name: value for name, value in settings.items() if value is not None}
        file = tmp_path / "members.py"
        file.write_text(code_of_the_docs(), encoding="utf-8")
        return in_turn(crawl_members, file, rounds, settings)

    return crawls


MARKS = pytest.mark.parametrize("mark", ["done", LOCAL])
LOGIN = ["GET login", "POST login", "GET list"]


@MARKS
def test_each_crawl_logs_in_and_fetches_the_new_pages(crawls: Any, mark: str) -> None:
    (first, _), (second, end) = crawls(mark, {}, {"articles": 3})
    assert [*LOGIN, "GET 0", "GET 1"] == [*first[:3], *sorted(first[3:])]
    assert [*LOGIN, "GET 2"] == second
    assert 1 == end["stats"]["item_scraped_count"]


@MARKS
@pytest.mark.parametrize("meta", [{}, {"cookiejar": "me"}], ids=["one account", "several"])
def test_a_page_that_failed_behind_a_login_is_fetched_after_the_next_login(
    crawls: Any, mark: str, meta: dict[str, Any]
) -> None:
    """No link leads to it, and the site sees the new cookie."""
    own = {"meta": {"GET": meta, "POST": meta}}
    _, (second, end) = crawls(mark, {"fails": "/1", **own}, {"articles": 0, **own})
    assert [*LOGIN, "GET 1"] == second
    assert 1 == end["stats"]["item_scraped_count"]


def test_a_page_that_failed_waits_for_a_login_that_does_not_fail(crawls: Any) -> None:
    """Crawls whose login fails do not count."""
    wrong = {"password": "wrong"}
    _, *failed, (last, _) = crawls("done", {"fails": "/1"}, *[wrong] * 3, {"articles": 0})
    assert [LOGIN] * 3 == [asked for asked, _ in failed]
    assert ["login_failed"] * 3 == [end["finish_reason"] for _, end in failed]
    assert [*LOGIN, "GET 1"] == last


class EndsWithoutLogin(Project):
    """The first crawl also requests another page."""

    def links(self) -> Iterator[Any]:
        url = f"{self.site}login"
        yield FormRequest(url, formdata={"user": "me"}, errback=self.failed, dont_filter=True)
        if not self.number:
            yield self.request("a")

    def failed(self, _: Any) -> None:
        raise CloseSpider("login_failed")


def test_an_errback_can_end_a_crawl_whose_login_fails(project: Any) -> None:
    answers = {"/login user=me": [200, 500, 200], "/a": [503]}
    crawls = project(*[EndsWithoutLogin] * 3, answers=answers, **DONE)
    assert [1, 0, 1] == times(crawls)["a"]
    assert "login_failed" == crawls[1].reason


@MARKS
@pytest.mark.parametrize("redirects", [False, True])
def test_articles_after_the_end_of_a_login_are_fetched_by_the_next_crawl(
    crawls: Any, mark: str, *, redirects: bool
) -> None:
    """Whether the site shows its login in place of them, or redirects to it."""
    ends = {"logs_out": 1, "redirects": redirects}
    articles = {"articles": 9}
    (_, first), (second, _) = crawls(mark, {**ends, **articles}, articles, CONCURRENT_REQUESTS=1)
    reason = "status/302" if redirects else "tbloom_done"
    assert 8 == first["stats"]["tbloom/failed"] == first["stats"][f"tbloom/failed/{reason}"]
    assert 1 == first["stats"]["item_scraped_count"]
    assert 3 + 8 == len({*second}) == len(second)


def test_three_articles_that_redirect_to_a_login_may_count_as_done(crawls: Any) -> None:
    """Without ``dont_redirect``. The next crawl fetches the others."""
    ends = {"logs_out": 1, "redirects": True, "meta": {"GET": {"dont_redirect": False}}}
    (_, first), (second, _) = crawls("done", {"articles": 9, **ends}, {"articles": 9})
    assert 5 <= first["stats"]["tbloom/failed"]
    assert first["stats"]["tbloom/failed"] == len(second) - 3


class SendsItsSession(Project):
    """Sends a session in cookies= and in headers=."""

    def links(self) -> Iterator[Any]:
        session = {"session": str(self.number)}
        yield self.request("start", dont_filter=True)
        if not self.number:
            yield self.request("a", cookies=session)
            yield self.request("b", headers={"Authorization": str(session)})


class NotesSession(Part):
    """A downloader middleware behind that of the cookies."""

    def process_request(self, request: scrapy.Request) -> None:
        names = ("Cookie", "Authorization")
        found = [request.headers[name].decode() for name in names if name in request.headers]
        self.crawler.spider.said.append((path_of(request), found))


def test_a_session_in_cookies_or_headers_is_sent_again_by_the_next_crawl(project: Any) -> None:
    """A failed page is fetched as it was linked."""
    more = {**DONE, "DOWNLOADER_MIDDLEWARES": {NotesSession: 999}}
    answers = {"/a": [503, 200], "/b": [503, 200]}
    crawls = project(SendsItsSession, SendsItsSession, answers=answers, **more)
    for crawl in crawls:
        said = dict(crawl.said)
        assert [["session=0"], ["{'session': '0'}"]] == [said["a"][:1], said["b"][-1:]]
