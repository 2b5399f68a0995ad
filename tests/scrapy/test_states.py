"""The table of a page's states: a random walk against a plain model; and a crawl in which a page meets what the table lacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from scrapy.http import Response

from tbloom import Claim, TimeBloom
from tbloom.scrapy.components import pages_of
from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.page import EndedPage
from tbloom.scrapy.done.states import TABLE, Event, Known, Register, State, UnknownStep
from tests.helpers.documents import ROOT
from tests.helpers.projects import Project, path_of, times

E, S = Event, State
QUEUED, FAILED = {S.QUEUED, S.WAITING, S.FOLLOWED}, {S.HELD, S.FREE}
#: What each event means: for pages in which states it is, and in which state they are then.
MEANING = [
    (E.VERSION, {S.UNKNOWN}, S.QUEUED),
    (E.OUT, {S.UNKNOWN} | QUEUED, S.WORK),
    (E.ON, {S.WORK}, S.WAITING),
    (E.DROPPED, QUEUED, S.UNKNOWN),
    (E.DONE, {S.WORK}, S.ENDED),
    (E.FAIL, {S.WORK, S.ENDED}, S.HELD),
    (E.FAIL_LIST, {S.WORK, S.ENDED}, S.UNKNOWN),
    (E.GIVE_UP, {S.WORK, S.ENDED}, S.FREE),
    (E.KEPT, {S.ENDED}, S.UNSTORED),
    (E.STORED, {S.UNSTORED}, S.ENDED),
    (E.SEND, {S.ENDED}, S.SENT),
    (E.COMMITTED, {S.SENT}, S.UNKNOWN),
    (E.LINK, FAILED, S.FOLLOWED),
    (E.FETCH, FAILED, S.UNKNOWN),
    (E.PART, {S.HELD}, S.FREE),
]


def next_state(state: State, event: Event) -> State | None:
    return next((to for what, of, to in MEANING if what is event and state in of), None)


class Redirected(Known):
    """What is known of a page in another class."""


@dataclass
class Model:
    """What should be known of a page."""

    known: Known
    state: State = S.UNKNOWN
    others: tuple[str, ...] = ()
    asked: dict[str, object] = field(default_factory=dict)


class Walk:
    """What happens to four pages at random, in a register and in its model."""

    def __init__(self, seed: int) -> None:
        self.random, self.register = random.Random(seed), Register()
        self.pages = {first: Model(Known(first)) for first in "abcd"}
        #: Of pages that were claimed once more, because their session was lost.
        self.outlived: list[Known] = []

    def another(self, known: Known) -> Known:
        """The object that is known from now on: the same, or one of a page that was redirected."""
        if self.random.random() < 0.5:
            return known
        new = Redirected(known.first)
        new.others = (f"{known.first}1", f"{known.first}2")[: self.random.randrange(3)]
        return new

    def become(self, known: Known, state: State) -> None:
        first, page = known.first, self.pages[known.first]
        asked = page.asked if known is page.known else {}
        self.pages[first] = Model(known, state, known.others, asked)
        if state is S.UNKNOWN:
            self.pages[first] = Model(Known(first))

    def step(self, page: Model) -> None:
        event, new = self.random.choice([*E]), self.another(page.known)
        if state := next_state(page.state, event):
            assert self.register.step(page.known, event, new)
            self.become(new, state)
        else:
            with pytest.raises(UnknownStep, match=f"'{page.state.value}' .* '{event.value}'"):
                self.register.step(page.known, event, new)

    def step_outlived(self, _: Model) -> None:
        """An object that the register has forgotten goes its own way, and the register knows nothing of it."""
        if not self.outlived:
            return
        old = self.outlived.pop(self.random.randrange(len(self.outlived)))
        event, new = self.random.choice([*E]), self.another(old)
        if state := next_state(old.state, event):
            self.register.step(old, event, new)
            assert state is new.state
        else:
            new = old
        if new.state is not S.UNKNOWN:
            self.outlived.append(new)

    def claim_again(self, page: Model) -> None:
        if page.state is not S.UNKNOWN:
            self.outlived.append(page.known)
            again = Known(page.known.first)
            self.register.step(again, E.OUT)
            self.become(again, S.WORK)

    def ask(self, page: Model) -> None:
        first, version, link = page.known.first, self.random.choice("123"), object()
        self.register.ask(self.random.choice([first, *page.others]), version, link)
        if page.state is S.UNKNOWN:
            page.known, page.state = self.register.all(Known, S.QUEUED)[-1], S.QUEUED
        page.asked.pop(version, None)
        page.asked[version] = link

    def take_asked(self, page: Model) -> None:
        assert [*page.asked.items()] == [*self.register.take_asked(page.known.first).items()]
        page.asked = {}

    def compare(self) -> None:
        register = self.register
        for first, page in self.pages.items():
            known = page.known if page.state is not S.UNKNOWN else None
            assert page.state is register.state_of(first)
            assert known is register.get(Known, first)
            assert (known if page.state in FAILED else None) is register.get(Known, first, *FAILED)
            is_other = isinstance(known, Redirected)
            assert (known if is_other else None) is register.get(Redirected, first)
            aliases = [f"{first}1", f"{first}2"]
            assert [first if each in page.others else each for each in aliases] == [
                register.first_of(each) for each in aliases
            ]
        for state in {*S} - {S.UNKNOWN}:
            of_state = {page.known for page in self.pages.values() if page.state is state}
            assert len(of_state) == register.count(state)
            assert of_state == {*register.all(Known, state)}


@pytest.mark.parametrize("seed", range(20))
def test_a_walk(seed: int) -> None:
    walk = Walk(seed)
    moves = [walk.step] * 9 + [walk.step_outlived, walk.claim_again, walk.ask, walk.take_asked]
    for _ in range(2_000):
        walk.random.choice(moves)(walk.random.choice([*walk.pages.values()]))
        walk.compare()


def reached(state: State) -> set[State]:
    """The states to which events lead from this one, in any number of steps."""
    found, new = set[State](), {state}
    while new:
        found |= new
        new = {to for each in new for to in TABLE[each].values()} - found
    return found


def test_the_table_is_whole() -> None:
    """Each state is reached, and left in the end; each event is used."""
    assert {*S} == {*TABLE} == reached(S.UNKNOWN)
    assert [] == [state for state in S if S.UNKNOWN not in reached(state)]
    assert {*E} == {event for events in TABLE.values() for event in events}


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
        while not (ended := register.all(EndedPage, S.ENDED)):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        register.step(ended[0] if self.page == "a" else pages.work.of(response), self.event)


class Sends(Breaks):
    """The committer's own step is not known then."""

    page, event = "a", E.SEND


class Commits(Breaks):
    page, event = "b", E.COMMITTED


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
        await until(lambda: register.count(S.HELD) == 2)
        self.crawler.engine.pause()
        queued = [self.request("again")]
        queued += [self.request("both", meta={"tbloom_version": each}) for each in ("1", "2")]
        for request in queued:
            yield request
        await until(lambda: register.count(S.FOLLOWED) == register.count(S.QUEUED) == 1)
        before = seen.session
        with TimeBloom.open(seen.client, seen.name) as other:
            sessions = f"{{{other.name}}}:sessions"
            while other.client.hexists(sessions, before):  # a heartbeat may come in between
                other.client.hset(sessions, before, "1")  # alive until 1970
                other.take(0, "another queue")  # buries it
            await until(lambda: seen.session != before)
            items = [self.crawler.request_fingerprinter.fingerprint(each) for each in queued[:2]]
            self.said += [other.claim_many(items), register.count(S.HELD)]
            self.crawler.engine.unpause()
            await until(lambda: not register.count(S.FOLLOWED) + register.count(S.QUEUED))


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - threads do it
        await asyncio.sleep(0.01)


def test_a_crawl_whose_session_was_lost_takes_what_no_other_one_has(project: Any) -> None:
    """What others have is dropped; what has failed is held no longer."""
    answers = {"/again": [503], "/failed": [503]}
    [crawl] = project(LosesItsSession, answers=answers, TBLOOM_SESSION_TTL=1)
    counted = times([crawl])
    assert {"0": counted["0"], "again": [1], "failed": [2]} == counted
    assert [[Claim.NEW] * 2, 0] == crawl.said
    assert "finished" == crawl.reason


def test_a_crawl_of_a_test_fails_by_it(project: Any) -> None:
    """With the place where it happened."""
    with pytest.raises(RuntimeError, match=r"(?s)'in work' does not know.* in parse\b"):
        project(Commits)


def test_the_architecture_shows_the_table() -> None:
    rows = ["| state | what happens → next state |", "|---|---|"]
    for state, events in TABLE.items():
        steps = "; ".join(f"{event.value} → *{to.value}*" for event, to in events.items())
        rows.append(f"| *{state.value}* | {steps} |")
    page = ROOT / "docs" / "architecture.md"
    assert "\n".join(["", *rows, ""]) in page.read_text(encoding="utf-8")
