"""Set-ups of real projects: with the add-on, a crawl fetches what it fetches with Scrapy's own filter, and no more; pages that
succeed are marked, and no item is missing."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import LocalBloom, TimeBloom
from tests.helpers import setups
from tests.helpers.forked import Forked
from tests.helpers.projects import marked
from tests.helpers.setupcrawl import MARKS, SHARED, TARGET, Setup
from tests.helpers.website import Handler, Server, served

#: Scrapy's own duplicate filter, in place of the add-on's with a TBLOOM_MARK; and scrapy-redis'.
OWN, SHARED_FILTER = "own", "scrapy_redis.dupefilter.RFPDupeFilter"
ERROR_RATE = 1e-9
IN_ONE_PROCESS = [pair for pair in setups.SETUPS.items() if pair[1].crawlers == 1]
GROUPS: dict[str, Any] = {
    # For `make test` and `make oldest`: every sixth of those whose crawls run in one process, and where versions of Scrapy differ.
    "some": {
        **dict(IN_ONE_PROCESS[::6]),
        **{name: one for name, one in IN_ONE_PROCESS if "recover" in name or "start_req" in name},
    },
    "HTTP": setups.HTTP,
    "middlewares": setups.MIDDLEWARES,
    "spiders": setups.SPIDERS,
    "pipelines": setups.PIPELINES,
    "queues": setups.QUEUES,
}


class Result(NamedTuple):
    """What has become of a set-up's crawls."""

    #: How often the site was asked for each path.
    requests: Counter[str]
    items: list[str]
    #: The pages that the filter has seen.
    marked: list[str]
    #: What the logs have with the level ERROR: tbloom's lines, and for others the logger and the type of the exception.
    errors: list[str]


class Site(Handler):
    """The site of a set-up: page 0 has links to all pages, and each other page to the first 12.

    (HTTP 1.0, which ends each connection: Twisted would try again by itself on one that was kept.)
    """

    def get(self) -> None:
        setup, path = self.server.setup, urlsplit(self.path).path
        asked = self.path.removeprefix("http://").removeprefix(self.headers["Host"])  # of a proxy
        self.server.asked.append(asked)
        time.sleep(setup.seconds)
        if path == "/robots.txt":
            rules = f"User-agent: *\nDisallow: {TARGET}\n"
            self.answer(200, rules.encode(), Content_Type="text/plain")
            return
        answers = setup.surprises.get(path, [200])
        answer = answers[min(self.server.asked.count(asked), len(answers)) - 1]
        if isinstance(answer, str):
            self.answer(302, Location=answer.format(port=self.server.server_port))
        elif answer:
            paths = setup.paths() if path == "/p/0" else setup.paths()[:12]
            links = "".join(f"<a href='{link}'>a page</a>\n" for link in paths)
            self.answer(answer, links.encode(), Set_Cookie="visit=1")


def job_of(name: str, setup: Setup, how: str, site: Server, folder: str) -> dict[str, Any]:
    """What the crawls of a set-up are told, but for the Redis."""
    key = f"test-{secrets.token_hex(6)}"
    settings = {"SCHEDULER_QUEUE_KEY": f"{key}:requests", "SCHEDULER_DUPEFILTER_KEY": f"{key}:seen"}
    if how != OWN:
        settings |= {"TBLOOM_KEY": key, "TBLOOM_ERROR_RATE": ERROR_RATE}
        settings |= marked(how, Path(folder))
    elif setup.settings.get("SCHEDULER") == SHARED:
        settings["DUPEFILTER_CLASS"] = SHARED_FILTER
    items = str(Path(folder) / "items")
    return {"name": name, "site": site.url, "folder": folder, "items": items, "settings": settings}


def crawl(chosen: Mapping[str, Setup], how: str, url: str) -> dict[str, Result]:
    """Crawls by this filter, most of them in one process; ``url``: of the Redis."""
    with ExitStack() as stack:
        sites = {
            name: stack.enter_context(served(Site, asked=[], setup=setup))
            for name, setup in chosen.items()
        }
        jobs = {}
        for name, setup in chosen.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tbloom-setup-"))
            jobs[name] = job_of(name, setup, how, sites[name], folder)
            jobs[name]["settings"]["REDIS_URL"] = url
        together = [name for name, setup in chosen.items() if setup.crawlers == 1]
        answers = Forked(setups.crawl_all, [jobs[name] for name in together]).result()
        ends = {name: [end] for name, end in zip(together, answers, strict=True)}
        results = {}
        for name, setup in chosen.items():
            job, site = jobs[name], sites[name]
            if name not in ends:
                crawlers = [Forked(setups.crawl_all, [job]) for _ in range(setup.crawlers)]
                ends[name] = [end for crawler in crawlers for end in crawler.result()]
            file = Path(job["items"])
            items = file.read_text(encoding="utf-8").split() if file.exists() else []
            marked = [] if how == OWN else marked_by(job["settings"], setup, site)
            errors = [error for end in ends[name] for error in end["errors"] + end["failures"]]
            results[name] = Result(Counter(site.asked), items, marked, errors)
        return results


def marked_by(settings: dict[str, Any], setup: Setup, site: Server) -> list[str]:
    """The pages that the filter has seen."""
    own, path = (settings["REDIS_URL"], settings["TBLOOM_KEY"]), settings.get("TBLOOM_PATH")
    with (
        LocalBloom(path=path, error_rate=ERROR_RATE)
        if path
        else TimeBloom.from_url(*own, error_rate=ERROR_RATE)
    ) as seen:
        requests = [Request(f"{site.url}{path}") for path in setup.paths()]
        answers = seen.contains_many([fingerprint(request) for request in requests])
    return [path for path, is_seen in zip(setup.paths(), answers, strict=True) if is_seen]


def complaints(setup: Setup, how: str, own: Result, result: Result) -> list[str]:
    """What is worse than with Scrapy's own filter, and what else is wrong."""
    wrong = []

    def compare(what: str, expected: Any, actual: Any) -> None:
        if expected != actual:
            wrong.append(f"{what}: expected {expected or 'none'}, got {actual or 'none'}")

    again = Counter(dict.fromkeys(own.requests, setup.again))
    compare("requests too many", {}, dict(result.requests - own.requests - again))
    compare("pages not fetched", set(), {*own.requests} - {*result.requests})
    if setup.again:
        compare("items missing", set(), {*own.items} - {*result.items})
    else:
        compare("items", sorted(own.items), sorted(result.items))
    compare("pages marked", {*setup.paths()} - setup.not_marked(how), {*result.marked})
    compare("errors", sorted(own.errors), sorted(result.errors))
    return wrong


@pytest.mark.parametrize(
    ("group", "mark"),
    [
        ("some", "done"),
        *(
            pytest.param(group, mark, marks=pytest.mark.check)
            for group in GROUPS
            for mark in MARKS
            if group != "some"
        ),
    ],
)
def test_a_crawl_is_as_with_scrapys_own_filter(url: str, group: str, mark: str) -> None:
    """As many requests at most, every page, every item; pages that have failed are left to the next crawl, the others marked;
    and the log has no error that it does not have without tbloom."""
    setups: Mapping[str, Setup] = GROUPS[group]
    chosen = {name: setup for name, setup in setups.items() if setup.works_with(mark)}
    own, results = crawl(chosen, OWN, url), crawl(chosen, mark, url)
    wrong = {
        name: complaints(setup, mark, own[name], results[name]) for name, setup in chosen.items()
    }
    assert {} == {name: what for name, what in wrong.items() if what}
