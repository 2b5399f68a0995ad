"""Crawlers that share a filter, and are killed and replaced, as is their server; and an account of every page.

The site fails to answer some pages for a while, and the callbacks or pipelines of others fail once. No page has two of these fates,
because one that fails in three crawls is dropped.

The account: each page is stored once. A store *is lost* if its crawler was killed, or the server was away for longer than calls
wait, after the page was stored and before it was marked; the soak looks into the filter to know which these are. A crawl that an
outage ends marks nothing more (docs/scrapy.md): what it stores from a second before its log says so is lost. After a lost store,
the page may be stored again. A crawler ends for no other reason than that nothing is left, a signal or an outage.
"""

from __future__ import annotations

import logging
import random
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import scrapy
from scrapy.http import Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers import crawl
from tests.helpers.crawl import Part
from tests.helpers.forked import Forked
from tests.helpers.harm import CUTS, FORGETS, HARM, KILLED, MINUTES, STANDS, new_seed
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis
from tests.helpers.making import needed
from tests.helpers.projects import Answers, Project, path_of, site_of
from tests.helpers.schedulers import DONE

#: Pages of a round, and the links of each: to its children in a tree, and to any pages.
PAGES, CHILDREN, OTHERS = 1500, 5, 10
CRAWLERS = 12 if MINUTES > 1 else 6
#: The faults, and how often they happen.
CRAWLER_KILLED, CRAWLER_STOPPED = "crawler killed", "crawler stopped"
FAULTS = {CRAWLER_KILLED: 6, CRAWLER_STOPPED: 3, KILLED: 2, STANDS: 3, FORGETS: 1, CUTS: 1}
#: Seconds between two faults, at most.
CALM = 6.0
#: Seconds for which the server is away: so short that calls only wait for it, or so long that crawls end. Sessions outlive both.
SHORT, LONG = (0.2, 3.0), (12.0, 18.0)
RETRY_FOR, SESSION_TTL = 10, 60
#: An outage that may end crawls (s). Crawlers and server need some time on a busy machine.
LONG_ENOUGH = RETRY_FOR / 2
#: A round in which no page is stored for so long (s) is given up. Dead sessions are found after SESSION_TTL, a page of which a
#: crawler may have died is tried when the others are done, and another one may die of it.
PATIENCE = 10 * SESSION_TTL
CAPACITY = {"capacity": 100_000, "error_rate": 1e-9}
#: What happens to pages, and to how many of a hundred.
FATES = {"status": 4, "no answer": 2, "callback": 2, "item": 2, "": 88, "late": 2}
#: What the log of a crawl says once an outage ends it, and how long before that it may have stored what it does not mark (s).
ENDS, LAST_SECONDS = re.compile(r"^([0-9.]+) ERROR tbloom.*[Tt]he crawl ends", re.MULTILINE), 1.0


def answers_of(dice: random.Random) -> Answers:
    """Return the pages, each with its links, and with its fate for the spider."""
    answers = dict[str, list[Any]]()
    for page in range(PAGES):
        [fate] = dice.choices([*FATES], [*FATES.values()]) if page else [""]
        links = [*range(CHILDREN * page + 1, CHILDREN * page + CHILDREN + 1)]
        links += [dice.randrange(PAGES) for _ in range(OTHERS)]
        body = "".join(f'<a href="/{link}"></a>' for link in links if link < PAGES)
        # A crawl tries a page three times, so that some fail in two crawls.
        failures = [503 if fate == "status" else None] * dice.randint(1, 4)
        answers[f"/{page}"] = [
            *(failures if fate in {"status", "no answer"} else []),
            (dice.uniform(0.5, 3) * (fate == "late"), f"<b>{fate}</b>{body}".encode()),
        ]
    return answers


class Soaked(Project):
    """Follows all links; each page but the first is an item."""

    folder: str

    def links(self) -> Iterator[scrapy.Request]:
        yield self.request("0", dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        page, fate = int(path_of(response)), response.css("b::text").get("")
        links = [*response.follow_all(css="a")]
        if fate == "callback" and self.is_first_time(page):
            yield from links[: len(links) // 2]
            raise RuntimeError("a callback fails half way")
        if page:
            yield {"page": page, "fate": fate}
        yield from links

    def is_first_time(self, page: int) -> bool:
        """Return True once for all crawlers."""
        with suppress(FileExistsError), Path(self.folder, f"failed-{page}").open("x"):
            return True
        return False


class Stores(Part):
    """Appends each item to a file, which is right also if the crawler is killed. Some items fail first."""

    def process_item(self, item: Any) -> Any:
        spider: Any = self.crawler.spider
        if item["fate"] == "item" and spider.is_first_time(item["page"]):
            raise RuntimeError("the database is away")
        with Path(spider.folder, "stored").open("ab", buffering=0) as file:
            file.write(b"%d %.3f %d\n" % (item["page"], time.time(), spider.number))
        return item


def log_file(folder: str | Path, number: int) -> Path:
    return Path(folder, f"log-{number}")


def one(settings: dict[str, Any], **known: Any) -> str:
    """Crawl once, in a process of its own; return why the crawl has ended."""
    log = logging.FileHandler(log_file(known["folder"], known["number"]))
    log.setFormatter(logging.Formatter("%(created).3f %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.INFO)
    logging.getLogger("tbloom").setLevel(logging.DEBUG)
    [end] = crawl.run([[(Soaked, known)]], **settings)
    return f"{end['finish_reason']} {end['failures'] or ''}"


class Stored(NamedTuple):
    """A page that was stored: when (s since the epoch), and by which crawler."""

    page: int
    at: float
    crawler: int


class Round:
    """One filter, one site, its crawlers, and their faults."""

    def __init__(self, server: LocalRedis, site: str, folder: Path) -> None:
        self._server, self._site, self._folder = server, site, folder
        self._key = f"soak:{folder.name}"
        self._crawlers = dict[int, Forked]()
        #: Why crawlers have ended, and what is wrong with that.
        self._ends, self._wrong = dict[int, str | None](), list[str]()
        self._lost = set[Stored]()
        #: When the filter was looked into after the last long outage, and how long the server was away at most (s), by crawlers.
        self._looked, self._away = 0.0, defaultdict[int, float](float)
        #: The crawlers that were told to end, and those of them that wait for no server that was away meanwhile.
        self._told, self._told_while_away = set[int](), set[int]()
        self.faults = Counter[str]()

    def replace_ended(self) -> None:
        """Start as many crawlers as have ended."""
        for number, crawler in [*self._crawlers.items()]:
            if not crawler.is_running:
                del self._crawlers[number]
                self._ended(number, crawler.result())
        settings = {
            **DONE,
            "REDIS_URL": self._server.url,
            "TBLOOM_KEY": self._key,
            "TBLOOM_CAPACITY": CAPACITY["capacity"],
            "TBLOOM_ERROR_RATE": CAPACITY["error_rate"],
            "TBLOOM_SESSION_TTL": SESSION_TTL,
            "TBLOOM_RETRY_FOR": RETRY_FOR,
            "RETRY_ENABLED": True,
            "DOWNLOAD_TIMEOUT": 30,
            "CONCURRENT_REQUESTS": 4,
            "ITEM_PIPELINES": {Stores: 300},
        }
        known = {"site": f"{self._site}/", "folder": str(self._folder)}
        while len(self._crawlers) < CRAWLERS:
            number = len(self._ends) + len(self._crawlers)
            self._crawlers[number] = Forked(one, settings, number=number, **known)

    def _ended(self, number: int, end: str | None) -> None:
        """Note why a crawler has ended, and what it has stored and not marked."""
        self._ends[number] = end
        was_away, own = self._away[number] > LONG_ENOUGH, self._stored_by(number)
        # None: it was stopped before it could take the signal.
        if end is None or number in self._told_while_away:
            self._lose(own)
        elif was_away and end.startswith(("tbloom_error", "shutdown")):
            # What it has stored since then may be unmarked, too.
            self._lose(one for one in own if one.at > self._looked)
        expected = {"finished "}
        if number in self._told:  # perhaps before it had begun
            expected |= {"shutdown ", "None ", None}
        if was_away:
            # The last two: the server was away when the crawl began.
            expected |= {"tbloom_error ", "shutdown ", "None "}
        if end not in expected:
            self._wrong.append(f"crawler {number} ended: {end}")

    def stored(self) -> list[Stored]:
        """Return what was stored, in order."""
        path = self._folder / "stored"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Stored(int(page), float(at), int(by)) for page, at, by in map(str.split, lines)]

    def _stored_by(self, number: int) -> list[Stored]:
        return [one for one in self.stored() if one.crawler == number]

    def strike(self, dice: random.Random) -> None:
        """Let one fault happen."""
        [what] = dice.choices([*FAULTS], [*FAULTS.values()])
        running = [number for number, crawler in self._crawlers.items() if crawler.is_running]
        if what == CRAWLER_STOPPED:  # the second signal would be another fault
            running = [number for number in running if number not in self._told]
        if not running:
            return
        self.faults[what] += 1
        number, began, seconds = dice.choice(running), time.monotonic(), 0.0
        if what == CRAWLER_KILLED:
            self._crawlers.pop(number).kill()
            self._ends[number] = "killed"
            self._lose(self._stored_by(number))
        elif what == CRAWLER_STOPPED:
            self._crawlers[number].send_signal(signal.SIGTERM)
            self._told.add(number)
        else:
            seconds = dice.uniform(*dice.choice([SHORT, LONG]))
            self._told_while_away |= self._told & self._crawlers.keys()
            HARM[what](self._server, seconds)
            away = time.monotonic() - began
            for number in self._crawlers:
                self._away[number] = max(away, self._away[number])
            if away > LONG_ENOUGH:
                self._looked = time.time()
                self._lose(self.stored())
        print(f"{time.time():.1f}: {what}, {number} or for {seconds:.1f} s")

    def _lose(self, stored: Iterable[Stored]) -> None:
        """Note which of these stores are lost: their pages are not marked."""
        some = [*stored]
        unmarked = self._unmarked({one.page for one in some})
        self._lost.update(one for one in some if one.page in unmarked)

    def is_complete(self) -> bool:
        """Return True if each page is stored and marked. What a killed crawler has stored is marked once another one has done it again."""
        pages = {one.page for one in self.stored()}
        return len(pages) == PAGES - 1 and not self._unmarked(pages)

    def _unmarked(self, wanted: set[int]) -> set[int]:
        pages = [*wanted]
        requests = (scrapy.Request(f"{self._site}/{page}") for page in pages)
        with TimeBloom.from_url(self._server.url, self._key, **CAPACITY) as seen:
            marked = seen.contains_many(map(fingerprint, requests))
        return {page for page, is_marked in zip(pages, marked, strict=True) if not is_marked}

    def finish(self) -> None:
        """Stop all crawlers, and wait for their end."""
        for crawler in self._crawlers.values():
            crawler.send_signal(signal.SIGTERM)
        self._told |= self._crawlers.keys()
        while self._crawlers:
            number, crawler = self._crawlers.popitem()
            self._ended(number, crawler.result())

    def account(self) -> list[str]:
        """Return what is wrong: pages that are missing, stored too often, or not marked; and crawlers that should not have ended."""
        stored = defaultdict[int, list[Stored]](list)
        ends = {number: self._end_in_log(number) for number in self._ends}
        for one in self.stored():
            stored[one.page].append(one)
            if one.at > ends[one.crawler] - LAST_SECONDS:
                self._lost.add(one)
        wrong = [f"{page}: not stored" for page in {*range(1, PAGES)} - stored.keys()]
        for page, times in stored.items():
            if len({*times} - self._lost) > 1:
                told = (
                    f"at {one.at:.1f} by {one.crawler} ({self._ends[one.crawler]}{', lost' * (one in self._lost)})"
                    for one in times
                )
                wrong.append(f"{page}: stored {', '.join(told)}")
        wrong += [f"{page}: stored and not marked" for page in self._unmarked({*stored})]
        return wrong + self._wrong

    def _end_in_log(self, number: int) -> float:
        """Return when a crawler's log says that an outage ends it."""
        path = log_file(self._folder, number)
        # Without a log, it was ended before it could begin.
        ends = ENDS.search(path.read_text(encoding="utf-8")) if path.exists() else None
        return float(ends[1]) if ends else float("inf")


def play(server: LocalRedis, folder: Path, dice: random.Random, until: float) -> Round:
    """Play one round, with faults until most pages are stored or the time is over."""
    with site_of(answers_of(dice)) as site:
        round_ = Round(server, site.url, folder)
        try:
            most, changed = 0, time.monotonic()
            next_fault = changed + dice.uniform(2, CALM)
            while not round_.is_complete():
                round_.replace_ended()
                time.sleep(0.2)
                now, number = time.monotonic(), len({one.page for one in round_.stored()})
                if number > most:
                    most, changed = number, now
                elif now - changed > PATIENCE:
                    break
                if next_fault < now < until and most < PAGES * 0.97:
                    round_.strike(dice)
                    next_fault = time.monotonic() + dice.uniform(0.5, CALM)
        finally:
            round_.finish()
    return round_


@pytest.mark.check
@pytest.mark.timeout(60 * MINUTES + 1800)
def test_each_page_is_stored_once_whatever_is_killed(tmp_path: Path) -> None:
    """Again only where a kill or a long outage came between storing and marking it."""
    needed()
    dice, until, faults = random.Random(new_seed()), time.monotonic() + 60 * MINUTES, Counter[str]()
    with LocalRedis(BINARIES[MAIN], "--appendonly", "yes", "--appendfsync", "always") as server:
        while not faults or time.monotonic() < until:
            folder = tmp_path / str(time.monotonic_ns())
            folder.mkdir()
            played = play(server, folder, dice, until)
            faults += played.faults
            print(f"{len(played.stored())} stores; {dict(played.faults)}")
            assert [] == played.account()
