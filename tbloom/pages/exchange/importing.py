"""Imports WARC files of any tool, and other stores."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tbloom.arguments import Item
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import record
from tbloom.pages.exchange.responses import Limits, Response, Skipped
from tbloom.pages.exchange.sources import Folder, Given, Source
from tbloom.pages.page import MAX_BYTES, Page
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import batches

_Put = Callable[[list[Page]], Counter[str]]
#: The default limits of bodies and HTTP headers (bytes). WARC headers may have a quarter of the latter.
MAX_BODY, MAX_HEAD = 1 << 27, 1 << 18
#: The kind of a page of a store that a later change has replaced or deleted.
OUTDATED = "replaced or deleted"
#: How many pages are remembered for revisits, and how long digest and URL of each may be.
_REFERENCES, _REFERENCE = 50_000, 1_000


@dataclass(frozen=True, slots=True)
class PagesImported:
    """The result of an import."""

    #: Pages that were stored.
    stored: int
    #: Pages that were not stored, because the store had them from the same time or later.
    present: int
    #: The number of skipped records and pages, by kind: "request", "outside the window", "damaged", ...
    skipped: Mapping[str, int]
    #: The places that could not be read or were repaired, and the sources that can't be read.
    damaged: tuple[str, ...]
    #: Pages that replaced an earlier one of the same source and time.
    replaced: int = 0


def import_warc(
    store: PageStore | Callable[[], PageStore],
    *sources: Given,
    max_body: int = MAX_BODY,
    max_head: int = MAX_HEAD,
    progress: Callable[[int], object] | None = None,
) -> PagesImported:
    """Store the pages of WARC files, except those that the store has from the same time or later.

    Of two pages of one file with the same URL and time, the later is stored: wget writes times in seconds, and a redirect or a
    401 before the page.

    After an interruption, repeat the same call. Damaged pages are skipped. After damage, a file is read on at the next gzip
    member, zstd frame or line that begins a record. The result lists these places, and the sources that can't be read;
    the others are imported.

    Sources in one folder may be segments of a page store. A page that one of them replaces or deletes is not stored. Of an
    opened file, the folder is known if its ``name`` is a path.

    :param store: the store, or a function that opens it, called at the first page or revisit: without any, no store is made.
    :param sources: paths, or binary files open to read: WARC files (plain, or compressed with gzip or zstd) and WACZ files; or
        the folders of other stores.
    :param max_body: pages with a longer body (in bytes) are skipped, and counted (128 MB). Their bodies are not kept in memory.
    :param max_head: pages with longer HTTP headers (in bytes), or WARC headers longer than a quarter of it, are skipped, and
        counted (256 KB). Short headers take a hundred times their length in memory.
    :param progress: is called with the number of bytes that were read of a path since the last call.
    :raises ConfigError: if a limit is wrong.
    :raises OSError: if the disk is full.
    """
    limits = _limits(max_body=max_body, max_head=max_head)
    folders = defaultdict[Path | Source, Folder](Folder)
    for source in (given := [Source(one, limits) for one in sources]):
        source.folder = folders[source.parent or source]
        source.folder.sources.append(source)
    opened = cache(store if callable(store) else lambda: store)
    counts, collector = Counter[str](), _Collector(opened, progress or (lambda _: None))
    for source in given:
        put: _Put | None = None
        for batch in batches(collector.pages(source)):
            put = put or opened().merger()
            _put(put, batch, counts, collector.skipped)
    kinds = dict(collector.skipped.most_common())
    return PagesImported(
        counts["stored"], counts["present"], kinds, tuple(collector.places), counts["replaced"]
    )


def _limits(**limits: int) -> Limits:
    for name, limit in limits.items():
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise ConfigError(name, limit, "a whole number of bytes")
    return Limits(min(limits["max_body"], MAX_BYTES), min(limits["max_head"], record.MAX_HEAD))


class _Collector:
    """Collects the pages of the sources, and counts what is skipped."""

    def __init__(self, opened: Callable[[], PageStore], progress: Callable[[int], object]) -> None:
        self._bodies, self._progress = _Bodies(opened), progress
        self.skipped = Counter[str]()
        self.places: list[str] = []

    def pages(self, source: Source) -> Iterator[Page | None]:
        """Yield the pages of a source; None if those before must be stored now."""
        reported = 0
        for one in source:
            if source.bytes_read > reported:
                self._progress(source.bytes_read - reported)
                reported = source.bytes_read
            # Here, because the source takes an OSError for one of its file.
            if (
                isinstance(one, Response)
                and one.change
                and source.folder.newest.has_later(one.change)
            ):
                one = Skipped(OUTDATED)  # noqa: PLW2901
            if one.where:
                self.places.append(one.where)
            if isinstance(one, Skipped):
                self.skipped[one.kind] += 1
            elif one.refers_to is None:
                self._bodies.add(one)
                yield one.page
            else:
                if not (page := self._bodies.page_of(one)):
                    yield None  # the page with the body may not be stored yet
                    page = self._bodies.page_of(one)
                self.skipped.update(["revisit"] * (page is None))
                yield page


def _put(put: _Put, batch: list[Page], counts: Counter[str], skipped: Counter[str]) -> None:
    """Store the pages. Count those that the store refuses."""
    try:
        counts.update(put(batch))
    except ConfigError as error:
        if len(batch) > 1:  # one of them was refused, so none was stored
            for page in batch:
                _put(put, [page], counts, skipped)
        else:
            is_old = error.argument == "at"
            skipped["outside the window" if is_old else f"refused: {error.argument}"] += 1


class _Bodies:
    """Finds the body that a revisit refers to: by its digest among the pages of the sources, or in the store."""

    def __init__(self, opened: Callable[[], PageStore]) -> None:
        self._opened = opened
        #: By digest: the address of a page, and Python's hash of its body.
        self._known = dict[str, tuple[Item, int]]()

    def add(self, response: Response) -> None:
        """Remember a page. If there are too many, forget the oldest."""
        page, digest = response.page, response.digest
        if digest and len(digest) + len(page.url) <= _REFERENCE:
            self._known.pop(digest, None)
            self._known[digest] = page.address, hash(page.body)
            if len(self._known) > _REFERENCES:
                del self._known[next(iter(self._known))]

    def page_of(self, revisit: Response) -> Page | None:
        """Return the page of a revisit; None if the store lacks its body."""
        address, body = self._known.get(revisit.digest, (revisit.refers_to, None))
        store = self._opened() if address else None
        with suppress(TBloomError):
            page = store.get(address) if store and address else None
            if page and (hash(page.body) == body or record.is_digest(revisit.digest, page.body)):
                if not revisit.page.status:
                    return replace(page, url=revisit.page.url, at=revisit.page.at, fields=revisit.page.fields, key=None)  # fmt: skip
                return replace(revisit.page, body=page.body)
        return None
