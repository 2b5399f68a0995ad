"""Scrapy projects in folders, in which commands run."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

from tests.helpers.commands import tbloom_in
from tests.helpers.crawl import SETTINGS
from tests.helpers.forked import Forked
from tests.helpers.schedulers import ADDON, DONE
from tests.helpers.website import Page


class Folder:
    """A folder with a project's settings, and with its spiders in one module."""

    def __init__(self, path: Path, spiders: str = "", **settings: Any) -> None:
        self.path = path
        self.settings = {"SPIDER_MODULES": ["spiders"], **ADDON, **settings}
        (path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        self.write(spiders)

    def write(self, spiders: str | None = None, **settings: Any) -> None:
        """Changes the spiders or some settings."""
        if spiders is not None:
            (self.path / "spiders.py").write_text(spiders)
        self.settings |= settings
        lines = [f"{key} = {value!r}" for key, value in self.settings.items()]
        (self.path / "settings.py").write_text("\n".join(lines))

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return tbloom_in(self.path, *words, stdin=stdin)

    def said(self, *words: str, stdin: str = "") -> str:
        """What a command prints that succeeds without a remark."""
        done = self.run(*words, stdin=stdin)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    def queue_of(self, spider: str, *words: str) -> dict[str, Any]:
        """The pages and the crawlers of a spider, as ``tbloom queue`` shows them."""
        [queue] = json.loads(self.said("queue", spider, *words, "--json"))["queues"]
        return {**queue["pages"], "crawlers": queue["crawlers"]}

    def doctor(self) -> tuple[int, list[str]]:
        """The exit code of ``tbloom doctor``, and its lines."""
        done = self.run("doctor")
        assert "" == done.stderr
        return done.returncode, done.stdout.splitlines()


SPIDER = """
import json
import os
import time
from pathlib import Path

import scrapy


class Shop(scrapy.Spider):
    name = "shop"

    async def start(self):
        for request in self.settings["LINKS"]:
            yield scrapy.Request(**{**request, "callback": getattr(self, request.get("callback", "parse"))})

    def CALLBACK(self, response):
        FAILS

    def parse(self, response, callback="parse", **given):
        request = response.request
        own = {"url": response.url, "callback": callback, "kind": type(request).__name__, "meta": repr(response.meta.get("own"))}
        own |= {"method": request.method, "body": repr(request.body), "header": repr(request.headers.get("X"))}
        with Path(self.settings["FETCHED"]).open("a") as file:
            file.write(json.dumps({**own, **given}) + "\\n")
"""


class Flaky(Page):
    """/flaky answers 503 until the server is well; /slow waits until it is told to go on."""

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        if self.path.startswith("/flaky") and not self.server.is_well:
            self.server.asked[self.path] += 1
            self.answer(503)
            return
        while self.path.startswith("/slow") and not self.server.is_well:
            time.sleep(0.02)
        super().do_GET()


class Shop(Folder):
    """A project with one spider, and its site."""

    def __init__(self, folder: Path, url: str, name: str, server: Any, store: str) -> None:
        self.server, self.site = server, f"{server.url}/"
        own = {"TBLOOM_KEY": name, "TBLOOM_CAPACITY": 1000, "BOT_NAME": "p", "REDIS_URL": url}
        if store == "local":
            own |= {"TBLOOM_STORE": "local", "TBLOOM_PATH": str(folder / "seen")}
            del own["REDIS_URL"]
        super().__init__(folder, **SETTINGS, **DONE, **own, TBLOOM_ERROR_RATE=1e-9)
        self.spider()

    def spider(self, callback: str = "parse_item", fails: str = "", **settings: Any) -> None:
        """Writes the spider, with this further callback."""
        fails = fails or f"self.parse(response, {callback!r})"
        self.write(SPIDER.replace("CALLBACK", callback).replace("FAILS", fails), **settings)

    def start(self, *links: str | dict[str, Any], **arguments: str) -> Forked:
        requests = [{"url": each} if isinstance(each, str) else dict(each) for each in links]
        for request in requests:
            request["url"] = f"{self.site}{request['url']}"
        return Forked(_crawl, self.path, {"LINKS": requests}, arguments)

    def crawl(self, *links: str | dict[str, Any], **arguments: str) -> list[str]:
        """Crawls from these links; the pages whose callbacks have come to their ends, each with the callback."""
        assert "finished" == self.start(*links, **arguments).result()
        file = self.path / "fetched"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        self.pages = {page["url"].removeprefix(self.site): page for page in map(json.loads, lines)}
        return sorted(f"{path} {page['callback']}" for path, page in self.pages.items())

    def said(self, *words: str, stdin: str = "") -> str:
        """The same less the site."""
        said = super().said(*words, stdin=stdin)
        return said.replace(self.site, "/").replace(self.site.split("/")[2], "site")

    def queue(self) -> dict[str, int]:
        """The numbers of pages that are not 0."""
        pages = self.queue_of("shop")
        return {state: n for state, n in pages.items() if n and state != "crawlers"}

    def until(self, **pages: int) -> None:
        """Waits for these numbers of pages."""
        while pages != self.queue():
            time.sleep(0.2)


def _crawl(folder: Path, settings: dict[str, Any], arguments: dict[str, str]) -> str | None:
    os.chdir(folder)
    sys.dont_write_bytecode = True
    logging.basicConfig(filename=folder / "log", level=logging.DEBUG)
    known = get_project_settings()
    known.setdict({**settings, "LOG_ENABLED": False, "FETCHED": "fetched"})
    process = CrawlerProcess(known)
    crawler = process.create_crawler("shop")
    process.crawl(crawler, **arguments)
    process.start()
    return crawler.stats.get_value("finish_reason")
