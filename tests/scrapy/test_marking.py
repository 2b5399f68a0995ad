"""``TBLOOM_MARK = "done"``: a page is marked once its callback has ended and its items are stored, not before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tbloom.scrapy.hooks.engine import hosts_at_work
from tests.helpers.crawl import start
from tests.helpers.projects import Project
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.schedulers import DONE, end

PIPELINE = {"ITEM_PIPELINES": {"tests.helpers.crawl.Fates": 300}}


@pytest.fixture
def marked(url: str, name: str, site: str) -> Any:
    """Selects the pages that the filter has seen."""

    def marked(*pages: str) -> list[str]:
        with TimeBloom.from_url(url, name, capacity=1000) as seen:
            return [page for page in pages if fingerprint(Request(f"{site}{page}")) in seen]

    return marked


class HoldsBack(Proxy):
    """Holds back what is said of one page, for a while, and asks meanwhile."""

    page: bytes
    ask: Callable[[], object]
    answers: list[object]

    def _pick(self, data: bytes) -> Fault | None:
        if self.page in data and not self.answers:
            time.sleep(0.5)  # pages that end are marked after a tenth of a second
            self.answers.append(self.ask())
        return super()._pick(data)


def test_a_page_is_marked_after_its_links_have_answers(
    marked: Any, url: str, name: str, site: str, tmp_path: Path
) -> None:
    """Else a crawler that dies now would lose the links of a page that nobody fetches again."""
    own = {"size": 9, "fetched_file": str(tmp_path / "fetched")}  # page 1 has one link, to page 8
    with HoldsBack(url, lambda _: None) as proxy:
        proxy.page = fingerprint(Request(f"{site}8")).hex().encode()
        proxy.answers = []
        proxy.ask = partial(marked, "1")
        settings = {"REDIS_URL": proxy.url, "TBLOOM_KEY": name, "TBLOOM_CAPACITY": 1000}
        ended = start("tree", site, {**DONE, **settings}, **own).result()
    assert "finished" == ended["finish_reason"]
    assert [[]] == proxy.answers
    assert ["1", "8"] == marked("1", "8")


def items(*fates: str) -> dict[str, Any]:
    return {"request": {"cb_kwargs": {"fates": fates}}}


def test_a_page_is_kept_as_request_or_callback_says(
    crawl: Any, url: str, name: str, site: str
) -> None:
    """``tbloom_keep`` in the request's meta, or in ``response.meta``; a wrong one is told, and the page kept as others."""
    pages = [
        ["a", {"tbloom_keep": 2}],
        ["b", end("keeps_it_for_one_slice")],
        ["c", {}],
        ["d", end("keeps_it_for_too_long")],
    ]
    result = crawl("outcomes", DONE, pages)
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        live = [slice.label for slice in seen.info().slices]
        places = seen.last_seen_many(fingerprint(Request(f"{site}{page}")) for page in "abcd")
        assert [1, 0, 6, 6] == [live.index(place.label) for place in places if place]
    assert "expected a whole number of slices from 1 to 7, got 8" in result["log"]
    assert ["a", "b", "c", "d"] == sorted(result["fetched"])
    assert [] == crawl("outcomes", DONE, pages)["fetched"]


def test_each_url_of_a_redirect_is_an_item(crawl: Any, marked: Any) -> None:
    crawl("outcomes", DONE, ["to/to/a"])
    assert ["a", "to/a", "to/to/a"] == marked("a", "to/a", "to/to/a", "b")


def test_a_redirect_to_what_another_crawler_works_on_is_done(
    crawl: Any, marked: Any, url: str, name: str, site: str
) -> None:
    """If the page fails there, it is left itself."""
    with TimeBloom.from_url(url, name, capacity=1000) as other:
        other.claim(fingerprint(Request(f"{site}a")))
        result = crawl("outcomes", DONE, ["to/a"])
        assert ["to/a"] == marked("a", "to/a")
        assert "WARNING" not in result["log"]


class Walled(Project):
    """Pages that a site redirects to its login, which another crawl has fetched, or which is queued."""

    def links(self) -> Iterator[Any]:
        """The login first: else the first redirect to it would be its page."""
        yield self.request("login", priority=-1)
        yield from map(self.request, map(str, range(8)))


@pytest.mark.parametrize("seen", [True, False])
def test_many_redirects_to_one_page_are_a_wall(project: Any, *, seen: bool) -> None:
    """Of one or two, it would be usual. The next crawl finds no wall, and fetches the others."""
    answers = {f"/{page}": ["/login", 200] for page in range(8)}
    if seen:
        project(Project, PAGES=["login"])
    walled, later = project(Walled, Project, answers=answers)
    assert 5 == walled.stats["tbloom/failed/redirect"]
    assert 5 == len({*later.fetched}) == len(later.fetched) == later.stats["tbloom/done"]
    [line] = walled.warnings("/login")
    assert "5 pages that were redirected to" in line
    assert "tbloom_done" in line


class WithPassword(Project):
    def links(self) -> Iterator[Any]:
        yield Request(self.site.replace("://", "://me:hunter2@") + "/a")


def test_no_warning_has_a_page_s_url_with_its_password(project: Any) -> None:
    """Scrapy refuses such a URL."""
    ends = project(*[WithPassword] * 3)
    assert ends[0].warnings("have failed", "for example http://127.0.0.1")
    assert ends[2].warnings("http://127.0.0.1", "is given up")
    assert [] == [line for end in ends for line in end.warnings("//me:hunter2")]


class Posts(Project):
    """Forms with bodies of their own, which a site redirects to one URL."""

    def links(self) -> Iterator[Any]:
        for number in map(str, range(8)):
            yield self.request(number, method="POST", body=number)


def test_redirects_to_one_url_are_no_wall_for_new_pages(project: Any) -> None:
    answers = {f"/{number} {number}": ["/search"] for number in range(8)}
    [posted] = project(Posts, answers=answers)
    assert 8 == posted.stats["tbloom/done"]
    assert {f"/search {number}" for number in range(8)} < {*posted.fetched}


def test_a_crawl_ends_without_asyncio_too(crawl: Any, marked: Any) -> None:
    other = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}
    result = crawl("outcomes", {**DONE, **other}, ["a", "b"], alone=True)
    assert "finished" == result["finish_reason"]
    assert ["a", "b"] == marked("a", "b")


# How often a page that fails is tried, and what the log says of it


def test_a_failing_page_is_tried_once_in_three_crawls_each(crawl: Any) -> None:
    """However many links lead to it; and by the next crawls without any link."""
    settings = {**DONE, **PIPELINE}
    links = [["a", items("fails")], ["b", {}], ["a", {}]]
    for number, pages in enumerate((links, [], []), 1):
        result = crawl("outcomes", settings, pages)
        assert 1 == Counter(result["fetched"])["a"]
        left, given_up = (0, 1) if number == 3 else (1, 0)
        stats = [f"tbloom/{stat}" for stat in ("failed", "failed/pipeline/Fates", "given_up")]
        assert [left, left, given_up] == [result["stats"].get(stat, 0) for stat in stats]
        said = "1 pages have failed, and the next crawl fetches them again (pipeline/Fates: 1), for example http"
        gives_up = "/a is given up: it failed in 3 crawls in a row (pipeline/Fates). "
        assert [left, given_up] == [result["log"].count(line) for line in (said, gives_up)]
        assert 1 == result["log"].count("/a has failed (pipeline/Fates)")
        assert "finished" == result["finish_reason"]
    assert [] == crawl("outcomes", settings)["fetched"]


class AtWork(Project):
    """Notes, when it has a page, from which hosts its crawler downloads, or has within the delay."""

    def links(self) -> Iterator[Any]:
        yield self.request("a")

    def parse(self, _: Any) -> None:
        self.said += hosts_at_work(self.crawler.engine)


@pytest.mark.parametrize("delay", [60, 0])
def test_a_host_is_at_work_during_its_delay(project: Any, delay: int) -> None:
    """Whichever clock this version of Scrapy reads: so long TBLOOM_SHARE = "hosts" does not give it away."""
    [end] = project(AtWork, DOWNLOAD_DELAY=delay)
    assert ["127.0.0.1"] * (delay > 0) == end.said
