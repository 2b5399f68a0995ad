"""Pages that are kept can be seen and freed: by a link, by a version of the spider that can read them, by an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy.http import Response

from tbloom.claims.fleet import FAILED, GIVEN_UP, Fleet, Pages
from tbloom.scrapy.crawl import crawl_of
from tests.helpers.keptpages import view_of
from tests.helpers.projects import Project, times
from tests.helpers.schedulers import DONE

PAGES = "abcde"


class New(Project):
    """The callback has another name than in an older version of the spider."""

    name = "shop"

    def links(self) -> Iterator[Any]:
        for page in PAGES:
            yield self.request(page, callback=self.parse_item)

    def parse_item(self, response: Response) -> Any:
        return self.parse(response)


class Old(Project):
    """Each page fails in a callback that a later version of the spider has no more."""

    name = "shop"

    def links(self) -> Iterator[Any]:
        for page in PAGES:
            yield self.request(page, callback=self.parse_article)

    def parse_article(self, response: Response) -> None:
        raise KeyError(response.url)


class NewWithoutLinks(New):
    pages = ("z",)
    links = Project.links


class AsOnce(NewWithoutLinks):
    """It still has the old callback."""

    parse_article = New.parse_item


def test_a_link_frees_the_pages_of_a_renamed_callback(done_project: Any) -> None:
    old, new, last = done_project(Old, New, New)
    assert ["abcde", "abcde", ""] == [old.pages, new.pages, last.pages]
    assert 5 == new.stats["tbloom/done"]
    assert [] == [line for line in new.log if line.startswith(("ERROR", "WARNING"))]


def test_without_a_link_another_version_of_the_spider_takes_them(done_project: Any) -> None:
    old, new, then = done_project(Old, NewWithoutLinks, AsOnce)
    assert ["abcde", "z", "abcde"] == [old.pages, new.pages, then.pages]
    [warning] = new.warnings("parse_article")
    assert "5 kept pages can't be restored by this spider (parse_article)" in warning
    assert 5 == new.stats["tbloom/failed/unreadable/parse_article"]
    assert 5 == then.stats["tbloom/done"]


def test_without_a_link_they_are_shown_until_given_up(project: Any, open_fleet: Any) -> None:
    fleet = open_fleet("shop")
    expected = [
        (FAILED, "callback/KeyError", 1),
        (FAILED, "unreadable/parse_article", 2),
        (GIVEN_UP, "unreadable/parse_article", 3),
        (GIVEN_UP, "unreadable/parse_article", 3),
    ]
    for kind, known in zip([Old, *[NewWithoutLinks] * 3], expected, strict=True):
        [crawl] = project(kind, **DONE)
        assert {known} == {(page.state, page.reason, page.tries) for page in fleet.kept()}
        assert 5 == len([*fleet.kept()])
    assert [] == crawl.warnings("parse_article")


def test_a_damaged_note_is_listed_until_a_link_comes(project: Any, open_fleet: Any) -> None:
    """As one whose callback is gone."""
    project(Old, **DONE)
    fleet, claims = open_fleet("shop"), open_fleet("shop")._store.config.keys.claims(0)
    client = fleet._store.client
    for page in fleet.kept():
        claim = client.hget(claims, page.digest)
        client.hset(claims, page.digest, claim[: claim.index(b', "_failed"') - 10])
    [taken] = project(NewWithoutLinks, **DONE)
    assert ("z", 5) == (taken.pages, taken.stats["tbloom/failed/unreadable/note"])
    kept = {(page.state, page.reason, page.tries) for page in fleet.kept()}
    assert {(FAILED, "unreadable/note", 2)} == kept
    linked, last = project(New, New, **DONE)
    assert ["abcde", ""] == [linked.pages, last.pages]
    assert [] == [*fleet.kept()]


class Retries(New):
    """Somebody lets it fetch its failed pages again, while it works."""

    def links(self) -> Iterator[Any]:
        yield self.request("a", callback=self.parse_item)

    def parse_item(self, response: Response) -> Any:
        self.said.append(response.url[-1])
        if self.said.count("a") == 1:
            yield self.request("b", callback=self.parse_next)
            raise ValueError
        yield from self.parse(response)

    def parse_next(self, response: Response) -> Iterator[Any]:
        fleet = Fleet(crawl_of(self.crawler).seen, self.name)
        pages = [*fleet.kept([FAILED])]
        if not pages:  # until then, the page is asked for again
            yield response.request.replace(dont_filter=True)
            return
        assert 1 == view_of(fleet).pages.held
        assert (1, 0) == fleet.retry(pages)
        yield from self.parse(response)


def test_a_crawl_takes_a_page_again_that_is_retried_meanwhile(
    project: Any, open_fleet: Any
) -> None:
    """flower#17: of a running fleet."""
    [crawl] = project(Retries, **DONE)
    assert [2] == times([crawl])["a"]
    assert 2 == crawl.stats["tbloom/done"]
    fleet = open_fleet("shop")
    assert Pages() == view_of(fleet).pages


class Dead(Project):
    name = "shop"
    pages = ("a", "b")


def test_a_page_that_is_given_up_is_retried_and_done(project: Any, open_fleet: Any) -> None:
    """Three crawls have failed. browsertrix#2579, crawlee#1415."""
    answers = {"/a": [503, 503, 503, 200]}
    crawls = project(*[Dead] * 3, answers=answers, **DONE)
    assert {"a": [1, 1, 1], "b": [1, 0, 0]} == times(crawls)
    fleet = open_fleet("shop")
    assert Pages(given_up=1) == view_of(fleet).pages
    [page] = fleet.kept([GIVEN_UP])
    assert ("status/503", 3, "/a") == (page.reason, page.tries, page.url[-2:])
    assert (1, 0) == fleet.retry([page])
    [crawl] = project(NewWithoutLinks, **DONE)
    assert "az" == crawl.pages
    assert Pages() == view_of(fleet).pages


class Other(Dead):
    """A spider of another project, with the same name."""

    pages = ("c",)


def test_pages_are_a_projects(project: Any, open_fleet: Any) -> None:
    """Another project's spider of the same name has other callbacks. A project's name may have bytes that are no UTF-8."""
    answers = {"/a": [503], "/c": [503]}
    ours, theirs = {"BOT_NAME": "ours\udcff"}, {"BOT_NAME": "theirs\udcff"}
    project(Dead, answers=answers, **DONE, **ours)
    crawls = project(Other, Other, answers=answers, **DONE, **theirs)
    assert {"c": [1, 1]} == times(crawls)
    fleet = open_fleet("shop")
    assert Pages(failed=1) == view_of(fleet).pages
    assert Pages(failed=1) == view_of(open_fleet("theirs?:shop")).pages
    assert [] == crawls[0].warnings("project")  # TBLOOM_KEY is set on purpose
    [again] = project(Dead, answers=answers, **DONE, **ours)
    assert "a" == again.pages


def test_a_filter_shared_by_chance_is_named_once(project: Any, name: str) -> None:
    """Its name is that of both spiders."""
    key = {"TBLOOM_KEY": None, "TBLOOM_KEY_PREFIX": f"{name}:"}
    [first] = project(Dead, **DONE, **key, BOT_NAME="ours")
    [second] = project(Other, **DONE, **key, BOT_NAME="theirs")
    assert [] == first.warnings()
    [warning] = second.warnings("the project 'ours' uses this filter, too")
    assert "TBLOOM_KEY = 'theirs:%(spider)s'" in warning
