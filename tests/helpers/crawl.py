"""Crawls in processes of their own, and spiders, pipelines and extensions for them."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import redis
import scrapy
import scrapy.exceptions
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.http import Response
from scrapy.utils.request import RequestFingerprinter
from scrapy_redis.spiders import RedisSpider
from twisted.internet.defer import DeferredList

from tbloom import Claim, TimeBloom
from tbloom.scrapy.done.states import UnknownStep
from tests.helpers.forked import Forked

_GUIDE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
#: The names of stats that its guide has, as patterns; what it says of URLs holds of hosts.
_STATS = [
    re.compile(name.replace("{reason}", ".+").replace("/urls", "/(urls|hosts)"))
    for name in re.findall(r"`(tbloom/\S+)`", _GUIDE[_GUIDE.index("\n## Stats") :])
]


class Part:
    """A middleware, pipeline or extension of a crawler."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)


class Fetching:
    """Notes each page that is fetched."""

    name = "tests"
    site: str
    fetched: list[str]

    def note(self, response: Response) -> None:
        self.fetched.append(response.url.removeprefix(self.site))


class TenAndHundred(Fetching, scrapy.Spider):
    """The sources' spider: asks for 10 pages, then for 100 that include those 10."""

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for i in range(10):
            yield scrapy.Request(f"{self.site}{i}", self.parse_ten)

    def parse_ten(self, response: Response) -> Iterator[scrapy.Request]:
        self.note(response)
        if len(self.fetched) == 10:
            for i in range(100):
                yield scrapy.Request(f"{self.site}{i}", self.note)


class Pages(Fetching, scrapy.Spider):
    """Asks for the pages that it is given, with their meta."""

    pages: list[list[Any]]

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for page, meta in self.pages:
            yield scrapy.Request(f"{self.site}{page}", self.note, meta=meta)


class Tree(scrapy.Spider):
    """The numbers from 0: one link leads to each page, and 7 from it. Each page is an item, and is appended to a file once its
    callback has come to its end, so that the file is right also if the crawler is killed."""

    name = "tree"
    site: str
    size: int
    fetched_file: str

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self.site}0", dont_filter=True)

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        number = int(response.url.removeprefix(self.site))
        for child in range(7 * number + 1, min(7 * number + 8, self.size)):
            yield scrapy.Request(f"{self.site}{child}")
        yield {"page": f"page {number}"}
        with Path(self.fetched_file).open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")


class Hosts(Tree):
    """A tree on nine hosts; each page leads to other hosts."""

    name = "hosts"

    def parse(self, response: Response, **given: Any) -> Iterator[Any]:
        for found in super().parse(response, **given):
            if isinstance(found, scrapy.Request):
                found.meta["download_slot"] = f"host{int(found.url.rpartition('/')[2]) % 9}.example"
            yield found


class Fed(scrapy.Spider):
    """Fetches what programs push. Each page is appended to a file, with its callback and what the request had."""

    name = "fed"
    site: str
    fetched_file: str

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for request in ():
            yield request

    def parse(self, response: Response, callback: str = "parse", **given: Any) -> None:
        request = response.request
        own = {"path": response.url.removeprefix(self.site), "callback": callback, **given}
        own |= {"book": response.meta.get("book"), "priority": request.priority}
        own |= {"method": request.method, "body": request.body.decode()}
        own |= {"agent": request.headers["User-Agent"].decode()}
        with Path(self.fetched_file).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(own)}\n")

    def parse_book(self, response: Response, **given: Any) -> None:
        self.parse(response, "parse_book", **given)


class FromRedis(Fetching, RedisSpider):
    """A RedisSpider: start URLs come from a list in Redis; each page leads to two more and to itself."""

    redis_key = "tests:start_urls"

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        self.note(response)
        number = int(response.url.removeprefix(self.site))
        for next_number in (number, 2 * number, 2 * number + 1):
            if next_number < 16:
                yield response.follow(f"/{next_number}", self.parse)


class Outcomes(Pages):
    """Asks for the pages that it is given; the callback's end depends on ``cb_kwargs["end"]``, and
    ``cb_kwargs["fates"]`` are those of the page's items."""

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for page, meta in self.pages:
            meta = dict(meta)  # noqa: PLW2901
            kwargs = meta.pop("request", {})
            if meta.pop("can't be serialised", False):
                meta["client"] = RequestFingerprinter()
            yield scrapy.Request(f"{self.site}{page}", self.parse, meta=meta, **kwargs)

    def parse(self, response: Response, end: str = "", fates: Any = ()) -> Any:
        self.note(response)
        if end:
            return getattr(self, end)(response)
        return [{"fate": fate} for fate in fates]

    def keeps_it_for_one_slice(self, response: Response) -> None:
        response.meta["tbloom_keep"] = 1

    def keeps_it_for_too_long(self, response: Response) -> None:
        response.meta["tbloom_keep"] = 8

    def reports_its_note(self, _: Response) -> None:
        """How many crawlers will have died of the page, if this one dies now."""
        settings = self.crawler.settings
        with redis.Redis.from_url(settings["REDIS_URL"]) as client:
            [claim] = client.hvals(f"{{{settings['TBLOOM_KEY']}}}:claims")
        self.fetched.append(f"{int(claim[32:33]) + 1}")  # format.md: after owner, number and queue

    def is_taken_over(self, response: Response) -> None:
        """Another crawler takes this one for dead, and is done with the page first."""
        settings = self.crawler.settings
        own = settings["REDIS_URL"], settings["TBLOOM_KEY"]
        item = self.crawler.request_fingerprinter.fingerprint(response.request)
        with TimeBloom.from_url(*own, capacity=1000) as other:
            sessions = f"{{{own[1]}}}:sessions"
            for session in other.client.hkeys(sessions):
                other.client.hset(sessions, session, "1")  # alive until 1970
            assert Claim.NEW is other.claim(item)
            other.commit(item)


class Uploads(BlockingFeedStorage):
    """A storage that stores a feed at its end, in no hurry. The crawler gets a SIGINT meanwhile."""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:
        pass

    def _store_in_thread(self, file: IO[bytes]) -> None:
        file.close()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)


class Fates(Part):
    """Does with each item what its ``fate`` says."""

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        if item["fate"] == "fails":
            raise ZeroDivisionError
        return item


SPIDERS = {
    "outcomes": Outcomes,
    "ten_and_hundred": TenAndHundred,
    "pages": Pages,
    "from_redis": FromRedis,
    "tree": Tree,
    "hosts": Hosts,
    "fed": Fed,
}


#: For each page Scrapy starts as many tasks as items may be in work at once (100 if nothing is set), and it logs versions,
#: which it looks up.
SETTINGS = {
    "TELNETCONSOLE_ENABLED": False,
    "LOG_ENABLED": False,
    "LOG_VERSIONS": [],
    "CONCURRENT_ITEMS": 10,
    "RETRY_ENABLED": False,
}


class LooksRarely(Part):
    """Lets the engine look into its queue when it is woken, and otherwise once an hour, not every 5 s."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 3600


class UnknownSteps(logging.Handler):
    """Finds lines of the log that say what a page has met that its state does not know."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and isinstance([*record.args, None][0], UnknownStep):
            self.found.append(f"{record.getMessage()}\n{record.stack_info}")


def run(
    rounds: Iterable[list[tuple[type[scrapy.Spider], dict[str, Any]]]], **settings: Any
) -> list[dict[str, Any]]:
    """Makes crawls, those of a round at once, of spiders with these attributes; returns how each ended.

    Fails if a page has met what its state does not know, unless the setting BREAKS_STEPS says that a test does this on purpose.
    """
    # Otherwise an idle engine looks into its queue only every 5 s.
    ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1
    process = CrawlerProcess({**SETTINGS, **settings}, install_root_handler=False)
    waiting, crawls = iter(rounds), list[tuple[Any, list[str]]]()

    def begin_round(_: object = None) -> None:
        ends = []
        for spider, arguments in next(waiting, []):
            # As attributes, because crawls with other arguments share no pages.
            own = type(spider.__name__, (spider,), {"__module__": spider.__module__, **arguments})
            crawler, failures = process.create_crawler(own), list[str]()
            crawls.append((crawler, failures))
            ends.append(process.crawl(crawler))
            ends[-1].addErrback(
                lambda failure, failures=failures: failures.append(
                    f"{failure.type.__name__}: {failure.value}"
                )
            )
        if ends:
            DeferredList(ends).addBoth(begin_round)

    steps = UnknownSteps()
    logging.getLogger("tbloom.scrapy").addHandler(steps)
    begin_round()
    from twisted.internet import reactor  # noqa: PLC0415 - it is installed by now

    if reactor.running:  # in a process of several calls
        reactor._asyncioEventloop.run_until_complete(
            process.join().asFuture(reactor._asyncioEventloop)
        )
    else:
        process.start()
    logging.getLogger("tbloom.scrapy").removeHandler(steps)
    assert settings.get("BREAKS_STEPS") or [] == steps.found, "\n".join(steps.found)
    stats = {name for crawler, _ in crawls for name in crawler.stats.get_stats()}
    ours = {name for name in stats if name.startswith("tbloom/")}
    unknown = [name for name in ours if not any(stat.fullmatch(name) for stat in _STATS)]
    assert [] == unknown, "docs/settings.md lacks these stats"
    return [
        {
            "stats": {
                name: value
                for name, value in crawler.stats.get_stats().items()
                if isinstance(value, int | float)
            },
            "finish_reason": crawler.stats.get_value("finish_reason"),
            "failures": failures,
            "has_failed": process.bootstrap_failed,
        }
        for crawler, failures in crawls
    ]


def one(spider: str, site: str, settings: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Crawls in a process of its own; the pages fetched, the stats, and the log."""
    log, fetched = io.StringIO(), list[str]()
    handlers: list[logging.Handler] = [logging.StreamHandler(log)]
    if path := settings.get("LOG_FILE"):  # outlives a crawl that is killed
        handlers.append(logging.FileHandler(path))
    logging.basicConfig(handlers=handlers, level=logging.DEBUG)
    given = {"site": site, "fetched": fetched, **arguments}
    [result] = run([[(SPIDERS[spider], given)]], **settings)
    return {**result, "fetched": fetched, "log": log.getvalue()}


def start(spider: str, site: str, settings: dict[str, Any], **arguments: Any) -> Forked:
    """Starts a crawl."""
    return Forked(one, spider, site, settings, **arguments)
