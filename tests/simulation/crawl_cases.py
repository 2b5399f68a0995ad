"""The cases of several crawls on one filter: pages that fail, crawlers that die, and who does their work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from tests.simulation.accounts import Account
from tests.simulation.callers import Program, Question
from tests.simulation.cases import CUTS, Case
from tests.simulation.crawls import PlayedCrawl
from tests.simulation.faults import CODES
from tests.simulation.server import Clock
from tests.simulation.world import World

#: The pages, with the pages to which they link.
SITE = {"start": ["a", "b", "d", "e"], "a": ["b", "c"], "b": ["start"], "c": [], "d": [], "e": []}
_URL = "http://site/{}"
START = [_URL.format("start")]
#: How the first attempts to get a page end: without an answer, or by an exception of the callback. (At the third one in a row, its
#: claim would be dropped.)
FATES = {"a": ["download"], "b": ["callback", "download"], "c": ["callback"]}


class CrawlAccount(Account):
    """Hears of all fetches of a schedule. What is promised of a crawl's pages:

    - A page that is marked was fetched and parsed without an error.
    - A page that nobody has finished can be had again: the next crawl marks all that there are.
    - A crawl fetches a page once.
    - Of several crawls one finishes a page, and another one only where the first has died or has ended by an error, or where all
      was forgotten meanwhile.
    - After a clear, which forgets claims too, a page that nobody has finished is new to whoever meets a link to it.
    """

    NOTHING = None
    start = START

    def __init__(self, clock: Clock, items: Iterable[str]) -> None:
        super().__init__(clock, ())
        self.urls = [_URL.format(name) for name in items]
        #: How often each crawl has fetched a page, and which crawls have finished it.
        self._fetched: Counter[tuple[int, str]] = Counter()
        self._failures: Counter[str] = Counter()
        self.finished: defaultdict[str, list[int]] = defaultdict(list)
        #: The crawls that have ended by an error; and how often all was forgotten, perhaps.
        self.failed_crawls, self.clears = set[int](), 0

    def links_of(self, url: str) -> list[str]:
        """The pages to which a page links."""
        return [_URL.format(name) for name in SITE[url.rpartition("/")[2]]]

    def fetched(self, crawl: int, url: str) -> str:
        """A crawl fetches a page: how that ends, "" for well."""
        before, self._fetched[crawl, url] = self._fetched[crawl, url], self._fetched[crawl, url] + 1
        assert before <= self.clears, f"crawl {crawl} fetches {url} {before + 1} times"
        fates = FATES.get(url.rpartition("/")[2], [])
        failures, self._failures[url] = self._failures[url], self._failures[url] + 1
        return fates[failures] if failures < len(fates) else ""

    def succeeds(self, crawl: int, url: str) -> None:
        """A crawl's callback has handled a page without an error."""
        by = self.finished[url]
        by.append(crawl)
        repeats = len(by) - 1
        reasons = self.clears + len({*by} & (self.failed_crawls | self.dead))
        assert repeats <= reasons, f"{url} is finished by the crawls {by}"

    def begins(self, store: int, verb: str, arguments: dict[str, Any]) -> Any:
        """See ``Account``."""
        self.clears += verb == "clear"
        return super().begins(store, verb, arguments)


_ALL = CUTS | {"slow", *CODES}
#: More turns of a crawl are played without faults, at the end.
_TURNS, _LAST_TURNS = 25, 800


_TURN = Question("turn", {}, lambda crawl: crawl.turn(), lambda _: {})
_CLEAR = Question("clear", {}, lambda crawl: crawl.clear(), lambda _: {})


def _crawling() -> Program:
    for _ in range(_TURNS):
        if (yield _TURN) is False:
            return


def _crawls(number: int) -> list[tuple[Any, ...]]:
    return [(crawl, _crawling) for crawl in range(number)]


def _to_the_end(world: World, crawls: list[PlayedCrawl]) -> None:
    """The crawls go on without faults, in turns."""
    for _ in range(_LAST_TURNS):
        crawls = [crawl for crawl in crawls if not crawl.has_ended]
        if not crawls:
            return
        for crawl in crawls:
            if world.undisturbed(crawl, lambda crawl: crawl.turn()):
                crawl._send_heartbeat()
        world.server.clock.pass_by(500)
    raise AssertionError(f"crawls {[crawl.number for crawl in crawls]} have no end")


def of_pages(world: World, case: Case) -> None:
    """All that is marked was finished, and the next crawl finishes everything else."""
    account: Any = world.account
    _to_the_end(world, [c for c in world.stores if c.number not in world.gone and c.has_begun])
    world.server.clock.pass_by(151_000)
    last = case.store(world, len(world.stores), fails=False)
    world.stores.append(last)
    unfinished = [url for url in _marked(last) if not account.finished[url]]
    assert not unfinished, f"{unfinished} are marked, and no crawl has finished them"
    _to_the_end(world, [last])
    lost = [url for url in account.urls if url not in _marked(last)]
    if account.clears:
        lost = [url for url in lost if not last.can_have(url)]
    assert not lost, f"{lost} are lost"


def _marked(crawl: PlayedCrawl) -> list[str]:
    account: Any = crawl.world.account
    return [url for url in account.urls if crawl.contains(url)]


_GIVEN: dict[str, Any] = {
    "make": PlayedCrawl, "account": CrawlAccount, "end": of_pages, "has_sessions": True, "kinds": _ALL, "faults": 4,
}  # fmt: skip
_PAGES = " ".join(SITE)
_DIES = ("the first object's process dies",)
CRAWLS = [
    Case("a crawl with faults", _PAGES, _crawls(1), **_GIVEN),
    Case("two crawls", _PAGES, _crawls(2), **_GIVEN),
    Case("two crawls, one dies", _PAGES, _crawls(2), events=_DIES, **_GIVEN),
    Case("three crawls, one dies, time passes", _PAGES, _crawls(3),
         events=(*_DIES, "half a minute passes", "scripts are forgotten"), **_GIVEN),
    Case("three crawls that give each other pages, one dies", _PAGES, _crawls(3), events=_DIES,
         **{**_GIVEN, "faults": 1, "kinds": frozenset({"lost", "late", "again", "slow"})}),
    Case("two crawls, another client clears", _PAGES, [*_crawls(2), (2, _CLEAR)], events=("half a minute passes",), **_GIVEN),
]  # fmt: skip
