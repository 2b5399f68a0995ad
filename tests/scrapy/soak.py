"""A soak: crawlers and their server are killed for as long as you like, and an account of every page.

    python -m tests.scrapy.soak --minutes 60

Crawlers share a filter, and their pages, with ``TBLOOM_MARK = "done"``. The site fails to answer some pages for a while, and the
callbacks or pipelines of others fail once. No page has two of these fates, because one that fails in three crawls is dropped.
Meanwhile crawlers are killed (kill -9) or stopped, and the server is killed or stands still. Every crawler that ends is replaced.
Once each page is stored, the account is made, and another round begins.

The account: each page is stored once. A store *is lost* if its crawler was killed, or the server was away for longer than calls
wait, after the page was stored and before it was marked; the soak looks into the filter to know which these are. A crawl that an
outage ends marks nothing more (docs/scrapy.md): what it stores from a second before its log says so is lost. After a lost store,
the page may be stored again. A crawler ends for no other reason than that nothing is left, a signal or an outage.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import scrapy
from scrapy.http import Response
from scrapy.utils.request import fingerprint

from tbloom import TimeBloom
from tests.helpers import crawl
from tests.helpers.crawl import Part
from tests.helpers.forked import Forked
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis
from tests.helpers.schedulers import DONE
from tests.helpers.website import Handler, served

#: Pages of a round, and the links of each: to its children in a tree, and to any pages.
PAGES, CHILDREN, OTHERS = 1500, 5, 10
#: The faults, and how often they happen.
KILLED, STOPPED = "kill a crawler", "stop a crawler"
SERVER_KILLED, SERVER_STANDS = "kill the server", "server stands still"
FAULTS = {KILLED: 6, STOPPED: 3, SERVER_KILLED: 2, SERVER_STANDS: 3}
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
#: What happens to a page whose draw is below the number (and not below the one before). No page has two of them.
FATES = {0.04: "status", 0.06: "no answer", 0.08: "callback", 0.1: "item", 0.98: "", 1.0: "late"}
#: What the log of a crawl says once an outage ends it, and how long before that it may have stored what it does not mark (s).
ENDS, LAST_SECONDS = re.compile(r"^([0-9.]+) ERROR tbloom.*[Tt]he crawl ends", re.MULTILINE), 1.0


def fate_of(seed: str, page: int) -> str:
    """Return what happens to this page, as FATES names it."""
    drawn = random.Random(f"{seed} {page}").random()
    return next(fate for below, fate in FATES.items() if drawn < below)


class Site(Handler):
    """Pages that fail at first: with a status, without an answer, or late. The server counts how often each was ``asked``."""

    def get(self) -> None:
        number = int(self.path[1:])
        seed = self.server.seed
        fate, dice = fate_of(seed, number), random.Random(f"{number} {seed}")
        # A crawl tries a page three times, so that some fail in two crawls.
        times = dice.randint(1, 4)
        with self.server.guard:
            self.server.asked[number] += 1
            is_early = self.server.asked[number] <= times
        if fate == "status" and is_early and number:
            self.answer(503)
        elif fate == "no answer" and is_early and number:
            self.close_connection = True
        else:
            if fate == "late":
                time.sleep(dice.uniform(0.5, 3))
            links = [*range(CHILDREN * number + 1, CHILDREN * number + CHILDREN + 1)]
            links += [dice.randrange(PAGES) for _ in range(OTHERS)]
            body = "".join(f'<a href="/{link}"></a>' for link in links if link < PAGES)
            self.answer(200, body.encode())


class Soaked(scrapy.Spider):
    """Follows all links; each page but the first is an item."""

    name = "soaked"
    site: str
    seed: str
    folder: str
    number: int

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self.site}/0", dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        page = int(response.url.rpartition("/")[2])
        links = [*response.follow_all(css="a")]
        if page and fate_of(self.seed, page) == "callback" and self.first_time(page):
            yield from links[: len(links) // 2]
            raise RuntimeError("a callback fails half way")
        if page:
            yield {"page": page}
        yield from links

    def first_time(self, page: int) -> bool:
        """True once for all crawlers."""
        with suppress(FileExistsError), Path(self.folder, f"failed-{page}").open("x"):
            return True
        return False


class Stores(Part):
    """Appends each item to the crawler's file, which is right also if the crawler is killed. Some items fail first."""

    def process_item(self, item: Any) -> Any:
        spider: Any = self.crawler.spider
        page = item["page"]
        if fate_of(spider.seed, page) == "item" and spider.first_time(page):
            raise RuntimeError("the database is away")
        with stored_file(spider.folder, spider.number).open("ab", buffering=0) as file:
            file.write(b"%d %.3f\n" % (page, time.time()))
        return item


def stored_file(folder: str | Path, number: int) -> Path:
    return Path(folder, f"stored-{number}")


def log_file(folder: str | Path, number: int) -> Path:
    return Path(folder, f"log-{number}")


def one(settings: dict[str, Any], **known: Any) -> str:
    """One crawl, in a process of its own; returns why it has ended."""
    log = logging.FileHandler(log_file(known["folder"], known["number"]))
    log.setFormatter(logging.Formatter("%(created).3f %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.INFO)
    logging.getLogger("tbloom").setLevel(logging.DEBUG)
    [end] = crawl.run([[(Soaked, known)]], **settings)
    return f"{end['finish_reason']} {end['failures'] or ''}"


class Stored(NamedTuple):
    """A page that was stored."""

    page: int
    #: When (s since the epoch), and by which crawler.
    at: float
    crawler: int


class Round:
    """One filter, one site, its crawlers, and their faults."""

    def __init__(
        self, server: LocalRedis, site: str, seed: str, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._server, self._site, self._seed = server, site, seed
        self._folder, self._say = folder, say
        self._key = f"soak:{folder.name}"
        self._crawlers = dict[int, Forked]()
        self._started = 0
        #: Why crawlers have ended, and what is wrong with that.
        self._ends = dict[int, str | None]()
        self._wrong = list[str]()
        self._lost = set[Stored]()
        #: When the filter was looked into after the last long outage, and how long the server was away at most (s), by crawlers.
        self._looked = 0.0
        self._away = defaultdict[int, float](float)
        #: The crawlers that were told to end, and those of them that wait for no server that was away meanwhile.
        self._told = set[int]()
        self._told_while_away = set[int]()
        self.faults = Counter[str]()

    def start(self) -> None:
        """Start another crawler."""
        number = self._started
        self._started += 1
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
        known = {
            "site": self._site,
            "seed": self._seed,
            "folder": str(self._folder),
            "number": number,
        }
        self._crawlers[number] = Forked(one, settings, **known)

    def replace_ended(self, wanted: int) -> None:
        """Start as many crawlers as have ended."""
        for number, crawler in [*self._crawlers.items()]:
            if not crawler.is_running:
                del self._crawlers[number]
                self._ended(number, crawler.result())
        while len(self._crawlers) < wanted:
            self.start()

    def _ended(self, number: int, end: str | None) -> None:
        """Note why a crawler has ended, and what it has stored and not marked."""
        self._ends[number] = end
        was_away = self._away[number] > LONG_ENOUGH
        # None: it was stopped before it could take the signal.
        if end is None or number in self._told_while_away:
            self._lose(self.stored(number))
        elif was_away and end.startswith(("tbloom_error", "shutdown")):
            # What it has stored since then may be unmarked, too.
            self._lose([one for one in self.stored(number) if one.at > self._looked])
        expected = {"finished "}
        if number in self._told:  # perhaps before it had begun
            expected |= {"shutdown ", "None ", None}
        if was_away:
            # The last two: the server was away when the crawl began.
            expected |= {"tbloom_error ", "shutdown ", "None "}
        if end not in expected:
            self._wrong.append(f"crawler {number} ended: {end}")

    def stored(self, *numbers: int) -> list[Stored]:
        """What these crawlers have stored; without numbers, all."""
        found = []
        for number in numbers or range(self._started):
            with suppress(FileNotFoundError):
                lines = stored_file(self._folder, number).read_text().splitlines()
                pairs = (line.split() for line in lines)
                found += [Stored(int(page), float(at), number) for page, at in pairs]
        return found

    def _lost_by_its_log(self, number: int) -> list[Stored]:
        """What this crawl has stored after its log says that an outage ends it, or shortly before."""
        path = log_file(self._folder, number)
        if not path.exists():  # it was ended before it could begin
            return []
        ends = ENDS.search(path.read_text(encoding="utf-8"))
        until = float(ends[1]) - LAST_SECONDS if ends else float("inf")
        return [one for one in self.stored(number) if one.at > until]

    def strike(self, dice: random.Random) -> None:
        """One fault."""
        [what] = dice.choices([*FAULTS], [*FAULTS.values()])
        running = [number for number, crawler in self._crawlers.items() if crawler.is_running]
        if what == STOPPED:  # the second signal would be another fault
            running = [number for number in running if number not in self._told]
        if not running:
            return
        self.faults[what] += 1
        number = dice.choice(running)
        if what == KILLED:
            self._crawlers.pop(number).kill()
            self._ends[number] = "killed"
            self._lose(self.stored(number))
            self._say(f"{what}: {number}, at {time.time():.1f}")
        elif what == STOPPED:
            self._crawlers[number].send_signal(signal.SIGTERM)
            self._told.add(number)
            self._say(f"{what}: {number}, at {time.time():.1f}")
        else:
            seconds = dice.uniform(*dice.choice([SHORT, LONG]))
            self._say(f"{what} for {seconds:.1f} s, at {time.time():.1f}")
            assert self._server.process
            self._told_while_away |= self._told & self._crawlers.keys()
            began = time.monotonic()
            if what == SERVER_KILLED:
                self._server.kill()
                time.sleep(seconds)
                self._server.restart()
            else:
                self._server.process.send_signal(signal.SIGSTOP)
                time.sleep(seconds)
                self._server.process.send_signal(signal.SIGCONT)
            away = time.monotonic() - began
            for number in self._crawlers:
                self._away[number] = max(away, self._away[number])
            if away > LONG_ENOUGH:
                self._looked = time.time()
                self._lose(self.stored())

    def _lose(self, stored: list[Stored]) -> None:
        """Note which of these stores are lost: their pages are not marked."""
        unmarked = {*self._unmarked({one.page for one in stored})}
        self._lost.update(one for one in stored if one.page in unmarked)

    def is_complete(self) -> bool:
        """Whether each page is stored and marked. What a killed crawler has stored is marked once another one has done it again."""
        pages = {one.page for one in self.stored()}
        return len(pages) == PAGES - 1 and not self._unmarked(pages)

    def _unmarked(self, wanted: set[int]) -> list[int]:
        pages = sorted(wanted)
        requests = (scrapy.Request(f"{self._site}/{page}") for page in pages)
        with TimeBloom.from_url(self._server.url, self._key, **CAPACITY) as seen:
            marked = seen.contains_many(map(fingerprint, requests))
        return [page for page, is_marked in zip(pages, marked, strict=True) if not is_marked]

    def finish(self) -> None:
        """Stop all crawlers, and wait for their end."""
        for crawler in self._crawlers.values():
            crawler.send_signal(signal.SIGTERM)
        self._told |= self._crawlers.keys()
        while self._crawlers:
            number, crawler = self._crawlers.popitem()
            self._ended(number, crawler.result())

    def account(self) -> list[str]:
        """What is wrong: pages that are missing, stored too often, or not marked; and crawlers that should not have ended."""
        stored = defaultdict[int, list[Stored]](list)
        for one in sorted(self.stored(), key=attrgetter("at")):
            stored[one.page].append(one)
        missing = {*range(1, PAGES)} - stored.keys()
        unmarked = {*self._unmarked(missing)}
        for number in range(self._started):
            self._lost.update(self._lost_by_its_log(number))
        wrong = [
            f"{page}: not stored, and {'not ' * (page in unmarked)}marked; its fate: {fate_of(self._seed, page) or 'none'}"
            for page in sorted(missing)
        ]
        for page, times in stored.items():
            if len({*times} - self._lost) > 1:
                told = (
                    f"at {one.at:.1f} by {one.crawler} ({self._ends.get(one.crawler)}{', lost' * (one in self._lost)})"
                    for one in times
                )
                wrong.append(f"{page}: stored {', '.join(told)}")
        wrong += [f"{page}: stored and not marked" for page in self._unmarked({*stored})]
        return wrong + self._wrong


class Played(NamedTuple):
    """A round that has ended."""

    #: How many pages were stored, how often, and how many requests the site got.
    pages: int
    stored: int
    asked: int
    #: How often each fault happened.
    faults: Counter[str]
    wrong: list[str]

    def __str__(self) -> str:
        faults = ", ".join(f"{what} {times}" for what, times in self.faults.items())
        pages = f"{self.pages} pages were stored {self.stored} times, after {self.asked} requests"
        return f"{pages}; {faults}; {len(self.wrong)} wrong"


def play(
    server: LocalRedis,
    folder: Path,
    seed: str,
    say: Callable[[str], None],
    *,
    crawlers: int,
    until: float,
) -> Played:
    """One round, with faults until most pages are stored or the time is over."""
    dice = random.Random(seed)
    known: dict[str, Any] = {"seed": seed, "asked": Counter(), "guard": threading.Lock()}
    with served(Site, **known) as site:
        round_ = Round(server, site.url, seed, folder, say)
        try:
            most, changed = 0, time.monotonic()
            next_fault = changed + dice.uniform(2, CALM)
            while not round_.is_complete():
                round_.replace_ended(crawlers)
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
        wrong = round_.account()
        stored = [one.page for one in round_.stored()]
        asked = site.asked.total()
        played = Played(len({*stored}), len(stored), asked, round_.faults, wrong)
    say(str(played))
    return played


def soak(minutes: float, crawlers: int, seed: str, say: Callable[[str], None]) -> list[Played]:
    """Play rounds for so long, and no further one after a fault in tbloom."""
    say(f"seed {seed}")
    until = time.monotonic() + 60 * minutes
    options = "--appendonly", "yes", "--appendfsync", "always"
    rounds = list[Played]()
    with ExitStack() as stack:
        server = stack.enter_context(LocalRedis(BINARIES[MAIN], *options))
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        while not rounds or (time.monotonic() < until and not rounds[-1].wrong):
            number = len(rounds)
            folder = root / f"{os.getpid()}-{number}"
            folder.mkdir()
            known: dict[str, Any] = {"crawlers": crawlers, "until": until}
            rounds.append(play(server, folder, f"{seed} {number}", say, **known))
    return rounds


def main() -> int:
    """Soak, and say what happened when."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--crawlers", type=int, default=20)
    parser.add_argument("--seed", default=str(time.time_ns()))
    arguments = parser.parse_args()
    begun = time.monotonic()

    def say(text: str) -> None:
        minutes, seconds = divmod(time.monotonic() - begun, 60)
        print(f"{minutes:3.0f}:{seconds:04.1f} {text}", flush=True)

    wrong = soak(arguments.minutes, arguments.crawlers, arguments.seed, say)[-1].wrong
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
