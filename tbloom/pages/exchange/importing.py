"""Imports WARC files of any tool, and other stores."""

from __future__ import annotations

import io
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from tbloom.arguments import Item
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import record
from tbloom.pages.exchange import responses
from tbloom.pages.exchange.responses import (
    DAMAGED,
    LONG_HEAD,
    TOO_LONG,
    Answer,
    Fields,
    Limits,
    Skipped,
)
from tbloom.pages.exchange.stream import Records, Trailing
from tbloom.pages.members import Damaged
from tbloom.pages.page import MAX_BYTES, Page
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import batches

_Put = Callable[[list[Page]], Counter[str]]
_OURS = f"software: {record.SOFTWARE}".encode()
#: The longest warcinfo that is read.
_MAX_INFO = 1 << 16
#: The longest body and HTTP headers that are imported, if nothing else is said; WARC headers may have a quarter of that.
MAX_BODY, MAX_HEAD = 1 << 27, 1 << 18
_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ")
#: Bytes of a request in which its method stands.
_METHOD_BYTES = 32
#: Requests that are remembered: the response is near.
_REQUESTS = 100
#: Pages that are remembered for revisits, and the characters of a digest and URL, at most.
_REFERENCES, _REFERENCE = 50_000, 1_000


@dataclass(frozen=True, slots=True)
class PagesImported:
    """The result of an import."""

    #: Pages that were stored.
    stored: int
    #: Pages that the store had already, fetched at the same time or later.
    present: int
    #: The number of what was skipped, by kind: "request", "outside the window", "damaged", ...
    skipped: Mapping[str, int]
    #: The places of what could not be read.
    damaged: tuple[str, ...]
    #: Pages that took the place of an earlier one of the same source and time.
    replaced: int = 0


def import_warc(
    store: PageStore,
    *sources: str | os.PathLike[str] | BinaryIO,
    max_body: int = MAX_BODY,
    max_head: int = MAX_HEAD,
    progress: Callable[[int], object] | None = None,
) -> PagesImported:
    """Stores the pages of WARC files, except those that the store has, fetched at the same time or later.

    Of two pages of one file with the same URL and time, the later is stored: wget writes times in seconds, and a redirect or a
    401 before the page.

    After an interruption, the same import goes on. Damaged pages are skipped; behind damage, a file is read on at the next
    gzip member or the next line that begins a record. The result lists the places.

    :param sources: paths, or files opened to read bytes; compressed with gzip or zstd, or not. Or the folders of other
        stores.
    :param max_body: pages with a longer body (in bytes) are skipped, and counted; 128 MB. Their content is not kept in
        memory.
    :param max_head: pages with longer HTTP headers (in bytes), or with WARC headers longer than a quarter of it, are skipped,
        and counted; 256 KB. (Short headers take a hundred times their length in memory.)
    :param progress: is called with the number of bytes that were read of a path, after each page.
    :raises ConfigError: where one is no WARC file; then nothing has changed.
    :raises OSError: where one can't be read, or the disk is full.
    """
    for name, limit in (("max_body", max_body), ("max_head", max_head)):
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise ConfigError(name, limit, "a whole number of bytes")
    limits = Limits(min(max_body, MAX_BYTES), min(max_head, record.MAX_HEAD))
    opened = [_opened(one, limits, progress or (lambda _: None)) for one in sources]
    counts, skipped = Counter[str](), Counter[str]()
    damaged: list[str] = []
    bodies = _Bodies(store)

    def pages(source: Iterator[Answer | Skipped]) -> Iterator[Page | None]:
        for one in source:
            if isinstance(one, Skipped):
                skipped[one.kind] += 1
                damaged.extend([one.where] * (one.kind == DAMAGED))
            elif one.refers_to is None:
                bodies.add(one)
                yield one.page
            else:
                if not (page := bodies.page_of(one)):
                    yield None  # the page with the body may not be stored yet
                    page = bodies.page_of(one)
                skipped.update(["revisit"] * (page is None))
                yield page

    for source in opened:
        put = cache(store.merger)  # for the first page: the command line makes no store before
        for batch in batches(pages(source)):
            _put(put(), batch, counts, skipped)
    kinds = dict(skipped.most_common())
    return PagesImported(
        counts["stored"], counts["present"], kinds, tuple(damaged), counts["replaced"]
    )


def _put(put: _Put, batch: list[Page], counts: Counter[str], skipped: Counter[str]) -> None:
    """Stores the pages; those that the store refuses are counted."""
    try:
        counts.update(put(batch))
    except ConfigError as error:
        if len(batch) > 1:  # one of them is refused, and none was stored
            for page in batch:
                _put(put, [page], counts, skipped)
        else:
            is_old = error.argument == "at"
            skipped["outside the window" if is_old else f"refused: {error.argument}"] += 1


def _opened(
    given: str | os.PathLike[str] | BinaryIO, limits: Limits, progress: Callable[[int], object]
) -> Iterator[Answer | Skipped]:
    """The pages of a source, which is found to be one now."""
    if not isinstance(given, str | os.PathLike):
        name = str(getattr(given, "name", "the file"))
        return _begun(_Kept(cast("io.RawIOBase", given)), name, limits).pages()
    path = Path(given)
    if path.is_dir():
        PageStore(path, readonly=True).close()
        return _of_store(path, limits.body)
    with path.open("rb") as file:
        _begun(file, os.fspath(given), limits)
    return _of_file(path, os.fspath(given), limits, progress)


def _of_store(path: Path, max_body: int) -> Iterator[Answer | Skipped]:
    """The pages of another store, as ``PageStore.pages`` has them."""
    with PageStore(path, readonly=True) as store:
        for page in store.pages():
            yield Answer(page) if len(page.body) <= max_body else Skipped(TOO_LONG)


def _of_file(
    path: Path, name: str, limits: Limits, progress: Callable[[int], object]
) -> Iterator[Answer | Skipped]:
    done = 0
    with path.open("rb") as file:
        for one in _begun(file, name, limits).pages():
            yield one
            progress(file.tell() - done)
            done = file.tell()


def _begun(file: io.BufferedReader, name: str, limits: Limits) -> _Reader:
    try:
        return _Reader(name, Records(file, limits.head // 4), limits)
    except Damaged as error:
        raise ConfigError("source", name, f"a WARC file ({error})") from None


class _Bodies:
    """The bodies that revisits refer to: of pages of the sources, by the digests in their records, or of the store."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        #: By digest: the address of a page, and Python's hash of its body.
        self._known = dict[str, tuple[Item, int]]()

    def add(self, answer: Answer) -> None:
        """Remembers a page; the oldest one goes."""
        page, digest = answer.page, answer.digest
        if digest and len(digest) + len(page.url) <= _REFERENCE:
            self._known.pop(digest, None)
            self._known[digest] = page.address, hash(page.body)
            if len(self._known) > _REFERENCES:
                del self._known[next(iter(self._known))]

    def page_of(self, revisit: Answer) -> Page | None:
        """The page of a revisit; None: the store has not the body."""
        address, body = self._known.get(revisit.digest, (revisit.refers_to, None))
        with suppress(TBloomError):
            page = self._store.get(address) if address else None
            if page and (hash(page.body) == body or record.is_digest(revisit.digest, page.body)):
                return replace(revisit.page, body=page.body)
        return None


class _Kept(io.BufferedReader):
    """Reads ahead in a file of the caller's, and leaves it open."""

    def close(self) -> None:
        """Does nothing."""


class _Reader:
    """The pages of a file, and what is skipped."""

    def __init__(self, name: str, records: Records, limits: Limits) -> None:
        self._name, self._records, self._limits = name, records, limits
        #: True: tbloom wrote the records.
        self._is_ours = False
        #: True for a GET: the last requests, by their IDs and those of their responses.
        self._requests = deque[tuple[list[str], bool]](maxlen=_REQUESTS)

    def pages(self) -> Iterator[Answer | Skipped]:
        """The answers to GET, and what is skipped. A request stands before its response, or behind it."""
        waiting: tuple[Fields, Answer] | None = None
        for fields, found in self._all():
            if isinstance(found, Answer) and fields is not None:
                if waiting is not None:
                    yield self._answered(*waiting)
                waiting = fields, found
            else:
                yield found
        if waiting is not None:
            yield self._answered(*waiting)

    def _answered(self, fields: Fields, answer: Answer) -> Answer | Skipped:
        """The answer, if no request is known that is no GET."""
        own = {*fields.concurrent}
        is_get = all(is_get for ids, is_get in self._requests if not own.isdisjoint(ids))
        return answer if is_get else Skipped("not GET")

    def _all(self) -> Iterator[tuple[Fields | None, Answer | Skipped]]:
        """The records, and the places between them that can't be read."""
        while True:
            try:
                if (head := self._records.head()) is None:
                    return
                fields = Fields(head)
                found = self._skipped(fields)
                block = b"" if found else self._records.block(fields.length)
                try:
                    end = self._records.end()
                except Trailing:
                    yield fields, found or self._page(fields, block)
                    raise
                yield fields, found or self._page(fields, block, end)
            except Damaged as error:
                damaged = self._damaged(str(error))
                why = (
                    f"read on at {self._records.place}"
                    if self._records.go_on()
                    else "what follows was not read"
                )
                yield None, damaged._replace(where=f"{damaged.where}; {why}")

    def _damaged(self, why: str) -> Skipped:
        return Skipped(DAMAGED, f"{self._name}: at {self._records.place}: {why}")

    def _skipped(self, fields: Fields) -> Skipped | None:
        """Passes over what the fields describe, if it is no page; else None."""
        skipped, length = fields.skipped(self._limits), fields.length
        if self._records.is_long:
            skipped = Skipped(LONG_HEAD)
        if skipped is None:
            return None
        if skipped.kind == "warcinfo" and length < _MAX_INFO:
            block = self._records.block(length)
            self._is_ours = any(line.startswith(_OURS) for line in block.splitlines())
            return skipped
        if skipped.kind == "request":
            start = self._records.block(min(length, _METHOD_BYTES))
            length -= len(start)
            if method := _METHOD.match(start):
                self._requests.append((fields.concurrent, method[1] == b"GET"))
        self._records.skip(length)
        return skipped

    def _page(self, fields: Fields, block: bytes, end: bytes = record.END) -> Answer | Skipped:
        """The page of a record, or why there is none; the next record can be read all the same."""
        is_ours = self._is_ours or bool(fields.get(record.SEQUENCE))
        try:
            block = responses.whole(fields, block, end)
            page = responses.page_of(fields, block, self._limits, is_ours=is_ours)
        except Damaged as error:
            return self._damaged(str(error))
        if isinstance(page, Skipped):
            return page
        digest = fields.get("WARC-Payload-Digest")
        return Answer(page, digest, fields.refers_to if fields.is_revisit else None)
