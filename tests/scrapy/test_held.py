"""A page that does not end holds its crawl, and those that wait: the log, the record and ``tbloom queue`` name it. No other page is named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.http import Response
from scrapy.pipelines.files import FilesPipeline
from twisted.internet.defer import Deferred

from tbloom.scrapy.done import held
from tbloom.scrapy.hooks.engine import next_turn
from tests.helpers import crawl as crawls
from tests.helpers.crawl import Part
from tests.helpers.projects import Project, path_of
from tests.helpers.schedulers import DONE

#: What takes the place of five minutes (s).
SOON = 0.5


class Hears(logging.Handler):
    """Ends what hangs once the log has named it."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = list[Any]()

    async def hang(self) -> None:
        self.hanging.append(asyncio.get_running_loop().create_future())
        await self.hanging[-1]

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - whatever it says
        while self.hanging:
            waiting = self.hanging.pop()
            (waiting.callback if isinstance(waiting, Deferred) else waiting.set_result)(None)


HEARS = Hears()


class Impatient(Part):
    """Lets the log name soon what hangs."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        held.LONG = SOON
        held.logger.addHandler(HEARS)


class HangingHandler(HTTP11DownloadHandler):
    async def download_request(self, request: Any, *more: Any) -> Any:
        response = await super().download_request(request, *more)
        if path_of(request) in ("hangs", "hangs.pdf"):
            await HEARS.hang()
        return response


class HangingMiddleware(Part):
    def process_request(self, request: Any) -> Any:
        if path_of(request) == "hangs":
            HEARS.hanging.append(Deferred())
            return HEARS.hanging[-1]
        return None


class HangingPipeline(Part):
    async def process_item(self, item: Any) -> Any:
        if item["page"] == "hangs":
            await HEARS.hang()
        return item


class HangingStorage:
    """Stores nothing before it is named."""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:  # noqa: ARG002 - as Scrapy has it
        self.path = uri.partition("://")[2]

    def open(self, spider: Any) -> Any:  # noqa: ARG002 - as Scrapy has it
        return Path(self.path).open("wb")

    def store(self, file: Any) -> Any:
        file.close()
        HEARS.hanging.append(Deferred())
        return HEARS.hanging[-1]


class Hangs(Project):
    pages = ("a", "b", "hangs", "c", "d")


class HangsInItsCallback(Hangs):
    async def parse(self, response: Response) -> Any:
        if path_of(response) == "hangs":
            await HEARS.hang()
        yield {"page": path_of(response)}


class WithFile(Hangs):
    pages = ("a", "b", "file", "c", "d")

    def parse(self, response: Response) -> Any:
        name = path_of(response)
        yield {"page": name, "file_urls": [f"{self.site}hangs.pdf"] * (name == "file")}


class Bare(Hangs):
    """No page: the filter is not asked about it."""

    def request(self, path: str, **more: Any) -> Any:
        return super().request(path, dont_filter=path == "hangs", **more)


HANDLER = {"DOWNLOAD_HANDLERS": {"http": HangingHandler}}
ONE = {"CONCURRENT_REQUESTS": 1}
KINDS: dict[str, Any] = {
    "a download": (Hangs, "downloader", HANDLER),
    "one at a time": (Hangs, "downloader", {**HANDLER, **ONE}),
    "a middleware": (Hangs, "downloader", {"DOWNLOADER_MIDDLEWARES": {HangingMiddleware: 1}}),
    "a start page": (Bare, "downloader", HANDLER),
    "a callback": (HangsInItsCallback, "callback", {}),
    "a pipeline": (Hangs, "pipeline", {"ITEM_PIPELINES": {HangingPipeline: 1}}),
    "a file": (WithFile, "pipeline", {**HANDLER, "ITEM_PIPELINES": {FilesPipeline: 1}}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mark", ["done", pytest.param("done, local", marks=pytest.mark.check)])
def test_a_page_that_holds_the_crawl_is_named(project: Any, tmp_path: Path, kind: str) -> None:
    """scrapy-playwright#371, scrapy-playwright#330: only "Crawled 0 pages/min" was seen. Once it ends, the page is done."""
    spider, state, settings = KINDS[kind]
    settings = {**settings, "FILES_STORE": str(tmp_path), "EXTENSIONS": {Impatient: 1}}
    [crawl] = project(spider, alone=True, **settings)
    assert "finished" == crawl.reason
    [_] = crawl.warnings(f"/{spider.pages[2]} has not ended", f"({state})")
    of_file = crawl.warnings("/hangs.pdf has not ended", "(downloader)")  # it may come later
    assert 1 + len(of_file) == len(crawl.warnings("has not ended"))
    assert 5 == crawl.stats["item_scraped_count"]


class WithOneFile(Hangs):
    pages = tuple("abcdefghijkl")

    def parse(self, response: Response) -> Any:
        yield {"page": path_of(response), "file_urls": [f"{self.site}hangs.pdf"]}


def test_what_many_pages_wait_for_is_named(project: Any, tmp_path: Path) -> None:
    """It is named before them: of so many, the log names some."""
    settings = {**HANDLER, "ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(tmp_path)}
    [crawl] = project(WithOneFile, alone=True, EXTENSIONS={Impatient: 1}, **settings)
    assert 10 == len(crawl.warnings("has not ended", "nor have 3 others"))
    assert "/hangs.pdf" in crawl.warnings("has not ended")[0]
    assert 12 == crawl.stats["tbloom/done"]


class EndsLate(Project):
    """Its start, or a page behind a long delay, ends after what would be long."""

    pages = ("a", "b", "c")

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        if self.settings.getbool("STARTS_LATE"):
            await asyncio.sleep(4 * SOON)


PAUSES: dict[str, dict[str, Any]] = {
    "a start that waits": {"STARTS_LATE": True},
    "a delay": {"DOWNLOAD_DELAY": 2 * SOON, "DOWNLOAD_DELAY_JITTER": 0},
    "a feed at the end": {"FEEDS": {"x://": {"format": "jsonlines"}}, "STARTS_LATE": True},
}


LATER = ("a start that waits", "a feed at the end")


@pytest.mark.parametrize(
    "pause", ["a delay", *(pytest.param(each, marks=pytest.mark.check) for each in LATER)]
)
def test_no_page_is_named_that_only_waits(project: Any, tmp_path: Path, pause: str) -> None:
    feeds = {
        uri + str(tmp_path / "feed"): feed for uri, feed in PAUSES[pause].get("FEEDS", {}).items()
    }
    settings = {**PAUSES[pause], "FEEDS": feeds, "FEED_STORAGES": {"x": QuickStorage}}
    [crawl] = project(EndsLate, alone=True, EXTENSIONS={Impatient: 1}, **settings)
    assert ["finished", []] == [crawl.reason, crawl.warnings()]
    assert 3 == crawl.stats["tbloom/done"]


class QuickStorage(HangingStorage):
    def store(self, file: Any) -> Any:
        file.close()


def test_a_page_whose_feed_is_never_stored_is_named(project: Any, tmp_path: Path) -> None:
    feeds = {"FEEDS": {f"x://{tmp_path / 'feed'}": {"format": "jsonlines"}}}
    settings = {**feeds, "FEED_STORAGES": {"x": HangingStorage}, "EXTENSIONS": {Impatient: 1}}
    [crawl] = project(Hangs, alone=True, **settings)
    [line] = crawl.warnings("has not ended")
    assert "(feed)" in line
    assert 5 == crawl.stats["tbloom/done"]


# A fleet


class HangsInTree(Part):
    """Holds a page back until another crawler has said for what it waits."""

    async def process_response(self, request: Any, response: Response) -> Response:
        while path_of(request) == "7" and not self.is_named():
            await next_turn(0.05)
        return response

    def is_named(self) -> bool:
        return Path(self.crawler.settings["NAMED"]).exists()


class Names(Part):
    """Notes what the crawl waits for."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        held.LONG = SOON
        logging.getLogger("tbloom.scrapy.done.sharing").addHandler(
            NamesIn(crawler.settings["NAMED"])
        )


class NamesIn(logging.Handler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = Path(path)

    def emit(self, record: logging.LogRecord) -> None:
        if "oldest page" in record.getMessage():
            self.path.write_text(record.getMessage())


@pytest.mark.parametrize("share", [True, pytest.param("hosts", marks=pytest.mark.check)])
def test_a_crawler_that_waits_names_the_page_that_holds_it(
    site: str, url: str, name: str, tmp_path: Path, share: Any
) -> None:
    named = tmp_path / "named"
    settings = {**DONE, "REDIS_URL": url, "TBLOOM_KEY": name, "TBLOOM_SHARE": share}
    settings |= {"TBLOOM_SESSION_TTL": 2, "NAMED": str(named), "EXTENSIONS": {Names: 1}}
    settings |= {"DOWNLOADER_MIDDLEWARES": {HangsInTree: 1}}
    own: list[dict[str, Any]] = [
        {"size": 20, "fetched_file": str(tmp_path / f"{n}")} for n in range(2)
    ]
    both = [crawls.start("tree", site, settings, **each) for each in own]
    results = [crawl.result() for crawl in both]
    assert ["finished"] * 2 == [result["finish_reason"] for result in results]
    assert f"the crawlers that work is {site}7, in work for" in named.read_text()
    assert "(downloader, of " in named.read_text()
    fetched = [page for each in own for page in Path(each["fetched_file"]).read_text().split()]
    assert [*range(1, 20)] == sorted(int(page) for page in fetched if page != "0")
