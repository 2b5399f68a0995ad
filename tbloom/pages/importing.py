"""Stores the pages of WARC files of any tool."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages.archives import Given, Source
from tbloom.pages.message import is_digest, is_short
from tbloom.pages.page import MAX_BYTES, Page, bytes_of, micros
from tbloom.pages.responses import Account, Response, Responses, date_of
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import batches

#: The default limit of bodies (bytes).
MAX_BODY = 1 << 27
#: Revisits wait for the page that they refer to, until they take so many bytes: then it is looked for.
_WAITING_BYTES = 1 << 25
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class PagesImported:
    """The result of an import."""

    #: Pages that were stored.
    stored: int
    #: Pages that were not stored, because the store had them from the same time or later.
    present: int
    #: The number of skipped records, places and files, by kind: "request", "outside the window", "damaged", ...
    skipped: Mapping[str, int]
    #: The places that could not be read, and the sources that can't be read, or not to their end.
    damaged: tuple[str, ...]
    #: Pages that replaced an earlier one of the same source and time.
    replaced: int = 0
    #: The number of pages that are no reason to skip them, but to look at them: "wrong digest".
    noted: Mapping[str, int] = field(default_factory=dict)


def import_warc(
    store: PageStore | Callable[[], PageStore],
    *sources: Given,
    max_body: int = MAX_BODY,
    progress: Callable[[int], object] | None = None,
) -> PagesImported:
    """Store the pages of WARC files, except those that the store has from the same time or later.

    Of two pages of one file with the same URL and time, the later is stored: wget writes times in seconds, and a redirect or a
    401 before the page.

    After an interruption, repeat the same call. After damage, a file is read on at the next gzip member, zstd frame or line
    that begins a record. The result lists these places, and the sources that can't be read; the others are imported.

    :param store: the store, or a function that opens it, called at the first page or revisit: without any, no store is made.
    :param sources: paths, or binary files open to read: WARC files (plain, or compressed with gzip or zstd) and WACZ files. A
        pipe is copied into a temporary file first. Sources with revisits may be read twice.
    :param max_body: pages with a longer body (in bytes) are skipped, and counted (128 MB). Their bodies are not kept in memory.
    :param progress: is called with the number of bytes that were read of a path since the last call.
    :raises ConfigError: if ``max_body`` is wrong.
    :raises OSError: if the disk is full.
    """
    if not isinstance(max_body, int) or isinstance(max_body, bool) or max_body < 0:
        raise ConfigError("max_body", max_body, "a whole number of bytes")
    get_store = cache(store if callable(store) else lambda: store)
    most = min(max_body, MAX_BYTES)
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(Source(source))) for source in sources]
        target = _Import(get_store, opened, most, progress or (lambda _: None))
        target.run()
    counts, account = target.counts, target.account
    return PagesImported(
        counts["stored"],
        counts["present"],
        dict(account.skipped.most_common()),
        tuple(account.places),
        counts["replaced"],
        dict(account.noted.most_common()),
    )


class _Revisit:
    """A page whose body another record has, and what it says of that; parts may be empty or None."""

    def __init__(self, response: Response) -> None:
        self.page, self.digest = response.page, response.digest
        #: The URL and the time of that record.
        self.url = response.refers_to
        self.at: datetime | None = date_of(response.fields.get("WARC-Refers-To-Date"))
        self.is_found = False

    @property
    def keys(self) -> list[str | int]:
        """What the record may have in common with the revisit: its digest, and the second of its time."""
        return [*filter(None, [self.digest]), *([] if self.at is None else [_second(self.at)])]

    def with_body(self, page: Page, digest: str = "", *, is_last: bool = False) -> Page | None:
        """Return the revisit with the body of a page; None if it is not that one.

        :param digest: what the page's own record says; if it is the revisit's, nothing is compared.
        :param is_last: True: a revisit without headers gets those of any page of the URL.
        """
        # pywb writes the seconds of a time only.
        is_at = self.at is not None and _second(self.at) == _second(page.at)
        if self.digest:
            is_it = self.digest == digest or is_digest(self.digest, page.body)
        else:  # of old versions of warcprox
            is_it = page.url == self.url and is_at
        if not is_it or is_short(self.page.headers, page.body):
            return None
        if self.page.status:
            return replace(self.page, body=page.body)
        # Without headers of its own, it has those of the very record.
        if is_at or self.at is None or (is_last and page.url == (self.url or self.page.url)):
            return replace(self.page, status=page.status, headers=page.headers, body=page.body)
        return None


class _Import:
    """An import, and what it has counted."""

    def __init__(
        self,
        store: Callable[[], PageStore],
        sources: list[Source],
        max_body: int,
        progress: Callable[[int], object],
    ) -> None:
        self._store, self._sources = store, sources
        self.counts, self.account = Counter[str](), Account()
        self._responses = Responses(self.account, max_body, progress)
        #: Reads sources once more, and counts nothing.
        self._again = Responses(Account(), max_body, lambda _: None)
        #: Revisits whose body was not found yet, by what they have in common with its record; and the bytes that they take.
        self._waiting, self._waiting_bytes = defaultdict[str | int, list[_Revisit]](list), 0

    def run(self) -> None:
        """Store the pages of all sources."""
        for source in self._sources:
            self._store_all(self._pages(source))
        self._look_for_bodies()

    def _store_all(self, pages: Iterator[Page | None]) -> None:
        put: Callable[[list[Page]], Mapping[str, int]] | None = None
        for batch in batches(pages):
            put = put or self._store().merger()
            self._put_all(put, batch)

    def _pages(self, source: Source) -> Iterator[Page | None]:
        """Yield the pages of a source, and None where those before must be stored."""
        for response in self._responses.of(source):
            if response.refers_to is None:
                yield response.page
                continue
            yield None  # the page with the body may be among them
            revisit = _Revisit(response)
            page = self._stored_body(revisit)
            if page is not None:
                yield page
            elif self._is_present(revisit.page):
                self.counts["present"] += 1
            else:
                for key in revisit.keys or [""]:
                    self._waiting[key].append(revisit)
                self._waiting_bytes += bytes_of(revisit.page)
                if self._waiting_bytes > _WAITING_BYTES:
                    self._look_for_bodies()

    def _stored_body(self, revisit: _Revisit, *, is_last: bool = False) -> Page | None:
        """Return a revisit with its body, if the store has that as a current page; FastWARC leaves this to its caller."""
        for address in dict.fromkeys(filter(None, (revisit.url, revisit.page.url))):
            with suppress(TBloomError):
                found = self._store().get(address)
                if found and (page := revisit.with_body(found, is_last=is_last)):
                    return page
        return None

    def _is_present(self, page: Page) -> bool:
        """Return True if the store has the page from the same time or later, so that its body is not needed."""
        with suppress(TBloomError):
            found = self._store().get(page.address)
            return found is not None and found.at >= page.at
        return False

    def _look_for_bodies(self) -> None:
        """Store the revisits that wait, with the bodies that other places have. Count those that have none."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, defaultdict(list), 0
        if waiting:
            # A page that came meanwhile, with the same time, stays.
            self._store_all(self._completed(waiting))

    def _completed(self, waiting: dict[str | int, list[_Revisit]]) -> Iterator[Page]:
        """Yield the revisits that wait, with the bodies of records anywhere in the sources, or of replaced pages of the store."""
        for source in self._sources:
            for response in self._again.of(source) if _left(waiting) else ():
                if response.refers_to is None:
                    yield from _taken(waiting, response.page, response.digest)
        if _left(waiting):
            for found in self._store().fetched_in({key for key in waiting if isinstance(key, int)}):
                yield from _taken(waiting, found)
        for revisit in _left(waiting):
            page = self._stored_body(revisit, is_last=True)
            if page is None:
                self.account.skip("revisit")
            else:
                yield page

    def _put_all(self, put: Callable[[list[Page]], Mapping[str, int]], batch: list[Page]) -> None:
        """Store the pages. Count those that the store refuses."""
        try:
            self.counts.update(put(batch))
        except ConfigError as error:
            if len(batch) > 1:  # one of them was refused, so none was stored
                for page in batch:
                    self._put_all(put, [page])
            else:
                is_old = error.argument == "at"
                self.account.skip("outside the window" if is_old else f"refused: {error.argument}")


def _left(waiting: dict[str | int, list[_Revisit]]) -> list[_Revisit]:
    """Return those that still wait."""
    found = dict.fromkeys(one for some in waiting.values() for one in some)
    return [one for one in found if not one.is_found]


def _taken(
    waiting: dict[str | int, list[_Revisit]], body: Page, digest: str = ""
) -> Iterator[Page]:
    """Yield the revisits that wait for the body of this page, completed.

    :param digest: what the page's own record says.
    """
    keys: tuple[int, str] = _second(body.at), digest
    for key in keys:
        for revisit in waiting.get(key, ()):
            if not revisit.is_found and (page := revisit.with_body(body, digest)):
                revisit.is_found = True
                yield page


def _second(at: datetime) -> int:
    return micros(at) // _SECOND
