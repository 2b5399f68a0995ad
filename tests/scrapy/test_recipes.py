"""The examples of the documents, in crawls."""

from __future__ import annotations

import io
import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from tests.helpers import crawl as crawls
from tests.helpers.documents import ROOT, blocks, example
from tests.helpers.forked import Forked
from tests.helpers.projects import Project
from tests.helpers.schedulers import ADDON, DONE
from tests.scrapy.test_sharing import nothing, wait_for_waiting
from tests.scrapy.test_start import scrapy_in


class GivesUp(Project):
    """Its callback is that of the page on Scrapy; a title comes with the third answer only."""

    pages = ("a",)
    parse = example("scrapy.md", "get_retry_request", __name__)["parse"]


def test_the_next_crawl_fetches_what_a_callback_gave_up(done_project: Any) -> None:
    """scrapy#4902: get_retry_request returns None then, as a callback does that is done."""
    answers = {"/a": [200, 200, b"<h1>A</h1>"]}
    ends = done_project(*[GivesUp] * 3, answers=answers, RETRY_TIMES=1)
    assert [["/a"] * 2, ["/a"], []] == [end.fetched for end in ends]
    assert 1 == ends[0].stats["tbloom/failed/tbloom_done"]
    assert [[], [{"title": "A"}], []] == [end.items for end in ends]


class ManyPages(Project):
    pages = tuple(map(str, range(120)))


HostLimit: Any = example("recipes.md", "class HostLimit", __name__)["HostLimit"]


class GoesOn(HostLimit):
    """Without the recipe's line of ``tbloom_done``."""

    def process_request(self, request: Any) -> None:
        try:
            super().process_request(request)
        except IgnoreRequest:
            del request.meta["tbloom_done"]
            raise


@pytest.mark.check
@pytest.mark.parametrize(("limit", "later"), [(HostLimit, 0), (GoesOn, 20)])
def test_at_most_so_many_pages_of_a_host_are_fetched(
    done_project: Any, limit: Any, later: int
) -> None:
    """scrapy#1553, scrapy-cluster#103, katana#1611: the others are done, or left to the next crawl."""
    first, second = done_project(*[ManyPages] * 2, DOWNLOADER_MIDDLEWARES={limit: 50})
    assert [100, later] == [len(end.fetched) for end in (first, second)]
    assert len({*first.fetched, *second.fetched}) == 100 + later


HeedsRobotsTxt = example("recipes.md", "RobotsTxtMiddleware)", __name__)["HeedsRobotsTxt"]


class Forbidden(Project):
    pages = tuple(map(str, range(30)))


def test_no_page_is_fetched_that_robots_txt_forbids(done_project: Any) -> None:
    """scrapy#2014: nor with requests that wait for it together. They count as forbidden."""
    own = {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        HeedsRobotsTxt: 100,
    }
    answers = {"/robots.txt": [b"User-agent: *\nDisallow: /\n"]}
    more = {"ROBOTSTXT_OBEY": True, "DOWNLOADER_MIDDLEWARES": own}
    [end] = done_project(Forbidden, answers=answers, **more)
    assert ["/robots.txt"] == end.fetched
    assert 30 == end.stats["robotstxt/forbidden"] == end.stats["tbloom/forbidden"]


#: The recipes with files and settings, by a word of their headings; not the one that needs scrapy-playwright's browser.
PRINTED = {
    part.splitlines()[0]: part
    for part in (ROOT / "docs" / "recipes.md").read_text("utf-8").split("\n## ")
    if "# settings.py" in part and "PageMethods" not in part
}
ROWS = "Rows in a database"
SHOP = """
import scrapy

class Shop(scrapy.Spider):
    name = "shop"
    start_urls = ["SITE"]

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
"""


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=[pytest.mark.check] * (title != ROWS)) for title in PRINTED]
)
def test_a_recipe_works_as_it_is_printed(
    title: str, url: str, name: str, site: str, tmp_path: Path
) -> None:
    """In an empty folder: each page is done, and its rows are stored."""
    (tmp_path / "recipe.md").write_text(PRINTED[title])
    printed = blocks(tmp_path / "recipe.md")
    for block in printed:
        (tmp_path / block.file).write_text(block.code)
    own = ADDON | {"REDIS_URL": url, "TBLOOM_KEY": name, "SPIDER_MODULES": ["shop"]}
    with (tmp_path / "settings.py").open("a") as file:
        file.writelines(f"{key} = {value!r}\n" for key, value in own.items())
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (tmp_path / "shop.py").write_text(SHOP.replace("SITE", site))
    done = scrapy_in(tmp_path, "crawl", "shop")
    assert "'tbloom/done': 2," in done.stderr, done.stderr
    assert "tbloom/failed" not in done.stderr
    if title == ROWS:
        with closing(sqlite3.connect(tmp_path / "pages.db")) as database:
            rows = database.execute("SELECT url, title FROM pages").fetchall()
        assert {(f"{site}{path}", "page") for path in ("", "a", "b")} == {*rows}


# A fleet


class PageMethod:
    """As scrapy-playwright's, which a text can't hold."""

    def __init__(self, method: str, *args: Any, **kwargs: Any) -> None:
        self.content = [method, [*args], kwargs]


STEPS = [["wait_for_selector", ["div.price"], {"timeout": 5000}], ["click", ["a.more"], {}]]
PAGES = 150


class Renders(crawls.Tree):
    """Gives each link page methods: objects, or lists for the recipe's middleware."""

    name = "renders"
    has_objects: bool

    def parse(self, response: Response, **given: Any) -> Iterator[Any]:
        made = response.meta.get("playwright_page_methods", [])
        assert response.url == f"{self.site}0" or [each.content for each in made] == STEPS
        for found in super().parse(response, **given):
            if isinstance(found, Request):
                objects = [PageMethod(name, *args, **options) for name, args, options in STEPS]
                own = {"playwright_page_methods": objects} if self.has_objects else {}
                found = found.replace(meta=own or {"page_methods": STEPS})  # noqa: PLW2901
            yield found


def recipe() -> Any:
    """The middleware of docs/recipes.md, with a class of ours in place of scrapy-playwright's, which needs a browser."""
    page: Any = ModuleType("scrapy_playwright.page")
    page.PageMethod = PageMethod
    sys.modules |= {"scrapy_playwright": ModuleType("scrapy_playwright"), page.__name__: page}
    return example("recipes.md", "class PageMethods", __name__)["PageMethods"]


def render(settings: dict[str, Any], **given: Any) -> tuple[dict[str, Any], str]:
    """How a crawl ended, and its log."""
    log = io.StringIO()
    logging.basicConfig(handlers=[logging.StreamHandler(log)], level=logging.WARNING)
    middlewares = {"DOWNLOADER_MIDDLEWARES": {recipe(): 1000}}
    [end] = crawls.run([[(Renders, given)]], **settings, **middlewares)
    return end, log.getvalue()


@pytest.mark.check
@pytest.mark.parametrize("has_objects", [True, False])
def test_a_fleet_shares_requests_whose_objects_a_middleware_makes(
    url: str, name: str, site: str, tmp_path: Path, *, has_objects: bool
) -> None:
    """And none that has the objects: a warning says so."""
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "CONCURRENT_REQUESTS": 2}
    files = [tmp_path / f"{number}" for number in range(3)]
    own = [
        {"site": site, "size": PAGES, "has_objects": has_objects, "fetched_file": str(file)}
        for file in files
    ]
    waits = {**settings, "TBLOOM_WHEN_IDLE": "wait"}
    waiting = [Forked(render, waits, start=nothing, **given) for given in own[1:]]
    wait_for_waiting(url, name, 2)
    end, log = Forked(render, {**settings, "DOWNLOAD_DELAY": 0.02}, **own[0]).result()
    for crawl in waiting:
        crawl.send_signal(2)
        crawl.result()
    fetched = [file.read_text().split() if file.exists() else [] for file in files]
    assert [*range(PAGES)] == sorted(int(page) for pages in fetched for page in pages)
    assert ("finished", PAGES - 1 if has_objects else 0) == (
        end["finish_reason"],
        end["stats"].get("tbloom/unserializable", 0),
    )
    assert has_objects == ("No other crawler takes such a page" in log)
    assert has_objects != any(fetched[1:])  # on a busy machine, one of them may take all
