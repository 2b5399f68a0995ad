"""A page, and the checks of its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from tbloom.arguments import Item, check_at, encode, fingerprint
from tbloom.errors import ConfigError
from tbloom.pages.coding import codings_in, decoded, may_have

#: Names and values: a mapping, or pairs.
Headers = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str | bytes, str | bytes]]
Pairs = tuple[tuple[str, str], ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATUSES = range(100, 1000)
#: Bytes of memory that a name or a value takes beside its text, at least.
_TEXT_BYTES = 100
#: A record is read in one call, which no system does for 2**31 bytes; its lengths have 32 bits.
MAX_BYTES = 2**30
#: The limit of URL, key, headers and fields together: a rebuild reads up to as many bytes to find the end of a record's fields.
MAX_HEAD_BYTES = 2**22
#: WARC tools know the scheme in lower case only.
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")
_NOT_IN_URL = re.compile(r"[\s\x00-\x1f\x7f]")
_NAME = re.compile(r"[^\x00-\x20\x7f:]([^\x00-\x1f\x7f:]*[^\x00-\x20\x7f:])?")
_VALUE = re.compile(r"[^\x00\r\n]*")
#: Fields that the store writes itself, or that belong to other types of records, and would mislead a reader.
_RESERVED = re.compile(
    r"(WARC-(Type|Record-ID|Warcinfo-ID|Target-URI|Date|(Payload|Block)-Digest|Filename|Segment-.*|Profile)"
    r"|Content-.*|X-Tbloom-.*)",
    re.IGNORECASE,
)
#: The name of a field (ISO 28500; as in HTTP).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was stored."""

    url: str
    status: int
    #: The HTTP headers, in order, as (name, value); bytes beyond ASCII are Latin-1.
    headers: Pairs
    body: bytes
    #: The time when it was fetched, in UTC.
    at: datetime
    #: Its address instead of the URL; None: the URL is its address.
    key: bytes | None = None
    #: Further named fields of its WARC record.
    fields: Pairs = ()

    @property
    def address(self) -> str | bytes:
        """The address for ``get``: its key, or else its URL. A key that is a URL comes as str."""
        return self.url if self.key is None else address_of(self.key)

    def header(self, name: str) -> str | None:
        """Return the first header of this name, in upper or lower case; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def decoded(self) -> bytes:
        """Return the body without its Content-Encoding, as a browser shows it. Ignore "gzip" and "zstd" if the body has no such start.

        The result may be a thousand times as long as the body: be careful with pages that you don't trust.

        :raises TBloomError: if the encoding is none of gzip, deflate, br and zstd, or the body is not encoded so, or is cut.
        """
        codings = codings_in(self.headers)
        return (
            decoded(self.body, codings) if self.body and may_have(self.body, codings) else self.body
        )


def checked(page: Page) -> Page:
    """Return the page as it is stored. Raise ConfigError if an argument is wrong."""
    if not isinstance(page, Page):
        raise ConfigError("pages", page, "objects of the class tbloom.pages.Page")
    url, body, status, key = page.url, page.body, page.status, page.key
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise ConfigError("url", url, "an http:// or https:// URL without spaces")
    encode(url, "url")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise ConfigError("body", body, "bytes")
    body = bytes(body)
    if len(body) > MAX_BYTES:
        raise ConfigError("body", f"{len(body)} bytes", f"at most {MAX_BYTES} bytes")
    if not isinstance(status, int) or isinstance(status, bool) or status not in _STATUSES:
        raise ConfigError("status", status, "a whole number from 100 to 999")
    headers = _pairs("headers", page.headers, "Latin-1")
    if check_at(page.at) is None:
        raise ConfigError("at", page.at, "a datetime with a time zone")
    given = None if key is None else encode(key, "key")
    if given == url.encode():
        given = None
    fields = _checked_fields(page.fields)
    size = len(url.encode()) + 2 * len(given or b"")  # the key is stored in hex
    size += sum([len(name) + len(value) for name, value in headers])
    size += sum([len(name) + len(value.encode()) for name, value in fields])
    if size > MAX_HEAD_BYTES:
        expected = f"at most {MAX_HEAD_BYTES} bytes, together with the key, headers and fields"
        raise ConfigError("url", f"{size} bytes", expected)
    return Page(url, status, headers, body, page.at.astimezone(UTC), given, fields)


def address_of(key: bytes) -> str | bytes:
    """Return the key, as str if it is a URL."""
    text = key.decode(errors="replace")
    return text if _URL.fullmatch(text) and text.encode() == key else key


@lru_cache(1000)
def is_reserved(name: str) -> bool:
    """Return True if a page can't have a field of this name."""
    return _RESERVED.fullmatch(name) is not None


def header_matches_body(name: str, value: str, body: bytes) -> bool:
    """Return False if the header describes another encoding or length than the stored body has."""
    known = name.lower()
    if known == "content-encoding":
        return may_have(body, codings_in([(name, value)]))
    if known == "content-length":
        return value == str(len(body))
    return known != "transfer-encoding"  # bodies are stored without it


def bytes_of(page: Page) -> int:
    """Return the bytes that a page takes in memory, at least."""
    texts = [text for pair in (*page.headers, *page.fields) for text in pair]
    return len(page.body) + sum(map(len, texts)) + _TEXT_BYTES * (len(texts) + 1)


def micros(at: datetime) -> int:
    """Return microseconds since the epoch."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def fingerprint_of(address: Item) -> bytes:
    """Return the key of an address in the index: 16 bytes of its BLAKE2b."""
    return fingerprint(encode(address, "url")).to_bytes(16, "big")


def _pairs(argument: str, given: Any, encoding: str) -> Pairs:
    if given is None:
        return ()
    expected = "a mapping, or (name, value) pairs, of str or bytes"
    try:
        items = [*(given.items() if isinstance(given, Mapping) else given)]
        found = tuple([(_text(name, encoding), _text(value, encoding)) for name, value in items])
    except UnicodeEncodeError as error:
        raise ConfigError(argument, error.object, f"{encoding} text, or bytes") from None
    except (TypeError, ValueError):
        raise ConfigError(argument, given, expected) from None
    for name, value in found:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            expected = "a name without colons and line breaks, and a value without line breaks"
            raise ConfigError(argument, (name, value), expected)
    return found


def as_url(url: str) -> str:
    """Return a URL in the form that a page may have: scheme in lower case, spaces and control characters quoted."""
    scheme, colon, rest = url.partition(":")
    return scheme.lower() + colon + _NOT_IN_URL.sub(lambda found: quote(found[0]), rest)


def as_headers(pairs: Pairs) -> Pairs:
    """Return the HTTP headers that a page may have."""
    return tuple(pair for pair in pairs if _NAME.fullmatch(pair[0]) and _VALUE.fullmatch(pair[1]))


def as_fields(pairs: Pairs) -> Pairs:
    """Return the fields that a page may have."""
    return tuple(pair for pair in pairs if _fault(*pair) is None)


def _checked_fields(fields: Headers | None) -> Pairs:
    """Return the user's fields of a record. Raise ConfigError if one is wrong."""
    pairs = _pairs("fields", fields, "UTF-8")
    for name, value in pairs:
        if (fault := _fault(name, value)) is not None:
            raise ConfigError("fields", *fault)
    return pairs


def _fault(name: str, value: str) -> tuple[object, str] | None:
    """Return the wrong part of a field and what it should be; None if the field is right."""
    if not _is_token(name):
        return name, "a name of letters, digits, and !#$%&'*+-.^_`|~"
    if is_reserved(name):
        return name, "no field that the store writes itself, or that a page's record can't have"
    if not value or not _VALUE.fullmatch(value):
        return (name, value), "text without line breaks that is not empty"
    return None


@lru_cache(1000)
def _is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _text(text: str | bytes, encoding: str) -> str:
    """Return a name or value as str, without the space around it."""
    if isinstance(text, bytes):
        text = text.decode(encoding)
    elif not isinstance(text, str):
        raise TypeError
    elif not text.isascii():
        text.encode(encoding)
    return text.strip(" \t")
