"""Requests with objects that can't be serialised: a fleet shares them where a middleware makes the objects."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import Response

from tests.helpers import crawl as crawls
from tests.helpers.documents import ROOT, blocks
from tests.helpers.forked import Forked
from tests.helpers.schedulers import DONE
from tests.scrapy.test_sharing import wait_for_waiting

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


async def nothing(spider: Spider) -> AsyncIterator[Any]:  # noqa: ARG001 - a method
    """The start of a crawler that waits for others' pages."""
    return
    yield


def recipe() -> Any:
    """The middleware of docs/recipes.md, with a class of ours in place of scrapy-playwright's, which needs a browser."""
    page: Any = ModuleType("scrapy_playwright.page")
    page.PageMethod = PageMethod
    sys.modules |= {"scrapy_playwright": ModuleType("scrapy_playwright"), page.__name__: page}
    names = dict[str, Any]()
    [code] = [b.code for b in blocks(ROOT / "docs" / "recipes.md") if b.file == "middlewares.py"]
    exec(code, names)  # noqa: S102 - our own document
    return names["PageMethods"]


def render(settings: dict[str, Any], **given: Any) -> tuple[dict[str, Any], str]:
    """How a crawl ended, and its log."""
    log = io.StringIO()
    logging.basicConfig(handlers=[logging.StreamHandler(log)], level=logging.WARNING)
    middlewares = {"DOWNLOADER_MIDDLEWARES": {recipe(): 1000}}
    [end] = crawls.run([[(Renders, given)]], **settings, **middlewares)
    return end, log.getvalue()


@pytest.mark.parametrize("has_objects", [True, False])
def test_a_fleet_shares_requests_whose_objects_a_middleware_makes_of_lists(
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
