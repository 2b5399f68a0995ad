"""Reads the responses in archives, and counts by kind what is no page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from tbloom.pages import record
from tbloom.pages.archives import Archive, Fields, Record, Source, Unreadable, archives_in
from tbloom.pages.coding import codings_in, unknown_in
from tbloom.pages.message import MAX_HEADERS, Message, message_of
from tbloom.pages.page import Page, as_fields, as_headers, as_url

#: Types of records that are no pages (ISO 28500), but a revisit whose body is found, and a resource of a URL.
_TYPES = {"continuation", "conversion", "metadata", "request", "resource", "revisit", "warcinfo"}
#: What is counted in several places.
_TRUNCATED, _TOO_LONG = "truncated", "longer than max_body"
_DAMAGED, _UNREADABLE, _CODING = "damaged", "unreadable file", "unknown encoding"
#: So many requests are remembered: the response is near. Of each, so many bytes are read to find its method.
_REQUESTS, _METHOD_BYTES = 100, 32
_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ")
#: The longest warcinfo that is read.
_MAX_INFO = 1 << 16
_OURS = f"software: {record.SOFTWARE}".encode()
#: Responses without the whole page: interim responses, not modified; and partial content.
_NO_PAGES, _PARTIAL = {*range(100, 200), 304}, 206
#: The range of a body, and its length. Browsers ask for all of a video, and get a 206 with all of it.
_RANGE = re.compile(r"bytes 0-(\d{1,18})/(\d{1,18})", re.IGNORECASE | re.ASCII)
#: So many characters of a wrong date or encoding are shown.
_SHOWN = 40
_EXPORT = "export a page store with tbloom pages export, and import that file"
#: A year or a month, which Python reads as no date.
_MONTH = re.compile(r"(\d{4})(-\d\d)?Z?", re.ASCII)


class Account:
    """Counts by kind what is skipped, and what is noted of stored pages."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        #: The places that are printed: there, the import has failed.
        self.places: list[str] = []

    def skip(self, kind: str, where: str = "") -> None:
        """Count a record or a file. ``where`` is printed."""
        self.skipped[kind] += 1
        if where:
            self.places.append(where)


class Response(NamedTuple):
    """A response in a file."""

    page: Page
    fields: Fields
    #: Of a revisit, whose page has no body: the URL of the record that has it, if it is known.
    refers_to: str | None

    @property
    def digest(self) -> str:
        """The digest of its payload; empty if it has none."""
        return self.fields.get("WARC-Payload-Digest")


class _NoPage(Exception):
    """Why a record is no page."""

    def __init__(self, kind: str, why: str = "") -> None:
        """``why`` is printed with the record's place."""
        super().__init__(kind)
        self.kind, self.why = kind, why


class _Requests:
    """The last requests of a file. A request stands before its response, or behind it."""

    def __init__(self) -> None:
        #: By the ID of each and that of its response: True for a GET.
        self._found = dict[str, bool]()

    def add(self, one: Record) -> None:
        """Remember a record if it is a request."""
        if one.fields.kind == "request" and (method := _METHOD.match(one.block)):
            for identity in one.fields.concurrent:
                is_get = self._found.pop(identity, True) and method[1] == b"GET"
                self._found[identity] = is_get
            while len(self._found) > 2 * _REQUESTS:
                del self._found[next(iter(self._found))]

    def is_get(self, response: Fields) -> bool:
        """Return True unless the request is known and no GET."""
        return all(self._found.get(identity, True) for identity in response.concurrent)


class Responses:
    """The responses of sources. All else that is found is counted in an account."""

    def __init__(self, account: Account, max_body: int, progress: Callable[[int], object]) -> None:
        self._account, self._max_body, self._progress = account, max_body, progress

    def of(self, source: Source) -> Iterator[Response]:
        """Yield the responses of a source."""
        reported, name = 0, source.name
        try:
            with source.opened() as file:
                for archive in archives_in(file, name, self._wanted):
                    if isinstance(archive, Unreadable):
                        self._account.skip(_UNREADABLE, f"{archive}")
                        continue
                    for response in self._answers_to_get(archive):
                        yield response
                        if source.path and archive.bytes_read > reported:
                            self._progress(archive.bytes_read - reported)
                            reported = archive.bytes_read
        except (Unreadable, OSError) as error:
            self._skip_file(name, error)

    def _skip_file(self, name: str, error: Exception) -> None:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, IsADirectoryError):
            why = f"it is a folder: give its WARC files; {_EXPORT}"
        self._account.skip(_UNREADABLE, f"{name}: {why}")

    def _answers_to_get(self, archive: Archive) -> Iterator[Response]:
        """Yield the responses of a file, unless their request is known and no GET."""
        # The ID of the last warcinfo of tbloom's own exports, which the pages of that export name.
        requests, own, said = _Requests(), "", set[str]()
        waiting: Response | None = None
        try:
            for one in archive.records():
                if isinstance(one, str):
                    self._account.skip(_DAMAGED, one)
                    continue
                _refuse_segment(one.fields)
                requests.add(one)
                is_ours = bool(own) and one.fields.get("WARC-Warcinfo-ID") == own
                if one.fields.kind == "warcinfo":
                    is_ours = any(line.startswith(_OURS) for line in one.block.splitlines())
                    own = one.fields.get("WARC-Record-ID") if is_ours else ""
                    if is_ours:
                        continue
                found, where = None, one.where
                try:
                    found = self._response(one, is_ours=is_ours)
                except _NoPage as no:
                    is_said = no.kind == _CODING and no.why in said
                    said.add(no.why)
                    self._account.skip(
                        no.kind, f"{where}: {no.why}" if no.why and not is_said else ""
                    )
                del one  # a long block is not kept in memory while its page is stored
                if found:
                    yield from self._passed(waiting, requests)
                    waiting = found
        except (Unreadable, OSError) as error:
            self._skip_file(archive.name, error)
        yield from self._passed(waiting, requests)

    def _passed(self, response: Response | None, requests: _Requests) -> Iterator[Response]:
        if response and requests.is_get(response.fields):
            yield response
        elif response:
            self._account.skip("not GET")

    def _wanted(self, fields: Fields) -> int:
        """Return how many bytes of a record's block are read."""
        if fields.kind == "warcinfo":
            return _MAX_INFO
        if fields.kind == "request":
            return _METHOD_BYTES
        return 0 if self._of_fields(fields) else self._max_body + MAX_HEADERS

    def _of_fields(self, fields: Fields) -> str:
        """Return what the fields of a record tell; empty if it may be a page."""
        kind = fields.kind
        is_url = _url(fields, "WARC-Target-URI").lower().startswith(("http://", "https://"))
        if kind != "response" and not _is_revisit(fields) and not (kind == "resource" and is_url):
            return kind if kind in _TYPES else "other"
        if not is_url:
            return "not HTTP"
        if fields.get("WARC-Segment-Number"):
            return "in several records"
        if fields.get("WARC-Truncated") and not _is_revisit(fields):
            return _TRUNCATED
        return _TOO_LONG if fields.length > self._max_body + MAX_HEADERS else ""

    def _response(self, one: Record, *, is_ours: bool) -> Response:
        """Return the response of a record. Raise _NoPage if there is none."""
        fields = one.fields
        if kind := self._of_fields(fields):
            raise _NoPage(kind)
        if one.is_whole is False:
            raise _NoPage(_DAMAGED, "its digest does not match its content")
        given = fields.get("WARC-Date")
        if (at := date_of(given)) is None:
            raise _NoPage(_DAMAGED, f"its date {given[:_SHOWN]!r} can't be read")
        key = _key_of(fields)
        url, kept = _url(fields, "WARC-Target-URI"), as_fields(fields.pairs)
        refers_to = _url(fields, "WARC-Refers-To-Target-URI") if _is_revisit(fields) else None
        if refers_to is not None and not one.block:  # headers and body are those of another record
            return Response(Page(url, 0, (), b"", at, key, kept), fields, refers_to)
        found = _message_of(one, is_ours=is_ours)
        if isinstance(found, str):
            raise _NoPage(found)
        if not is_ours:  # what a store has can be stored
            _check(found, is_revisit=refers_to is not None)
        if len(found.body) > self._max_body:
            raise _NoPage(_TOO_LONG)
        headers = as_headers(found.headers)
        if is_ours:
            headers = tuple((name.removeprefix(record.ORIGINAL), value) for name, value in headers)
        if one.is_denied:
            self._account.noted["wrong digest"] += 1
        return Response(
            Page(url, found.status, headers, found.body, at, key, kept), fields, refers_to
        )


def _key_of(fields: Fields) -> bytes | None:
    """Return the key of a page that tbloom has exported; None: it has none."""
    given = fields.get(record.KEY)
    try:
        return bytes.fromhex(given) or None
    except ValueError:
        raise _NoPage(_DAMAGED, f"its key {given[:_SHOWN]!r} can't be read") from None


def _message_of(one: Record, *, is_ours: bool) -> Message | str:
    """Return the response in a record, or why there is none. A resource is a file, without a status and headers."""
    if one.fields.kind != "resource":
        return message_of(one.block, is_plain=is_ours)
    kind = one.fields.get("Content-Type")
    headers = (("Content-Type", kind),) if kind else ()
    return Message(200, headers, one.block, is_cut=False)


def _is_part(found: Message) -> bool:
    """Return True if the body is only a part of the page's."""
    if found.status != _PARTIAL:
        return False
    given = next((value for name, value in found.headers if name.lower() == "content-range"), "")
    part = _RANGE.fullmatch(given)
    return part is None or not int(part[1]) + 1 == int(part[2]) == len(found.body)


def _check(found: Message, *, is_revisit: bool) -> None:
    """Raise _NoPage if a message is not a whole page that can be decoded."""
    if found.status in _NO_PAGES or _is_part(found):
        raise _NoPage(f"status {found.status}")
    if found.is_cut and not is_revisit:
        raise _NoPage(_TRUNCATED)
    coding = unknown_in(codings_in(found.headers)) if found.body or is_revisit else None
    if coding is not None:
        why = (
            f"the Content-Encoding {coding[:_SHOWN]!r} can't be decoded: no page with it is stored"
        )
        raise _NoPage(_CODING, why)


def date_of(text: str) -> datetime | None:
    """Return the time of a WARC-Date, of a year or a month its first moment; None if it can't be read."""
    text = text.strip().upper()
    if found := _MONTH.fullmatch(text):
        text = f"{found[1]}{found[2] or '-01'}-01"
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    return None


def _refuse_segment(fields: Fields) -> None:
    """Raise Unreadable for a record that a page store has written: another may have replaced or deleted its page."""
    if fields.get(record.SEQUENCE):
        raise Unreadable(f"it is a file of a page store: {_EXPORT}")


def _is_revisit(fields: Fields) -> bool:
    """Return True if the body is that of another record."""
    is_same = "identical-payload-digest" in fields.get("WARC-Profile")
    return is_same and fields.kind == "revisit"


def _url(fields: Fields, name: str) -> str:
    """Return a URL, quoted, without the angle brackets of Wget before 1.21."""
    url = fields.get(name)
    return as_url(url[1:-1] if url.startswith("<") and url.endswith(">") else url)
