"""Requests with objects that can't be serialised; and those that can, which other crawls take over."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scrapy import FormRequest, Request, Selector
from scrapy.http import JsonRequest, Response

from tests.helpers import crawl as crawls
from tests.helpers.documents import example
from tests.helpers.forked import Forked
from tests.helpers.projects import Project, path_of, times
from tests.helpers.schedulers import DONE
from tests.scrapy.test_sharing import nothing, wait_for_waiting


class Plain:
    """A class without a constructor for it in a request's text."""

    def __init__(self, first: Any, second: Any) -> None:
        self.pair = first, second


class CanNotBeWritten(Project):
    """Requests with what no queue but that in memory takes."""

    kinds = ("lambda", "partial", "object", "Selector", "generator", "client")
    pages = tuple(f"{kind}-{end}" for kind in kinds for end in ("good", "503", "raises"))

    def request(self, path: str, **more: Any) -> Request:
        kind = path.partition("-")[0]
        callbacks: dict[str, Callable[..., Any]] = {
            "lambda": lambda response: [*self.parse(response)],
            "partial": partial(self.parse, known=Plain(1, 2)),
        }
        known = {
            "object": Plain(1, 2),
            "Selector": Selector(text="<a>"),
            "generator": (number for number in range(3)),
            "client": asyncio,
        }
        more["callback"] = callbacks.get(kind)
        if kind in known:
            more["meta"] = {"known": known[kind]}
        return super().request(path, **more)

    def parse(self, response: Response, known: Any = None) -> Any:  # noqa: ARG002
        yield {"page": path_of(response)}
        if path_of(response).endswith("raises") and not self.number:
            raise ValueError


@pytest.mark.parametrize("queue", ["memory", pytest.param("JOBDIR", marks=pytest.mark.check)])
def test_a_failed_request_without_a_text_is_fetched_when_linked_again(
    done_project: Any, tmp_path: Path, queue: str
) -> None:
    """scrapy-redis#68, #138, #178. One that is done is not. The log names the first one."""
    answers = {f"/{kind}-503": [503, 200] for kind in CanNotBeWritten.kinds}
    more = {"JOBDIR": str(tmp_path / "job")} if queue == "JOBDIR" else {}
    crawls = done_project(*[CanNotBeWritten] * 3, answers=answers, **more)
    assert {
        page: [1, 0 if page.endswith("good") else 1, 0] for page in CanNotBeWritten.pages
    } == times(crawls)
    assert len(CanNotBeWritten.pages) == crawls[0].stats["tbloom/unserializable"]
    assert 1 == len(crawls[0].warnings("can't be serialised: "))


# Requests that can: what the documents promise


class Forms(Project):
    """The requests are noted with their bodies; and an item over several pages goes on where it was."""

    def links(self) -> Iterator[Any]:
        if self.number:
            return
        yield FormRequest(f"{self.site}form", formdata={"q": "a b"})
        yield JsonRequest(f"{self.site}json", data={"q": [1]})
        yield self.request("item-1", callback=self.parse_first)

    def parse_first(self, response: Response) -> Any:
        item = {"first": path_of(response)}
        yield self.request("item-2", callback=self.parse_second, cb_kwargs={"item": item})

    def parse_second(self, response: Response, item: dict[str, Any]) -> Any:
        yield {**item, "second": path_of(response)}


def test_forms_and_items_over_several_pages_are_taken_over_as_they_were(done_project: Any) -> None:
    """By a crawl without a link to them."""
    paths = ["/form q=a+b", '/json {"q": [1]}', "/item-2"]
    crawls = done_project(*[Forms] * 3, answers={path: [503, 200] for path in paths})
    assert sorted([*paths, "/item-1"]) == sorted(crawls[0].fetched)
    assert sorted(paths) == sorted(crawls[1].fetched)
    assert [] == crawls[2].fetched
    assert {"first": "item-1", "second": "item-2"} in crawls[1].items


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
