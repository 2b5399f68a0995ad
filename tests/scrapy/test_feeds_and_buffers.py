"""Stored means stored: a page is done once each feed and each buffering pipeline that took one of its items has stored it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from scrapy import signals
from scrapy.exceptions import DropItem
from scrapy.extensions.feedexport import BlockingFeedStorage, ItemFilter
from scrapy.http import Response

from tbloom.scrapy.signals import items_buffered, items_flushed
from tests.helpers.crawl import Part
from tests.helpers.projects import LOCAL, InOrder, Project, path_of, times

MARKS = pytest.mark.parametrize("mark", ["done", LOCAL])
PAGES = tuple("abcdefgh")


class Eight(Project):
    pages = PAGES


# Pipelines that buffer


class Buffer(Part):
    """Keeps items, and stores them after so many (0: never) and, perhaps, when the spider closes.

    It fails in the first crawl only.
    """

    size = 1
    stores_at_end = True
    says_who = True

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self.kept = 0
        self.fails = crawler.spider.number == 0

    def process_item(self, item: Any) -> Any:
        self.send(items_buffered)
        self.kept += 1
        if self.kept == self.size:
            self.store()
        return item

    def close_spider(self) -> None:
        if self.stores_at_end or not self.fails:
            self.store()

    def store(self) -> None:
        self.kept = 0
        self.send(items_flushed)

    def send(self, signal: Any) -> None:
        sender = {"pipeline": self} if self.says_who else {}
        self.crawler.signals.send_catch_log(signal, **sender)


class InTwos(Buffer):
    size = 2


class AtEnd(Buffer):
    size = 0


class Fails(AtEnd):
    stores_at_end = False


class Unhashable(Fails):
    """As a dataclass."""

    __hash__ = None  # type: ignore[assignment]


class Nameless(Buffer):
    says_who = False


class NamelessAtEnd(AtEnd):
    says_who = False


class Drops(Part):
    """Keeps items out of the feed that an earlier pipeline stores."""

    def process_item(self, _: Any) -> Any:
        raise DropItem("stored")


#: Pipelines, whether the items of one of them are lost, and how many warnings there are; `make test` has the first three.
BUFFERS: list[tuple[list[type[Part]], bool, int]] = [
    ([Fails, Drops], True, 0),
    ([Nameless, Fails], True, 1),
    ([Buffer, AtEnd], False, 0),
    ([Buffer, Unhashable], True, 0),
    ([Fails, Buffer], True, 0),
    ([InTwos, Fails], True, 0),
    ([NamelessAtEnd], False, 1),
]


@MARKS
@pytest.mark.parametrize(
    ("buffers", "lost", "warned"),
    [
        pytest.param(
            *case,
            marks=[pytest.mark.check] * (place > 2),
            id=", ".join(kind.__name__ for kind in case[0]),
        )
        for place, case in enumerate(BUFFERS)
    ],
)
def test_an_item_is_stored_once_every_pipeline_has_stored_it(
    project: Any, *, buffers: list[Any], lost: bool, warned: int
) -> None:
    """And no page is left for ever. A line says what a pipeline should send that does not say who it is."""
    pipelines = {kind: place for place, kind in enumerate(buffers)}
    crawls = project(*[Eight] * 3, ITEM_PIPELINES=pipelines)
    assert {page: [1, int(lost), 0] for page in PAGES} == times(crawls)
    assert warned == len(crawls[0].warnings("pipeline="))
    named = [kind.__name__ for kind in buffers if issubclass(kind, Fails)]
    assert lost == bool(crawls[0].warnings("pages have failed", *(f"by {n}" for n in named)))


class Never(Fails):
    """In no crawl."""

    def close_spider(self) -> None:
        pass


class RaisesAtEnd(Never):
    def close_spider(self) -> None:
        raise ValueError("the database is down")


@MARKS
@pytest.mark.parametrize("buffer", [Never, RaisesAtEnd])
def test_pages_whose_items_are_never_stored_are_fetched_thrice(project: Any, buffer: Any) -> None:
    """Then a line names each of them."""
    more = {"ITEM_PIPELINES": {buffer: 1}}
    crawls = project(Eight, **more) + project(*[Project] * 3, **more)
    assert {page: [1, 1, 1, 0] for page in PAGES} == times(crawls)
    assert [8, 8, 0, 0] == [crawl.stats.get("tbloom/failed/items", 0) for crawl in crawls]
    assert [0, 0, 8, 0] == [crawl.stats.get("tbloom/given_up", 0) for crawl in crawls]
    assert [0, 0, 8, 0] == [len(crawl.warnings("is given up")) for crawl in crawls]


# Feeds


class Uploads(BlockingFeedStorage):
    """Stores a file at its end in a folder, the slower the longer it is. The upload fails that has "lost" in it, if FAILS is set;
    or all do where the URI says so."""

    def __init__(self, uri: str, fails: bool, folder: str) -> None:
        self._uri, self._fails, self._folder = uri, fails, Path(folder)

    @classmethod
    def from_crawler(cls, crawler: Any, uri: str, *, feed_options: Any = None) -> Any:  # noqa: ARG003
        fails = crawler.spider.number == 0
        return cls(uri, fails, crawler.settings["UPLOADS_FOLDER"])

    def _store_in_thread(self, file: IO[bytes]) -> None:
        file.seek(0)
        text = file.read()
        if self._fails and (b"lost" in text or "fails" in self._uri):
            file.close()
            raise OSError("no such bucket")
        time.sleep(0.1)  # an upload that fails ends first; what is written now is lost
        file.close()
        name = f"{time.time_ns()}-{self._uri.rpartition('/')[2]}"
        (self._folder / name).write_bytes(text)


def uploads(folder: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    place = folder / "uploads"
    place.mkdir()
    options = {name: {"format": "jsonlines", **more} for name, more in feeds.items()}
    return {"FEED_STORAGES": {"up": Uploads}, "FEEDS": options, "UPLOADS_FOLDER": str(place)}


def stored(folder: Path) -> set[str]:
    """The lines of all files that were stored."""
    files = (folder / "uploads").iterdir()
    return {line for file in files for line in file.read_text().splitlines()}


class OneIsLost(InOrder):
    pages = ("a", "b", "lost", "c", "d")


@MARKS
@pytest.mark.parametrize(
    ("uri", "size", "again"),
    [
        ("up://all-%(batch_id)d", 2, {"lost", "c"}),
        ("up://fails-%(batch_id)d", 1, {*OneIsLost.pages}),
        ("up://all", 0, {*OneIsLost.pages}),
    ],
    ids=["in twos", "none is stored", "no batches"],
)
def test_a_page_of_a_batch_waits_for_that_batches_upload(
    project: Any, tmp_path: Path, *, uri: str, size: int, again: set[str]
) -> None:
    more = uploads(tmp_path, {uri: {"batch_item_count": size} if size else {}})
    crawls = project(*[OneIsLost] * 3, **more)
    assert {page: [1, int(page in again), 0] for page in OneIsLost.pages} == times(crawls)
    assert {f'{{"page": "{page}"}}' for page in OneIsLost.pages} == stored(tmp_path)


@dataclass
class Shop:
    page: str


@dataclass
class Review:
    page: str


class ShopsAndReviews(InOrder):
    """Pages with an item of one kind, of the other one, of both (a list page), and of none."""

    pages = ("shop", "review", "both", "none", "dropped")

    def request(self, path: str, **more: Any) -> Any:
        meta = {"tbloom_within": 1} if path == "both" else {}
        return super().request(path, meta=meta, **more)

    def parse(self, response: Response) -> Iterator[Any]:
        page = path_of(response)
        if page in ("shop", "both"):
            yield Shop(page)
        if page in ("review", "both"):
            yield Review(page)


@MARKS
@pytest.mark.parametrize(
    ("feeds", "again"),
    [
        (("up://me:secret@fails", "up://reviews"), {"shop", "both"}),
        (("up://shops", "up://me:secret@fails"), {"review", "both"}),
    ],
    ids=["the first fails", "the second fails"],
)
def test_a_failed_upload_counts_for_its_own_feed(
    project: Any, tmp_path: Path, *, feeds: tuple[str, str], again: set[str]
) -> None:
    """Two feeds that end together."""
    kinds = zip(feeds, (Shop, Review), strict=True)
    more = uploads(tmp_path, {uri: {"item_classes": [kind]} for uri, kind in kinds})
    crawls = project(*[ShopsAndReviews] * 3, **more)
    assert {page: [1, int(page in again), 0] for page in ShopsAndReviews.pages} == times(crawls)
    assert crawls[0].warnings("pages have failed", "(not stored by up://***@fails)")
    assert [] == crawls[0].warnings("secret")


class SaysDone(OneIsLost):
    def parse(self, response: Response) -> Any:
        response.meta["tbloom_done"] = True
        yield {"page": path_of(response)}


class Raises(Part):
    def process_item(self, _: Any) -> Any:
        raise ValueError


@MARKS
@pytest.mark.parametrize(
    ("pipelines", "again"),
    [({Buffer: 1}, {"lost"}), ({Fails: 1, Raises: 2}, {*SaysDone.pages})],
    ids=["a feed has lost", "a buffer has lost"],
)
def test_tbloom_done_does_not_overrule_what_was_lost(
    project: Any, tmp_path: Path, pipelines: Any, again: set[str]
) -> None:
    """Also where a later pipeline has failed, which the page is to get over."""
    more = uploads(tmp_path, {"up://all-%(batch_id)d": {"batch_item_count": 1}})
    crawls = project(*[SaysDone] * 3, **more, ITEM_PIPELINES=pipelines)
    assert {page: [1, int(page in again), 0] for page in SaysDone.pages} == times(crawls)


class HasOneOdd(Eight):
    """The item of one page is none that a feed can write."""

    def parse(self, response: Response) -> Any:
        page, [odd] = path_of(response), self.settings["ODD"]
        yield odd if page == "c" and self.number == 0 else {"page": page}


@MARKS
@pytest.mark.parametrize(
    ("odd", "kind"),
    [({"page": object()}, "jsonlines"), ({"page": "\ud800"}, "csv"), ("c", "jsonlines")],
    ids=["not serialisable", "half a surrogate pair", "no item"],
)
def test_a_page_whose_item_an_exporter_refuses_is_refetched(
    project: Any, tmp_path: Path, odd: Any, kind: str
) -> None:
    """Scrapy logs that only. A feed whose filter does not want the item is not asked."""
    feeds = {
        str(tmp_path / "pages"): {"format": kind, "overwrite": False},
        str(tmp_path / "shops"): {"format": kind, "item_classes": [Shop]},
    }
    crawls = project(HasOneOdd, Project, FEEDS=feeds, ODD=[odd])
    assert (7, 1) == (crawls[0].stats["tbloom/done"], crawls[0].stats["tbloom/failed/items"])
    assert crawls[0].warnings(f"not stored by {tmp_path}/pages")
    assert ["/c"] == crawls[1].fetched
    lines = (tmp_path / "pages").read_text(encoding="utf-8").splitlines()
    form = {"jsonlines": '{{"page": "{}"}}', "csv": "{}"}[kind]
    assert [1] * 8 == [lines.count(form.format(page)) for page in PAGES]


class RaisesForB(ItemFilter):
    """Once."""

    def accepts(self, item: Any) -> bool:
        raised = Path(self.feed_options["raised"])
        if item == {"page": "b"} and not raised.exists():
            raised.touch()
            raise KeyError("price")
        return True


@MARKS
@pytest.mark.parametrize("size", [0, 2])
def test_a_page_fails_whose_item_a_feeds_filter_cannot_read(
    project: Any, tmp_path: Path, size: int
) -> None:
    """If the item was to end a batch of the feed before, Scrapy stores that batch, and adds the next one to its closed file, too: it
    is fetched again, whenever the batch is stored."""
    feeds = {"up://all-%(batch_id)d": {"batch_item_count": size}}
    feeds["up://filtered"] = {"item_filter": RaisesForB, "raised": str(tmp_path / "raised")}
    crawls = project(*[InOrder] * 3, **uploads(tmp_path, feeds))
    assert [*"abcdefgh"] == [path.strip("/") for path in crawls[0].fetched]
    assert ("b" if size == 0 else "bc") == crawls[1].pages
    assert [] == crawls[2].fetched
    for feed in ("all", "filtered"):
        files = (tmp_path / "uploads").glob(f"*-{feed}*")
        lines = {line for file in files for line in file.read_text().splitlines()}
        assert {f'{{"page": "{page}"}}' for page in PAGES} == lines


# Stats at the end


class Monitor(Part):
    """An extension, made before all others, that reads the stats of pages at two signals."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self.look, signals.spider_closed)
        crawler.signals.connect(self.look, signals.engine_stopped)

    def look(self) -> None:
        self.crawler.spider.said.append(of_pages(self.crawler.stats.get_stats()))


def of_pages(stats: Any) -> dict[str, int]:
    return {
        of: stats.get(f"tbloom/{of}", 0)
        for of in ("done", "left", "failed", "forbidden", "given_up")
    }


class Mixed(Eight):
    """A page fails, one is forbidden, and perhaps the crawl stops at one."""

    allowed_domains = ("127.0.0.1",)

    def links(self) -> Iterator[Any]:
        yield from super().links()
        yield self.request("moved")

    def parse(self, response: Response) -> Any:
        page = path_of(response)
        yield {"page": page}
        if page == self.settings["STOPS"]:
            self.crawler.stop()
        if page == "b":
            raise KeyError


@MARKS
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"FEEDS": {"up://all": {}}},
        {"FEEDS": {"up://all": {}}, "CLOSESPIDER_ITEMCOUNT": 3},
        {"FEEDS": {"up://all": {}, "up://b-%(batch_id)d": {"batch_item_count": 2}}, "STOPS": "d"},
        {"ITEM_PIPELINES": {AtEnd: 1}, "STOPS": "d"},
        {"ITEM_PIPELINES": {Fails: 1}},
    ],
    ids=["all", "uploaded", "a limit", "stopped", "a buffer", "a buffer without an end"],
)
def test_stats_are_whole_when_the_spider_is_closed(
    project: Any, tmp_path: Path, more: dict[str, Any]
) -> None:
    """spidermon#82: for whoever hears of it first. What is lost once all have heard of it, ``engine_stopped`` has."""
    own = {**more, **uploads(tmp_path, more.get("FEEDS", {})), "CONCURRENT_REQUESTS": 2}
    answers = {"/moved": ["http://localhost:PORT/"]}
    [crawl] = project(Mixed, EXTENSIONS={Monitor: 0}, answers=answers, **own)
    closed, stopped = crawl.said
    assert of_pages(crawl.stats) == stopped
    assert closed == (
        {**stopped, "failed": 1} if Fails in more.get("ITEM_PIPELINES", {}) else stopped
    )
    assert ("finished" == crawl.reason) != bool(stopped["left"])
    assert 9 == sum(stopped.values())
