"""Stores the pages of WARC files of any tool."""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from tbloom.arguments import Item
from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import record
from tbloom.pages.archives import (
    Archive,
    Damage,
    Fields,
    Given,
    Record,
    Unreadable,
    archives_in,
    opened,
)
from tbloom.pages.message import MAX_HEADERS, is_digest, message_of
from tbloom.pages.page import MAX_BYTES, Page, as_fields, as_headers, as_url
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import batches

#: The default limit of bodies (bytes).
MAX_BODY = 1 << 27
#: So many pages are remembered for revisits, if digest and URL are not longer together.
_REFERENCES, _REFERENCE = 50_000, 1_000
#: So many requests are remembered: the response is near. Of each, so many bytes are read to find its method.
_REQUESTS, _METHOD_BYTES = 100, 32
_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ")
#: The longest warcinfo that is read.
_MAX_INFO = 1 << 16
_OURS = f"software: {record.SOFTWARE}".encode()
_KINDS = {"continuation", "conversion", "metadata", "request", "resource", "revisit", "warcinfo"}
#: Responses without the whole page: partial content, not modified.
_PARTIAL = {206, 304}
#: So many characters of a wrong date are shown.
_SHOWN = 40
#: Kinds that several places count.
DAMAGED, UNREADABLE, TOO_LONG = "damaged", "unreadable file", "longer than max_body"
_EXPORT = "export a page store with tbloom pages export, and import that file"


@dataclass(frozen=True, slots=True)
class PagesImported:
    """The result of an import."""

    #: Pages that were stored.
    stored: int
    #: Pages that were not stored, because the store had them from the same time or later.
    present: int
    #: The number of skipped records, places and files, by kind: "request", "outside the window", "damaged", ...
    skipped: Mapping[str, int]
    #: The places that could not be read, and the sources that can't be read.
    damaged: tuple[str, ...]
    #: Pages that replaced an earlier one of the same source and time.
    replaced: int = 0


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
        pipe is copied into a temporary file first.
    :param max_body: pages with a longer body (in bytes) are skipped, and counted (128 MB). Their bodies are not kept in memory.
    :param progress: is called with the number of bytes that were read of a path since the last call.
    :raises ConfigError: if ``max_body`` is wrong.
    :raises OSError: if the disk is full.
    """
    if not isinstance(max_body, int) or isinstance(max_body, bool) or max_body < 0:
        raise ConfigError("max_body", max_body, "a whole number of bytes")
    get_store = cache(store if callable(store) else lambda: store)
    target = _Import(get_store, min(max_body, MAX_BYTES), progress or (lambda _: None))
    for source in sources:
        target.add(source)
    counts, kinds = target.counts, dict(target.skipped.most_common())
    return PagesImported(
        counts["stored"], counts["present"], kinds, tuple(target.places), counts["replaced"]
    )


class _Response(NamedTuple):
    """A response in a file."""

    page: Page
    fields: Fields
    #: Of a revisit, whose page has no body: the URL of the record that has it.
    refers_to: str | None


class _Requests:
    """The last requests of a file. A request stands before its response, or behind it."""

    def __init__(self) -> None:
        #: The IDs of each and of its response, and True for a GET.
        self._found = deque[tuple[list[str], bool]](maxlen=_REQUESTS)

    def add(self, one: Record) -> None:
        """Remember a record if it is a request."""
        if one.fields.get("WARC-Type").lower() == "request" and (
            method := _METHOD.match(one.block)
        ):
            self._found.append((one.fields.concurrent, method[1] == b"GET"))

    def is_get(self, response: Fields) -> bool:
        """Return True unless the request is known and no GET."""
        own = {*response.concurrent}
        return all(is_get for ids, is_get in self._found if not own.isdisjoint(ids))


class _Import:
    """An import, and what it has counted."""

    def __init__(
        self, store: Callable[[], PageStore], max_body: int, progress: Callable[[int], object]
    ) -> None:
        self._store, self._max_body, self._progress = store, max_body, progress
        #: By digest: the address of a page, and Python's hash of its body.
        self._bodies = dict[str, tuple[Item, int]]()
        self.counts, self.skipped = Counter[str](), Counter[str]()
        self.places = list[str]()

    def add(self, source: Given) -> None:
        """Store the pages of a source."""
        put: Callable[[list[Page]], Mapping[str, int]] | None = None
        for batch in batches(self._pages(source)):
            put = put or self._store().merger()
            self._put_all(put, batch)

    def _pages(self, source: Given) -> Iterator[Page | None]:
        """Yield the pages of a source, and None where those before must be stored."""
        for response in self._responses(source):
            page: Page | None = response.page
            if response.refers_to is None:
                self._remember(response)
            else:
                yield None  # the page with the body may be among them
                page = self._with_body(response, response.refers_to)
            if page is None:
                self._skip("revisit")
            else:
                yield page

    def _skip(self, kind: str, where: str = "") -> None:
        self.skipped[kind] += 1
        if where:
            self.places.append(where)

    def _responses(self, source: Given) -> Iterator[_Response]:
        """Yield the responses of a source."""
        path = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
        name = path or f"{getattr(source, 'name', 'the file')}"
        reported = 0
        try:
            with opened(source) as file:
                for archive in archives_in(file, name, self._wanted):
                    if isinstance(archive, Unreadable):
                        self._skip(UNREADABLE, f"{archive}")
                        continue
                    for response in self._answers_to_get(archive):
                        yield response
                        if path and archive.bytes_read > reported:
                            self._progress(archive.bytes_read - reported)
                            reported = archive.bytes_read
        except IsADirectoryError:
            self._skip(UNREADABLE, f"{name}: it is a folder: give its WARC files; {_EXPORT}")
        except OSError as error:
            self._skip(UNREADABLE, f"{name}: {error.strerror or error}")
        except Unreadable as error:
            self._skip(UNREADABLE, f"{name}: {error}")

    def _answers_to_get(self, archive: Archive) -> Iterator[_Response]:
        """Yield the responses of a file, unless their request is known and no GET."""
        requests, is_ours = _Requests(), False
        waiting: _Response | None = None
        try:
            for one in archive.records():
                if isinstance(one, Damage):
                    self._skip(DAMAGED, one.where)
                    continue
                _refuse_segment(one.fields)
                requests.add(one)
                if one.fields.get("WARC-Type").lower() == "warcinfo":
                    is_ours = any(line.startswith(_OURS) for line in one.block.splitlines())
                found = self._response(one, is_ours=is_ours)
                del one  # a long block is not kept in memory while its page is stored
                if found:
                    yield from self._passed(waiting, requests)
                    waiting = found
        except Unreadable as error:
            self._skip(UNREADABLE, f"{archive.name}: {error}")
        yield from self._passed(waiting, requests)
        if archive.error:
            raise archive.error

    def _passed(self, response: _Response | None, requests: _Requests) -> Iterator[_Response]:
        if response and requests.is_get(response.fields):
            yield response
        elif response:
            self._skip("not GET")

    def _wanted(self, fields: Fields) -> int:
        """Return how many bytes of a record's block are read."""
        kind = fields.get("WARC-Type").lower()
        if kind == "warcinfo":
            return _MAX_INFO
        if kind == "request":
            return _METHOD_BYTES
        return 0 if self._why_not(fields) else self._max_body + MAX_HEADERS

    def _why_not(self, fields: Fields) -> str:
        """Return the kind of a record that is no page; empty if it may be one."""
        kind = fields.get("WARC-Type").lower()
        if kind != "response" and not _is_revisit(fields):
            return kind if kind in _KINDS else "other"
        if not _url(fields, "WARC-Target-URI").lower().startswith(("http://", "https://")):
            return "not HTTP"
        if fields.get("WARC-Segment-Number"):
            return "in several records"
        if fields.get("WARC-Truncated"):
            return "truncated"
        return TOO_LONG if fields.length > self._max_body + MAX_HEADERS else ""

    def _response(self, one: Record, *, is_ours: bool) -> _Response | None:
        """Return the response of a record; None, after it was counted, if there is none."""
        fields = one.fields
        if why := self._why_not(fields):
            self._skip(why)
            return None
        if one.is_whole is False:
            self._skip(DAMAGED, f"{one.where}: its digest does not match its content")
            return None
        try:
            key = bytes.fromhex(fields.get(record.KEY)) or None
            at = datetime.fromisoformat(fields.get("WARC-Date"))
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            why = f"its key, or its date {fields.get('WARC-Date')[:_SHOWN]!r}, can't be read"
            self._skip(DAMAGED, f"{one.where}: {why}")
            return None
        url, kept = _url(fields, "WARC-Target-URI"), as_fields(fields.pairs)
        refers_to = _url(fields, "WARC-Refers-To-Target-URI") if _is_revisit(fields) else None
        if refers_to is not None and not one.block:  # headers and body are those of another record
            return _Response(Page(url, 0, (), b"", at, key, kept), fields, refers_to)
        found = message_of(one.block, fields.get("WARC-Payload-Digest"), is_plain=is_ours)
        if isinstance(found, str):
            self._skip(found)
        elif found.status in _PARTIAL and not is_ours:
            self._skip(f"status {found.status}")
        elif len(found.body) > self._max_body:
            self._skip(TOO_LONG)
        else:
            headers = as_headers(found.headers)
            if is_ours:
                headers = tuple((name.removeprefix(record.ORIGINAL), value) for name, value in headers)  # fmt: skip
            page = Page(url, found.status, headers, found.body, at, key, kept)
            return _Response(page, fields, refers_to)
        return None

    def _remember(self, response: _Response) -> None:
        """Remember the body of a page for revisits. If there are too many, forget the oldest."""
        page, digest = response.page, response.fields.get("WARC-Payload-Digest")
        if digest and len(digest) + len(page.url) <= _REFERENCE:
            self._bodies.pop(digest, None)
            self._bodies[digest] = page.address, hash(page.body)
            if len(self._bodies) > _REFERENCES:
                del self._bodies[next(iter(self._bodies))]

    def _with_body(self, revisit: _Response, refers_to: str) -> Page | None:
        """Return the page of a revisit with the body it refers to: by its digest among the pages of the import, or in the store.

        FastWARC leaves this to its caller.
        """
        page, digest = revisit.page, revisit.fields.get("WARC-Payload-Digest")
        address, body = self._bodies.get(digest, (refers_to, None))
        if not address:
            return None
        with suppress(TBloomError):
            found = self._store().get(address)
            if found and (hash(found.body) == body or is_digest(digest, found.body)):
                if not page.status:
                    return replace(
                        page, status=found.status, headers=found.headers, body=found.body
                    )
                return replace(page, body=found.body)
        return None

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
                self._skip("outside the window" if is_old else f"refused: {error.argument}")


def _refuse_segment(fields: Fields) -> None:
    """Raise Unreadable for a record that a page store has written: another may have replaced or deleted its page."""
    if fields.get(record.SEQUENCE):
        raise Unreadable(f"it is a file of a page store: {_EXPORT}")


def _is_revisit(fields: Fields) -> bool:
    """Return True if the body is that of another record."""
    is_same = "identical-payload-digest" in fields.get("WARC-Profile")
    return is_same and fields.get("WARC-Type").lower() == "revisit"


def _url(fields: Fields, name: str) -> str:
    """Return a URL, quoted, without the angle brackets of Wget before 1.21."""
    url = fields.get(name)
    return as_url(url[1:-1] if url.startswith("<") and url.endswith(">") else url)
