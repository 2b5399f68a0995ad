"""Stores the pages of WARC files of any tool."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import NamedTuple

from tbloom.arguments import Item
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import findings
from tbloom.pages.archives import Given, Source
from tbloom.pages.findings import Account
from tbloom.pages.message import is_digest, is_short
from tbloom.pages.page import MAX_BYTES, Page, Pairs, micros
from tbloom.pages.responses import Response, Responses, date_of
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import batches

#: The default limit of bodies (bytes).
MAX_BODY = 1 << 27
#: So many pages are remembered for revisits, if digest and URL are not longer together.
_REFERENCES, _REFERENCE = 50_000, 1_000
#: Revisits wait for the page that they refer to, until they take so many bytes: then it is looked for.
_WAITING_BYTES = 1 << 25
#: Bytes of memory that a header or field takes beside its text, at least.
_HEADER_BYTES = 200
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


class _Original(NamedTuple):
    """What a revisit says of the record that has its body; parts may be empty or None."""

    digest: str
    url: str
    at: datetime | None
    #: The revisit's own headers.
    headers: Pairs

    def is_of(self, page: Page, digest: str, known: int | None = None) -> bool:
        """Return True if the body is that of a page. Without a digest (of old versions of warcprox), URL and time must be its own.

        :param digest: the one that the page's own record has; if it is the same, nothing is compared.
        :param known: Python's hash of the body to which the digest belongs, if it is not that of the body.
        """
        if not self.digest:
            is_it = bool(self.url) and page.url == self.url and self.is_at(page.at)
        else:
            is_known = self.digest == digest and (known is None or hash(page.body) == known)
            is_it = is_known or bool(is_digest(self.digest, page.body))
        return is_it and not is_short(self.headers, page.body)

    def is_at(self, at: datetime) -> bool:
        """Return True if the record may be of this time: pywb writes its seconds only."""
        return self.at is not None and _second(self.at) == _second(at)


class _Waiting:
    """Revisits whose body was not found yet, by the digest and by the second of the record that has it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._found = dict[int, tuple[Page, _Original]]()
        self._by_digest, self._by_second = defaultdict[str, set[int]](set), defaultdict[int, set[int]](set)  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def seconds(self) -> Collection[int]:
        """The seconds of the records that are looked for."""
        return self._by_second.keys()

    def add(self, page: Page, original: _Original) -> None:
        """Let a revisit wait."""
        number = id(page)
        self._found[number] = page, original
        self._by_digest[original.digest].add(number)
        if original.at is not None:
            self._by_second[_second(original.at)].add(number)
        texts = [text for pair in (*page.headers, *page.fields) for text in pair]
        self.bytes += sum(map(len, texts)) + _HEADER_BYTES * (len(texts) + 1)

    def take(self, body: Page, digest: str = "") -> Iterator[Page]:
        """Yield the revisits whose body is that of a page, completed. They no longer wait.

        :param digest: what the page's own record says; a revisit that has it in the same words needs no comparison.
        """
        by_second = self._by_second.get(_second(body.at), ())
        by_digest = self._by_digest.get(digest, ()) if digest else ()
        is_same = cache(lambda original: original.is_of(body, digest))
        for number in [*{*by_second, *by_digest}]:
            page, original = self._found[number]
            # Without headers of its own, it has those of the very record.
            is_it = page.status or original.at is None or original.is_at(body.at)
            if is_it and is_same(original):
                self.drop(page)
                yield _with_body(page, body)

    def drop(self, page: Page) -> None:
        """Let a revisit wait no longer."""
        number = id(page)
        _, original = self._found.pop(number)
        self._by_digest[original.digest].discard(number)
        if original.at is not None:
            self._by_second[_second(original.at)].discard(number)

    def rest(self) -> list[tuple[Page, _Original]]:
        """Return those whose body was not found."""
        return [*self._found.values()]


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
        #: By digest: the address of a page, and if the digest is not that of its body, Python's hash of it.
        self._bodies = dict[str, tuple[Item, int | None]]()
        self._waiting = _Waiting()

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
                self._remember(response)
                yield response.page
                continue
            yield None  # the page with the body may be among them
            original = _original_of(response, response.refers_to)
            page = self._stored_body(response.page, original)
            if page is not None:
                yield page
            elif self._is_present(response.page):
                self.counts["present"] += 1
            else:
                self._waiting.add(response.page, original)
                if self._waiting.bytes > _WAITING_BYTES:
                    self._look_for_bodies()

    def _remember(self, response: Response) -> None:
        """Remember the body of a page for revisits. If there are too many, forget the oldest."""
        page, digest = response.page, response.digest
        if digest and len(digest) + len(page.url) <= _REFERENCE:
            self._bodies.pop(digest, None)
            known = None if response.is_confirmed else hash(page.body)
            self._bodies[digest] = page.address, known
            if len(self._bodies) > _REFERENCES:
                del self._bodies[next(iter(self._bodies))]

    def _stored_body(
        self, revisit: Page, original: _Original, *, is_last: bool = False
    ) -> Page | None:
        """Return a revisit with its body, if the store has that as a current page; FastWARC leaves this to its caller.

        :param is_last: True: a revisit without headers gets those of another page of the URL with this body.
        """
        address, known = self._bodies.get(original.digest, (original.url, None))
        for one in dict.fromkeys((address, original.url, revisit.url)):
            with suppress(TBloomError):
                found = self._store().get(one) if one else None
                if found is None or not original.is_of(
                    found, "" if known is None else original.digest, known
                ):
                    continue
                # Without headers of its own, it has those of the very record.
                is_it = original.at is None or original.is_at(found.at)
                is_same = is_last and found.url == (original.url or revisit.url)
                if revisit.status or is_it or is_same:
                    return _with_body(revisit, found)
        return None

    def _is_present(self, page: Page) -> bool:
        """Return True if the store has the page from the same time or later, so that its body is not needed."""
        with suppress(TBloomError):
            found = self._store().get(page.address)
            return found is not None and found.at >= page.at
        return False

    def _look_for_bodies(self) -> None:
        """Store the revisits that wait, with the bodies that other places have. Count those that have none."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, _Waiting()
        # A page that came meanwhile, with the same time, stays.
        self._store_all(self._completed(waiting))
        for _ in waiting.rest():
            self.account.add("revisit")

    def _completed(self, waiting: _Waiting) -> Iterator[Page]:
        """Yield the revisits that wait, with the bodies of records anywhere in the sources, or of replaced pages of the store."""
        for source in self._sources:
            if waiting:
                for response in self._again.of(source):
                    if response.refers_to is None:
                        yield from waiting.take(response.page, response.digest)
        if waiting:
            for found in self._store().fetched_in(waiting.seconds):
                yield from waiting.take(found)
        for page, original in waiting.rest():
            completed = self._stored_body(page, original, is_last=True)
            if completed is not None:
                waiting.drop(page)
                yield completed

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
                self.account.add(findings.OLD if is_old else f"refused: {error.argument}")


def _original_of(revisit: Response, url: str) -> _Original:
    """Return what a revisit says of the record that has its body."""
    at = date_of(revisit.fields.get("WARC-Refers-To-Date"))
    return _Original(revisit.digest, url, at, revisit.page.headers)


def _with_body(revisit: Page, found: Page) -> Page:
    """Return a revisit with a body; if it has no headers, with those of the page that has the body."""
    if revisit.status:
        return replace(revisit, body=found.body)
    return replace(revisit, status=found.status, headers=found.headers, body=found.body)


def _second(at: datetime) -> int:
    return micros(at) // _SECOND
