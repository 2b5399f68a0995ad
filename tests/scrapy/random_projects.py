"""Random projects, crawled several times, beside a model of what is to be fetched, stored and marked.

    python -m tests.scrapy.random_projects --seeds 300

A project has a small site, a spider, settings, and what befalls each page in each crawl. The last crawls meet no failure. Which pages
a crawl asks for does not depend on their order, so that the model is exact; where a crawl is stopped early, or two crawlers share the
work, it says what is allowed. A seed that differs is printed with its project; ``--seed 17`` crawls that one alone.
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import scrapy
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.http import Response

from tbloom.scrapy.signals import items_buffered, items_flushed
from tests.helpers import crawl
from tests.helpers.crawl import Part
from tests.helpers.forked import Forked
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import needed
from tests.helpers.projects import KeepsItems, Log, marked, path_of, queued
from tests.helpers.website import Handler, served

#: Crawls of a project, and those of them that may meet failures: at first.
CRAWLS, TROUBLED = 5, 3
#: A page fails in so many crawls in a row; then it is given up.
GIVEN_UP = 3
#: Seeds that one process crawls.
CHUNK = 10

#: What comes out of a callback: all, nothing, or what was yielded before it raised (of a list: nothing).
ALL, NOTHING, BEFORE = "all", "nothing", "before"


class Fate(NamedTuple):
    """What comes of a page if its feeds store everything."""

    output: str = ALL
    is_done: bool = True
    #: How often it is asked for, without retries; whether Scrapy retries it; and whether it is redirected.
    asks: int = 1
    is_retried: bool = False
    is_redirected: bool = False
    #: Items that do not come from the callback.
    more: tuple[str, ...] = ()


FATES = {
    "good": Fate(),
    "handled": Fate(),
    "redirect": Fate(is_redirected=True),
    "retried": Fate(asks=2),
    "404": Fate(NOTHING),
    "403": Fate(NOTHING, is_done=False),
    "503": Fate(NOTHING, is_done=False, is_retried=True),
    "cut": Fate(NOTHING, is_done=False, is_retried=True),
    "ignored": Fate(NOTHING, is_done=False, asks=0),
    "redirect, 403": Fate(NOTHING, is_done=False, is_redirected=True),
    "raises before": Fate(NOTHING, is_done=False),
    "raises after": Fate(BEFORE, is_done=False),
    "an item fails": Fate(is_done=False),
    "says done": Fate(BEFORE),
    "says not done": Fate(is_done=False),
    "errback done": Fate(NOTHING, is_retried=True),
    "errback item": Fate(NOTHING, is_done=False, is_retried=True, more=("stored",)),
}
#: How a page is requested. Those but the first two are linked from the start page, because nobody takes them over.
FLAVOURS = ("plain", "keep", "object", "lambda", "within", "unfiltered")
NOT_TAKEN_OVER = ("object", "lambda", "within", "unfiltered")
#: What keeps items: each may lose those of a whole crawl.
HOLDERS = ("file", "upload", "batches", "buffer", "second buffer")


class Opaque:
    """What can't be written as text, but pickled."""

    def __init__(self, first: int, second: int) -> None:
        self.sum = first + second


@dataclass(frozen=True)
class Page:
    links: tuple[str, ...]
    flavour: str
    #: Items of the page: "stored" or "dropped".
    items: tuple[str, ...]
    #: By the crawl's number.
    fates: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A project and its crawls."""

    seed: int
    mark: str
    queue: str
    crawlers: int
    concurrent: int
    retries: int
    #: "generator", "async" or "list".
    style: str
    pages: dict[str, Page]
    #: Each with the crawls whose items it loses.
    holders: dict[str, tuple[int, ...]]
    #: After how many pages a crawl is stopped; 0: at its end.
    stops: tuple[int, ...]

    @property
    def is_done(self) -> bool:
        return self.mark != "scheduled"


def plan_of(seed: int) -> Plan:
    """The seed's project."""
    chance = random.Random(seed)
    mark = chance.choice(["scheduled", "done", "done", "done, local"])
    queue = chance.choice(["memory", "JOBDIR", "scrapy-redis"])
    if mark != "scheduled" and queue == "scrapy-redis":
        queue = "memory"
    kind = chance.choices(["whole", "stopped", "fleet"], [7, 3, 2])[0]
    if kind == "fleet" and (mark != "done" or queue == "JOBDIR"):
        kind = "whole"
    flavours = [flavour for flavour in FLAVOURS if flavour != "lambda" or queue != "scrapy-redis"]
    if kind == "stopped":  # a queue may have them twice, or lose them
        flavours = ["plain", "keep"] if mark == "scheduled" else ["plain", "keep", "object"]
    # A page that waits for its retry when its crawl is stopped has one left, or all of them.
    fates = [fate for fate in FATES if kind == "whole" or fate not in ("ignored", "retried")][1:]
    names = [f"p{number}" for number in range(chance.randint(3, 9))]
    pages = {}
    trouble = 1 if kind == "fleet" else TROUBLED
    for name in names:
        flavour = chance.choice(["plain", "plain", *flavours])
        rate = chance.choice([0.0, 0.3, 0.6, 1.0])
        fate = chance.choice(fates)
        others = [
            (fate if chance.random() < 0.6 else chance.choice(fates))
            if chance.random() < rate
            else "good"
            for _ in range(trouble)
        ]
        links = () if flavour == "unfiltered" else tuple(chance.sample(names, chance.randint(0, 3)))
        items = tuple(chance.choices(["stored", "dropped"], [4, 1], k=chance.randint(0, 2)))
        pages[name] = Page(links, flavour, items, (*others, *["good"] * (CRAWLS - trouble)))
    # Only the start page leads to pages that are fetched once for each link, or whose links must come again.
    for name, page in pages.items():
        kept = tuple(
            link for link in page.links if pages[link].flavour not in ("within", "unfiltered")
        )
        pages[name] = Page(kept, page.flavour, page.items, page.fates)
    start = [
        name
        for name, page in pages.items()
        if page.flavour in NOT_TAKEN_OVER or kind == "fleet" or chance.random() < 0.4
    ] or names[:1]
    pages["start"] = Page(tuple(start), "unfiltered", (), ("good",) * CRAWLS)
    holders = {}
    for holder in chance.sample(HOLDERS, chance.choice([0, 1, 1, 2])):
        lost = [number for number in range(trouble) if chance.random() < 0.3]
        holders[holder] = tuple(lost) if holder != "file" and mark != "scheduled" else ()
    if holders.get("buffer") or holders.get("second buffer"):
        # An item that is dropped waits for the buffers that are open then, which depends on the order of the pages.
        for name, page in pages.items():
            stored = ("stored",) * len(page.items)
            pages[name] = Page(page.links, page.flavour, stored, page.fates)
    stops = [chance.randint(1, 4) if chance.random() < 0.7 else 0 for _ in range(TROUBLED)]
    return Plan(
        seed,
        mark,
        queue,
        2 if kind == "fleet" else 1,
        chance.choice([1, 2, 16]),
        chance.choice([0, 1]) if kind != "stopped" else 0,
        chance.choice(["generator", "async", "list"]),
        pages,
        holders,
        (*stops, *[0] * (CRAWLS - TROUBLED)) if kind == "stopped" else (0,) * CRAWLS,
    )


# The model


@dataclass(frozen=True)
class Attempt:
    """What comes of a page in a crawl."""

    #: How often its path is asked for, and that of its redirect.
    asks: tuple[int, int]
    #: Its links, if its callback gets as far, and the number of its items that pass the pipelines.
    links: tuple[str, ...]
    items: int
    is_done: bool


def attempt(plan: Plan, name: str, crawl: int) -> Attempt:
    """The model of one page in one crawl."""
    page = plan.pages[name]
    fate = FATES[page.fates[crawl]]
    has_output = fate.output == ALL or (fate.output == BEFORE and plan.style != "list")
    items = (*(page.items if has_output else ()), *fate.more).count("stored")
    losing = {holder for holder, lost in plan.holders.items() if items and crawl in lost}
    asks = fate.asks + plan.retries * fate.is_retried, int(fate.is_redirected)
    links = page.links if has_output else ()
    return Attempt(asks, links, items, fate.is_done and not losing)


@dataclass
class Model:
    """What a filter knows between crawls."""

    plan: Plan
    seen: set[str] = field(default_factory=set)
    #: Pages that the next crawl fetches without a link, and in how many crawls in a row each page has failed.
    left: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    #: Redirected pages that have failed: whoever takes one over may begin at either URL.
    moved: set[str] = field(default_factory=set)

    def is_filtered(self, name: str) -> bool:
        return self.plan.pages[name].flavour != "unfiltered"

    def expected(self, crawl: int) -> dict[str, int]:
        """How often each page is to be tried in a whole crawl: once, but those that are not filtered."""
        tries, todo = Counter[str](), ["start", *self.left]
        while todo:
            name = todo.pop()
            if self.is_filtered(name) and (tries[name] or name in self.seen):
                continue
            tries[name] += 1
            todo += attempt(self.plan, name, crawl).links
        return {name: count for name, count in tries.items() if count}

    def complaints(self, crawl: int, end: dict[str, Any]) -> list[str]:
        """What is wrong with a crawl. Then the model knows what it has left behind."""
        asked, expected = Counter[str](end["asked"]), self.expected(crawl)
        wrong, tried, items = list[str](), set[str](), Counter[str]()
        for name, tries in expected.items():
            asks = asked.pop(name, 0), asked.pop(f"{name}-r", 0)
            whole = self._whole(name, crawl, tries)
            if not self._is_allowed(name, crawl, asks, whole):
                wrong.append(f"{name}: asked {asks} times, expected {' or '.join(map(str, whole))}")
            # In a crawl that was stopped, a page that is not finished waits for the next one.
            if asks in whole or not self.plan.stops[crawl] or (name == "start" and asks[0]):
                tried.add(name)
                items[name] = tries * attempt(self.plan, name, crawl).items
        wrong += [f"{name}: asked {n} times, expected none" for name, n in asked.items()]
        scraped = Counter(item["page"] for item in end["items"])
        if self._is_exact(crawl) and +items != scraped:
            wrong.append(f"items: expected {dict(+items)}, got {dict(scraped)}")
        if {*end["reasons"]} - {"finished", "closespider_pagecount"}:
            wrong.append(f"ended by {end['reasons']}")
        wrong += [line for line in end["log"] if line.startswith("ERROR tbloom")]
        if self.plan.is_done:
            self._commit(crawl, expected, tried)
        else:
            self._schedule(crawl, expected, tried)
        return [f"crawl {crawl}: {what}" for what in wrong]

    def _is_exact(self, crawl: int) -> bool:
        return self.plan.crawlers == 1 and not self.plan.stops[crawl]

    def _whole(self, name: str, crawl: int, tries: int) -> list[tuple[int, int]]:
        """How often a page and its redirect are asked for, if nothing stops the crawl."""
        asks, redirected = attempt(self.plan, name, crawl).asks
        if name not in self.moved:
            return [(tries * asks, tries * redirected)]
        return [(asks, redirected), (0, 1)] if redirected else [(asks, 0), (0, asks)]

    def _is_allowed(
        self, name: str, crawl: int, asks: tuple[int, int], whole: list[tuple[int, int]]
    ) -> bool:
        # A queue keeps the start page of a crawl that was stopped.
        is_kept = name == "start" and any(self.plan.stops) and self.plan.queue != "memory"
        if self._is_exact(crawl) and not is_kept:
            return asks in whole
        most, now = crawl + 1 if is_kept else 1, attempt(self.plan, name, crawl)
        if self.plan.crawlers > 1:
            if now.asks[0] and not sum(asks):
                return False
            # Both fetch what is not filtered; beside one, the other may try a page that has failed.
            if not now.is_done or not self.is_filtered(name):
                most = 2 * self.plan.crawlers
        return any(asks[0] <= most * first and asks[1] <= most * second for first, second in whole)

    def _reached(self, crawl: int, expected: Iterable[str], tried: set[str]) -> set[str]:
        """The pages that have come into the queue, of those that a whole crawl fetches."""
        links = {link for name in tried for link in attempt(self.plan, name, crawl).links}
        reached = {name for name in expected if name in links or name in self.left | tried}
        return {name for name in reached if self.is_filtered(name)}

    def _schedule(self, crawl: int, expected: Iterable[str], tried: set[str]) -> None:
        reached = self._reached(crawl, expected, tried)
        self.left = set() if self.plan.queue == "memory" else reached - tried
        self.moved |= {name for name in self.left if attempt(self.plan, name, crawl).asks[1]}
        # (Those that are left were seen, too; but they leave the queue.)
        self.seen = (self.seen | reached) - self.left

    def _commit(self, crawl: int, expected: Iterable[str], tried: set[str]) -> None:
        for name in self._reached(crawl, expected, tried):
            now = attempt(self.plan, name, crawl)
            is_kept = self.plan.pages[name].flavour not in NOT_TAKEN_OVER
            if now.asks[1]:
                self.moved.add(name)
            if name in tried and now.is_done:
                self.seen.add(name)
                self.left.discard(name)
                continue
            self.failures[name] += name in tried  # it is not done
            is_left = is_kept and self.failures[name] < GIVEN_UP
            if is_left or (self.plan.queue != "memory" and name not in tried):
                self.left.add(name)
            else:
                self.left.discard(name)
                del self.failures[name]


# The projects


class Site(Handler):
    """Answers a path such as /17/p3 as its fate in the present crawl says."""

    def get(self) -> None:
        _, seed, name = self.path.split("/")
        plan, crawl = self.server.plans[int(seed)], self.server.number
        self.server.asked.append((plan.seed, crawl, name))
        page, is_redirected = name.removesuffix("-r"), name.endswith("-r")
        fate = plan.pages[page].fates[crawl]
        statuses = {"errback done": 503, "errback item": 503, "handled": 418}
        if fate == "cut":
            self.close_connection = True
        elif fate.startswith("redirect") and not is_redirected:
            self.answer(302, Location=f"/{seed}/{page}-r")
        elif fate == "redirect, 403":
            self.answer(403)
        else:
            self.answer(int(fate) if fate.isdigit() else statuses.get(fate, 200))


class Spider(scrapy.Spider):
    """Crawls a plan's site."""

    name = "random"
    handle_httpstatus_list = (418,)
    site: str
    plan: Plan
    number: int
    items: list[Any]

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.site}/{self.plan.seed}/start", dont_filter=True)

    def request(self, name: str) -> scrapy.Request:
        flavour = self.plan.pages[name].flavour
        more: dict[str, dict[str, Any]] = {
            "keep": {"meta": {"tbloom_keep": 7}},
            "object": {"meta": {"known": Opaque(1, 2)}},
            "lambda": {"callback": lambda response: self.parse(response)},  # noqa: PLW0108
            "within": {"meta": {"tbloom_within": 1}},
            "unfiltered": {"dont_filter": True},
        }
        given = {"errback": self.failed, **more.get(flavour, {})}
        return scrapy.Request(f"{self.site}/{self.plan.seed}/{name}", **given)

    def fate_of(self, source: Any) -> str:
        return self.plan.pages[name_of(source)].fates[self.number]

    def parse(self, response: Response) -> Any:
        if self.plan.style == "async":
            return self.later(response)
        return (
            self.outputs(response) if self.plan.style == "generator" else [*self.outputs(response)]
        )

    async def later(self, response: Response) -> AsyncIterator[Any]:
        for output in self.outputs(response):
            yield output

    def outputs(self, response: Response) -> Iterator[Any]:
        fate, page = self.fate_of(response), self.plan.pages[name_of(response)]
        if fate.startswith("says"):
            response.meta["tbloom_done"] = fate == "says done"
        if fate == "raises before":
            raise ValueError(fate)
        assert response.request is not None
        if fate == "retried" and not response.meta.get("retry_times"):
            yield get_retry_request(
                response.request, spider=self, reason="captcha", max_retry_times=3
            )
            return
        items = [*page.items, *["fails"] * (fate == "an item fails")]
        yield from ({"page": name_of(response), "fate": item} for item in items)
        yield from map(self.request, page.links)
        if fate in ("raises after", "says done"):
            raise ValueError(fate)

    def failed(self, failure: Any) -> Iterator[Any]:
        fate = self.fate_of(failure.request)
        if fate == "errback done":
            failure.request.meta["tbloom_done"] = True
        elif fate == "errback item":
            yield {"page": name_of(failure.request), "fate": "stored"}


def name_of(source: Any) -> str:
    """The page's name, also of its redirect."""
    return path_of(source).split("/")[-1].removesuffix("-r")


class Ignores(Part):
    """A downloader middleware."""

    def process_request(self, request: scrapy.Request) -> None:
        spider = self.crawler.spider
        if spider.fate_of(request) == "ignored":
            raise IgnoreRequest("banned")


class Fates(Part):
    """The first pipeline."""

    def process_item(self, item: Any) -> Any:
        if item["fate"] == "fails":
            raise ValueError
        if item["fate"] == "dropped":
            raise DropItem("not wanted")
        return item


class Buffer(Part):
    """Keeps items until the spider closes, or three of them."""

    key = "buffer"

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.kept = 0

    def process_item(self, item: Any) -> Any:
        self.crawler.signals.send_catch_log(items_buffered, pipeline=self)
        self.kept += 1
        if self.kept == 3:
            self.store()
        return item

    def close_spider(self) -> None:
        self.store()

    def store(self) -> None:
        self.kept = 0
        spider = self.crawler.spider
        if spider.number not in spider.plan.holders[self.key]:
            self.crawler.signals.send_catch_log(items_flushed, pipeline=self)


class SecondBuffer(Buffer):
    key = "second buffer"


class Uploads(BlockingFeedStorage):
    """A feed's storage."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    @classmethod
    def from_crawler(cls, crawler: Any, uri: str, *, feed_options: Any = None) -> Any:  # noqa: ARG003
        spider = crawler.spider
        holder = "batches" if "batch" in uri else "upload"
        return cls(fails=spider.number in spider.plan.holders[holder])

    def _store_in_thread(self, file: IO[bytes]) -> None:
        file.close()
        if self._fails:
            raise OSError("no such bucket")


def settings_of(plan: Plan, folder: Path, url: str) -> dict[str, Any]:
    """The settings of a plan's crawls."""
    key = f"random-{secrets.token_hex(6)}"
    feeds: dict[str, dict[str, Any]] = {
        "file": {str(folder / "items.jl"): {"format": "jsonlines"}},
        "upload": {"up://all": {"format": "jsonlines"}},
        "batches": {"up://batch-%(batch_id)d": {"format": "jsonlines", "batch_item_count": 1}},
    }
    buffers: dict[str, Any] = {"buffer": {Buffer: 2}, "second buffer": {SecondBuffer: 3}}
    settings = {
        "REDIS_URL": url,
        "TBLOOM_KEY": key,
        "TBLOOM_ERROR_RATE": 1e-9,
        "SCHEDULER_QUEUE_KEY": f"{key}:requests",
        **marked(plan.mark, folder),
        **queued(plan.queue, folder),
        "CONCURRENT_REQUESTS": plan.concurrent,
        "RETRY_ENABLED": bool(plan.retries),
        "RETRY_TIMES": plan.retries,
        "DOWNLOADER_MIDDLEWARES": {Ignores: 50},
        "ITEM_PIPELINES": {Fates: 1},
        "FEED_STORAGES": {"up": Uploads},
        "FEEDS": {},
        "EXTENSIONS": {KeepsItems: 1},
        "CLOSESPIDER_TIMEOUT": 30,
    }
    for holder in plan.holders:
        settings["FEEDS"] |= feeds.get(holder, {})
        settings["ITEM_PIPELINES"] |= buffers.get(holder, {})
    if plan.mark == "done, local":
        del settings["TBLOOM_KEY"]
    return settings


def crawl_plans(seeds: list[int], url: str) -> dict[int, list[dict[str, Any]]]:
    """Crawls these projects in this process; for each of them what its crawls have done."""
    warnings.simplefilter("ignore")
    logging.raiseExceptions = False
    log, plans = Log(), {seed: plan_of(seed) for seed in seeds}
    logging.getLogger().addHandler(log)
    known = list[tuple[int, int, dict[str, Any]]]()
    with ExitStack() as stack:
        site = stack.enter_context(served(Site, plans=plans, asked=[], number=0))
        folders = {
            seed: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tbloom-random-")))
            for seed in seeds
        }
        settings = {seed: settings_of(plans[seed], folders[seed], url) for seed in seeds}

        def rounds() -> Iterator[list[tuple[type[scrapy.Spider], dict[str, Any]]]]:
            for seed, plan in plans.items():
                for number in range(CRAWLS):
                    log.lines.append([])
                    site.number = number
                    stop = {"CLOSESPIDER_PAGECOUNT": plan.stops[number]}
                    own = {"custom_settings": {**settings[seed], **stop}}
                    together = []
                    for _ in range(plan.crawlers):
                        given = {"site": site.url, "plan": plan, "number": number, "items": []}
                        known.append((seed, number, given))
                        together.append((type("OfPlan", (Spider,), own), given))
                    yield together

        ends = crawl.run(rounds())  # type: ignore[arg-type]
        asked = list(site.asked)
    results: dict[int, list[dict[str, Any]]] = {seed: [] for seed in seeds}
    lines = iter(log.lines)
    for (seed, number, given), end in zip(known, ends, strict=True):
        if len(results[seed]) == number:
            names = [name for asks, at, name in asked if (asks, at) == (seed, number)]
            new = {"asked": names, "items": [], "reasons": [], "log": next(lines)}
            results[seed].append(new)
        results[seed][-1]["items"] += given["items"]
        results[seed][-1]["reasons"].append(end["finish_reason"])
    return results


def judge(plan: Plan, ends: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the crawls of a project: of the first crawl that differs."""
    model = Model(plan)
    for number, end in enumerate(ends):
        if wrong := model.complaints(number, end):
            return wrong
    return []


def differing(
    seeds: Iterable[int], url: str, *, jobs: int = 2, note: Callable[[int], object] = id
) -> dict[int, list[str]]:
    """Crawls these seeds; what is wrong with those that differ."""
    chunks = list[list[int]]()
    for place, seed in enumerate(seeds):
        if place % CHUNK == 0:
            chunks.append([])
        chunks[-1].append(seed)

    def of_chunk(chunk: list[int]) -> dict[int, list[str]]:
        results = Forked(crawl_plans, chunk, url).result()
        note(len(chunk))
        wrong = {seed: judge(plan_of(seed), ends) for seed, ends in results.items()}
        return {seed: what for seed, what in wrong.items() if what}

    with ThreadPoolExecutor(jobs) as pool:
        return {seed: what for some in pool.map(of_chunk, chunks) for seed, what in some.items()}


def show(plan: Plan) -> str:
    """The project, a line for each page."""
    shown = [f"seed {plan.seed}: {plan.mark}, {plan.queue}, {plan.style} {plan.holders}"]
    shown.append(f"  crawlers {plan.crawlers}, at once {plan.concurrent}, retries {plan.retries}")
    if any(plan.stops):
        shown.append(f"  stopped after {plan.stops} pages")
    for name, page in plan.pages.items():
        fates = ", ".join(page.fates[:TROUBLED])
        shown.append(f"  {name} ({page.flavour}) {page.items} -> {' '.join(page.links)}: {fates}")
    return "\n".join(shown)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--mark", help="only those with this TBLOOM_MARK, such as 'done, local'")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    chosen = [seed for seed in seeds if given.mark in (None, plan_of(seed).mark)]
    begun = time.monotonic()
    with LocalRedis(needed()) as server:
        tell = partial(print, end=" ", flush=True, file=sys.stderr)
        wrong = differing(chosen, server.url, jobs=given.jobs, note=tell)
    for seed, what in wrong.items():
        print("", show(plan_of(seed)), *(f"  ! {line}" for line in what), sep="\n")
    seconds = time.monotonic() - begun
    print(f"\n{len(chosen)} projects, {len(wrong)} differ: {[*wrong]} ({seconds:.0f} s)")
    return bool(wrong)


if __name__ == "__main__":
    # Under its own name, as the processes that crawl know it.
    from tests.scrapy.random_projects import main as own_main

    sys.exit(own_main())
