"""What real projects have in their settings: a table of set-ups."""

# ruff: noqa: ARG001 - the signatures are Scrapy's

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

import scrapy
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import HtmlResponse, Response, TextResponse

from tests.helpers.crawl import Part
from tests.helpers.projects import SHARED, Answers, Project, crawl_in_turn

Output = Iterator[Any]
#: The page that something befalls.
TARGET = "/p/3"
#: "done, local": without a server.
MARKS = ("scheduled", "done", "done, local")


class Follows(Project):
    """Follows all links from page 0 on; each page is an item. A set-up changes what is done with the target."""

    #: The errback of all requests.
    failed: Any = None
    #: How often the target has been parsed.
    visits = 0

    def links(self) -> Output:
        yield self.request("/p/0")

    def request(self, path: str, **more: Any) -> scrapy.Request:
        return super().request(path[1:], errback=self.failed, **more)

    def parse(self, response: Response) -> Any:
        if not is_target(response):
            return self.page(response)
        self.visits += 1
        return self.target(response)

    def page(self, response: Response) -> Output:
        yield {"page": urlsplit(response.url).path}
        yield from self.follow(response)

    def follow(self, response: Response) -> Iterator[scrapy.Request]:
        if isinstance(response, TextResponse):
            yield from map(self.request, response.css("a::attr(href)").getall())

    def target(self, response: Response) -> Any:
        return self.page(response)


@dataclass(frozen=True)
class Setup:
    """What a project may have, and what becomes of the pages of a small site."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    spider: type[Follows] = Follows
    #: What the site answers paths with; 200 stands for a page with links.
    surprises: Answers = field(default_factory=dict)
    pages: int = 12
    #: How long an answer takes (seconds).
    seconds: float = 0.0
    #: The pages that are left to the next crawl.
    left: Iterable[str] = ()
    #: How many crawlers there are at a time.
    crawlers: int = 1

    def paths(self) -> list[str]:
        """The pages that links lead to."""
        return [f"/p/{number}" for number in range(self.pages)]

    def answers(self) -> Answers:
        """Those of its site: page 0 has links to all pages, and each other page to the first 12."""
        links = [f"<a href='{path}'>a page</a>\n".encode() for path in self.paths()]
        answers = {"": [200], "/p/0": [b"".join(links)], **self.surprises}
        return {
            path: [(self.seconds, b"".join(links[:12]) if it == 200 else it) for it in some]
            for path, some in answers.items()
        }

    def works_with(self, mark: str) -> bool:
        """Whether the mark works with it: "done, local" is for one process at a time, and "done" needs no queue in Redis."""
        if mark == "done, local" and self.crawlers > 1:
            return False
        return mark == "scheduled" or self.settings.get("SCHEDULER") != SHARED


async def download(crawler: Crawler, request: scrapy.Request) -> Any:
    """What a component downloads by itself."""
    engine: Any = crawler.engine
    return await engine.download_async(request)


def is_page(thing: Any) -> bool:
    """Whether it is one of the pages behind links, but for the start page."""
    return "/p/" in thing.url and not thing.url.endswith("/p/0")


def is_target(thing: Any) -> bool:
    return bool(thing.url.endswith(TARGET))


def part(**methods: Any) -> type[Part]:
    return type("OfProject", (Part,), methods)


def downloader(**methods: Any) -> dict[str, Any]:
    return {"DOWNLOADER_MIDDLEWARES": {part(**methods): 543}}


def around_spider(at: int = 500, **methods: Any) -> dict[str, Any]:
    """A spider middleware; 1,000 is at the spider."""
    return {"SPIDER_MIDDLEWARES": {part(**methods): at}}


def pipeline(process_item: Callable[..., Any]) -> dict[str, Any]:
    return {"ITEM_PIPELINES": {part(process_item=process_item): 1}}


def spider(**methods: Any) -> type[Follows]:
    return type("OfProject", (Follows,), methods)


# Downloader middlewares that give another request: by ``replace`` or from scratch.
ANOTHER: dict[str, Callable[[scrapy.Request, str], scrapy.Request]] = {
    "rewritten by replace": lambda request, url: request.replace(url=url, dont_filter=True),
    "new Request, filtered": lambda request, url: scrapy.Request(url, request.callback),
}


def gives_another(hook: str, make: Callable[[scrapy.Request, str], scrapy.Request]) -> Setup:
    def give(_: Part, request: Any, response: Any = None, exception: Any = None) -> Any:
        if is_page(request):
            return make(request, request.url.replace("/p/", "/api/"))
        return response

    def fail(_: Part, request: Any) -> None:
        if is_page(request):
            raise ConnectionError

    methods = {"process_request": fail} if hook == "process_exception" else {}
    return Setup(downloader(**{**methods, hook: give}))


async def injects(part: Part, request: Any, response: Any) -> Response:
    """As scrapy-poet does: a provider downloads what the callback wants besides the response."""
    if is_page(request):
        more = request.replace(url=request.url.replace("/p/", "/product/"))
        request.meta["product"] = (await download(part.crawler, more)).text
    return response  # type: ignore[no-any-return]


def own_response(_: Part, request: Any) -> Response | None:
    """Of another URL and another request."""
    if not is_page(request):
        return None
    url = f"https://elsewhere.example/{request.url.rpartition('/')[2]}"
    return HtmlResponse(url, request=scrapy.Request(url, request.callback))


def asks_again(_: Part, request: Any, response: Any) -> Any:
    """Gives the same request object."""
    if not is_target(request) or request.meta.get("again"):
        return response
    request.meta["again"] = True
    request.dont_filter = True
    return request


class Browser:
    """A download handler, as that of scrapy-playwright: what it fetches is its own affair."""

    lazy = False

    async def download_request(self, request: scrapy.Request) -> Response:
        with await asyncio.to_thread(urlopen, request.url) as answer:
            return HtmlResponse(f"{answer.url}#rendered", body=answer.read())

    async def close(self) -> None:
        pass


class OwnScheduler(Scheduler):
    """A project's, which changes requests on their way."""

    def enqueue_request(self, request: scrapy.Request) -> bool:
        return super().enqueue_request(request.replace(priority=request.priority + 1))

    def next_request(self) -> scrapy.Request | None:
        request = super().next_request()
        return request and request.replace(headers={"X-Own": "1"})


class OwnDownloader(Downloader):
    """A project's, which gives other responses, and asks for the spider, as earlier versions of Scrapy had it."""

    def fetch(self, request: scrapy.Request, spider: Any) -> Any:  # type: ignore[override]
        return super().fetch(request, spider).addCallback(self._own)

    def _own(self, result: Any) -> Any:
        return result.replace(flags=["own"]) if isinstance(result, Response) else result


# Spider middlewares.
async def drops_items(_: Part, response: Any, result: Any) -> AsyncIterator[Any]:
    async for output in result:
        if isinstance(output, scrapy.Request):
            yield output


def checked(response: Any, output: Any) -> Any:
    """The output, but for the target's first link."""
    if is_target(response) and isinstance(output, scrapy.Request):
        raise KeyError
    return output


def check(_: Part, response: Any, result: Any) -> Output:
    for output in result:
        yield checked(response, output)


async def check_async(_: Part, response: Any, result: Any) -> AsyncIterator[Any]:
    async for output in result:
        yield checked(response, output)


def starts_of_old(_: Part, start_requests: Any, spider: Any) -> Any:
    """Scrapy before 2.16 calls it, and then the spider's ``start_requests``."""
    return start_requests


def old_start(of: Follows) -> Output:
    yield from of.links()


def recovers(_: Part, response: Any, exception: Any) -> list[Any]:
    return [{"page": "recovered"}]


# What spiders do with the target.
def raises_midway(of: Follows, response: Response) -> Output:
    yield from of.page(response)
    raise ValueError


def retries_with_item(of: Follows, response: Response) -> Output:
    yield {"page": f"visit {of.visits}"}
    if of.visits == 1:
        yield get_retry_request(response.request, spider=of, reason="captcha")
    else:
        yield from of.page(response)


# What a spider does with every page.
async def downloads_inline(of: Follows, response: Response) -> AsyncIterator[Any]:
    """By the page's own request, whose meta is copied."""
    inline = response.request.replace(url=f"{response.url}?inline")
    await download(of.crawler, inline)
    for output in of.page(response):
        yield output


# Errbacks.
async def yields_later(of: Follows, failure: Any) -> AsyncIterator[Any]:
    await asyncio.sleep(0.01)
    yield {"page": "errback"}
    yield of.request("/r", meta=failure.request.meta)


# Pipelines.
async def raises_for_target(_: Part, item: Any) -> Any:
    """After all else of the page has ended."""
    if item["page"] == TARGET:
        await asyncio.sleep(0.5)
        raise ValueError
    return item


async def hands_on_another(part: Part, item: Any) -> Any:
    """With the page's response; then that one's own item fails."""
    if item["page"] == TARGET:
        another, scraper = {"page": "another"}, part.crawler.engine.scraper
        await scraper.start_itemproc_async(another, response=item["response"])
    return await raises_for_target(part, item)


async def is_cancelled(_: Part, item: Any) -> Any:
    if item["page"] == TARGET:
        raise asyncio.CancelledError
    return item


def with_response(of: Follows, response: Response) -> Output:
    yield {"page": urlsplit(response.url).path, "response": response}
    yield from of.follow(response)


# Scrapy before 2.16 can't recover where a middleware makes a callback's output asynchronous.
RAISES = part(process_spider_output=check, process_spider_output_async=check_async)
RECOVERS = part(process_spider_exception=recovers)
THROTTLED = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.01, "AUTOTHROTTLE_MAX_DELAY": 0.02}  # fmt: skip
GATES = {"SCHEDULER": OwnScheduler, "DOWNLOADER": OwnDownloader}
REDIS_QUEUE = {"SCHEDULER": SHARED, "SCHEDULER_PERSIST": True}
T = (TARGET,)

SETUPS = {
    # Answers.
    "connection lost, async errback yields": Setup(spider=spider(failed=yields_later), surprises={TARGET: [None]}, left=T),
    # The start page is marked by the time that the answer of the target comes.
    "redirect to the start": Setup(surprises={TARGET: ["/p/0"]}, seconds=0.3),
    "redirect to a page in work": Setup(surprises={TARGET: ["/p/4"]}, seconds=0.05),
    "redirect to another host": Setup(spider=spider(allowed_domains=["127.0.0.1"]), surprises={TARGET: ["http://localhost:PORT/q"]}),
    "redirect to a failing page": Setup(surprises={TARGET: ["/p/4"], "/p/4": [500]}, left=("/p/4",)),
    "AutoThrottle": Setup(THROTTLED),
    # Middlewares and components.
    **{
        f"{name}, {hook}": gives_another(hook, make)
        for name, make in ANOTHER.items()
        for hook in ("process_request", "process_response", "process_exception")
    },
    "a provider downloads": Setup(downloader(process_response=injects)),
    "a response of another URL": Setup(downloader(process_request=own_response)),
    "the same request again": Setup(downloader(process_response=asks_again)),
    "a download handler": Setup({"DOWNLOAD_HANDLERS": {"http": Browser}}),
    "a scheduler and a downloader": Setup(GATES),
    "process_start_requests": Setup(around_spider(process_start_requests=starts_of_old), spider(start_requests=old_start)),
    "items dropped near the engine": Setup(around_spider(-2_000_000, process_spider_output=drops_items)),
    "a middleware recovers": Setup({"SPIDER_MIDDLEWARES": {RAISES: 500, RECOVERS: 400}}),
    # Spiders.
    "raises, recovered": Setup({"SPIDER_MIDDLEWARES": {RECOVERS: 400}}, spider(target=raises_midway), left=T),
    "asks again and yields an item, which fails": Setup(pipeline(raises_for_target), spider(target=retries_with_item), left=T),
    "async callback downloads": Setup(spider=spider(parse=downloads_inline)),
    # Pipelines.
    "a pipeline raises once": Setup(pipeline(raises_for_target), left=T),
    "a pipeline hands on an item of its own": Setup(pipeline(hands_on_another), spider(page=with_response), left=T),
    "a pipeline is cancelled": Setup(pipeline(is_cancelled), left=T),
    # Queues.
    "scrapy-redis": Setup(REDIS_QUEUE),
    "scrapy-redis, two crawlers": Setup(REDIS_QUEUE, crawlers=2, pages=150, seconds=0.02),
}  # fmt: skip


_SETTINGS = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "REDIRECT_MAX_TIMES": 3,
    "RETRY_ENABLED": True,
    "RETRY_TIMES": 1,
}


class Result(NamedTuple):
    """What has become of a set-up's crawls."""

    requests: list[str]
    items: list[str]
    #: How crawls ended; what the log has with the level ERROR: tbloom's lines, and others' loggers; and the exceptions of callbacks.
    ends: list[str]


def crawl(name: str, settings: dict[str, Any], port: int) -> Result:
    """The crawls of this set-up, with these settings besides."""
    setup = SETUPS[name]
    known = {**_SETTINGS, **setup.settings, **settings}
    crawls = crawl_in_turn([(setup.spider,) * setup.crawlers], setup.answers(), known, port)
    errors = [line for line in crawls[0].log if line.startswith("ERROR")]
    ends = [
        error if error.startswith("ERROR tbloom") else error.partition(":")[0] for error in errors
    ]
    for end in crawls:
        ends += [end.reason, *(stat for stat in end.stats if stat.startswith("spider_exceptions/"))]
    fetched = [path for end in crawls for path in end.fetched]
    return Result(fetched, [item["page"] for end in crawls for item in end.items], sorted(ends))
