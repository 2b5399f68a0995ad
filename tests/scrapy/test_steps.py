"""Crawls in which a page meets what its state does not know, or what few crawls meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scrapy.http import Response

from tbloom import Claim, TimeBloom
from tbloom.scrapy.components import pages_of
from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.page import EndedPage
from tbloom.scrapy.done.states import Event, State
from tests.helpers.projects import Project, path_of, times


class Breaks(Project):
    """Lets something happen to a page which it is not used to: once "a" has ended, while "b" is in work."""

    pages = "ab"
    begun = asyncio.Event()
    page: str
    event: Event

    async def parse(self, response: Response) -> Any:
        yield {"page": path_of(response)}
        if path_of(response) == "a":
            await self.begun.wait()
            return
        self.begun.set()
        pages = pages_of(crawl_of(self.crawler))
        register = pages.failures.register
        while not (ended := register.all(EndedPage, State.ENDED)):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        register.step(ended[0] if self.page == "a" else pages.work.of(response), self.event)


class Sends(Breaks):
    """The committer's own step is not known then."""

    page, event = "a", Event.SEND


class Commits(Breaks):
    page, event = "b", Event.COMMITTED


@pytest.mark.parametrize("spider", [Sends, Commits])
def test_a_page_fails_that_meets_what_its_state_does_not_know(project: Any, spider: Any) -> None:
    """It is logged once, and no other page is lost."""
    first, second = project(spider, Project, PAGES="ab", BREAKS_STEPS=True)
    assert {each: [1, int(each == spider.page)] for each in "ab"} == times([first, second])
    assert (1, 1) == (first.stats["tbloom/done"], first.stats["tbloom/failed/step"])
    assert 1 == len(first.warnings("ERROR", "does not know"))
    assert ("finished", "finished") == (first.reason, second.reason)


class LosesItsSession(Project):
    """Page 0 does so when "failed" has failed, "again" is queued once more, and "both" is queued in two versions.

    Another crawler claims what is queued.
    """

    pages = ("0",)

    async def parse(self, response: Response) -> AsyncIterator[Any]:  # noqa: ARG002
        if self.said:  # the crawler has taken it again
            return
        crawl = crawl_of(self.crawler)
        pages: Any = pages_of(crawl)
        register, seen = pages.failures.register, crawl.seen
        pages.failures.pause = 0.0
        yield self.request("again")
        yield self.request("failed")
        await until(lambda: register.count(State.HELD) == 2)
        self.crawler.engine.pause()
        queued = [self.request("again")]
        queued += [self.request("both", meta={"tbloom_version": each}) for each in ("1", "2")]
        for request in queued:
            yield request
        await until(lambda: register.count(State.FOLLOWED) == register.count(State.QUEUED) == 1)
        with TimeBloom.open(seen.client, seen.name) as other:
            await lose_session(seen, other)
            items = [self.crawler.request_fingerprinter.fingerprint(each) for each in queued[:2]]
            self.said += [other.claim_many(items), register.count(State.HELD)]
            self.crawler.engine.unpause()
            await until(lambda: not register.count(State.FOLLOWED) + register.count(State.QUEUED))


async def lose_session(seen: Any, other: TimeBloom) -> None:
    """Let another filter object bury the session of a crawl."""
    before, sessions = seen.session, f"{{{other.name}}}:sessions"
    while other.client.hexists(sessions, before):  # a heartbeat may come in between
        other.client.hset(sessions, before, "1")  # alive until 1970
        other.take(0, "another queue")  # buries it
    await until(lambda: seen.session != before)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - threads do it
        await asyncio.sleep(0.01)


def test_a_crawl_whose_session_was_lost_takes_what_no_other_one_has(project: Any) -> None:
    """What others have is dropped; what has failed is held no longer."""
    answers = {"/again": [503], "/failed": [503]}
    [crawl] = project(LosesItsSession, answers=answers, TBLOOM_SESSION_TTL=6)
    counted = times([crawl])
    assert counted.pop("failed") in ([1], [2])  # again, if its failure was not told before
    assert {"0": counted["0"], "again": [1]} == counted
    assert [[Claim.NEW] * 2, 0] == crawl.said
    assert "finished" == crawl.reason


class FailsWithoutItsSession(Project):
    """Page 0 loses the session of both pages, and fails. Page 1 says how it has failed."""

    pages = "01"

    async def parse(self, response: Response) -> None:
        crawl = crawl_of(self.crawler)
        pages: Any = pages_of(crawl)
        seen: Any = crawl.seen
        register = pages.failures.register
        if self.said:  # the crawler has taken it again
            return
        if path_of(response) == "0":
            with TimeBloom.open(seen.client, seen.name) as other:
                await lose_session(seen, other)
            raise ValueError
        await until(lambda: register.count(State.HELD) + register.count(State.FREE))
        self.said += [register.count(State.HELD), register.count(State.FREE)]


def test_a_page_that_fails_after_its_session_is_not_held(project: Any) -> None:
    """The crawl does not count a claim as its own that another one may have."""
    [crawl] = project(FailsWithoutItsSession, TBLOOM_SESSION_TTL=1)
    assert [0, 1] == crawl.said
    assert "finished" == crawl.reason


def test_a_crawl_of_a_test_fails_by_it(project: Any) -> None:
    """With the place where it happened."""
    with pytest.raises(RuntimeError, match=r"(?s)'in work' does not know.* in parse\b"):
        project(Commits)
