"""A claimed request: the claim that it carries in its meta, and the note from which another crawler restores it.

The claim goes through queues, retries and redirects as ``[session, number, fingerprint, ...]``, with the
fingerprints of all URLs of the request so far in hexadecimal, and ``deaths`` before them once the request has been
taken over. Redis keeps the note with the claim.
"""

from __future__ import annotations

import re
from ast import literal_eval
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.utils.request import request_from_dict

from tbloom.scrapy.crawler import count, spider_of
from tbloom.scrapy.meta import CLAIM
from tbloom.scrapy.settings import TAKE_OVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from typing_extensions import Self

#: Limit for a note (bytes; it has ASCII characters only).
_MAX_NOTE = 1 << 16
_DEFAULTS = Request("data:,").to_dict()
#: What ``literal_eval`` raises for a text that is no literal.
_NO_LITERAL = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)


class RequestClaim(NamedTuple):
    """The claim that a request carries: the session that holds it, its number there, and its URLs."""

    session: str
    number: int
    fingerprints: tuple[str, ...]
    #: How many crawlers died while they worked on it; None if none has taken it over.
    deaths: int | None = None

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """The request's claim, if it carries a valid one: other programs may write to a queue."""
        value = request.meta.get(CLAIM)
        if not isinstance(value, list) or len(value) <= cls._fields.index("fingerprints"):
            return None
        session, number, *fingerprints = value
        if not isinstance(session, str) or not isinstance(number, int):
            return None
        deaths = fingerprints.pop(0) if isinstance(fingerprints[0], int) else None
        claim = cls(session, number, tuple(fingerprints), deaths)
        return claim if _are_hex(fingerprints) else None

    def write(self, request: Request) -> None:
        """Writes the claim into the request's meta."""
        deaths = [] if self.deaths is None else [self.deaths]
        request.meta[CLAIM] = [self.session, self.number, *deaths, *self.fingerprints]

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


class Note(NamedTuple):
    """The request's fingerprints, how many crawlers have died of it if its crawler dies now, and the request as a literal."""

    fingerprints: tuple[str, ...]
    deaths: int
    request: str

    @classmethod
    def read(cls, text: str, spider: Spider) -> Self:
        """The note that the text holds. Raises ValueError if it holds none."""
        head, _, request = text.removeprefix(prefix(spider)).partition("\n")
        deaths, *fingerprints = head.split(" ")
        if not deaths.isdecimal() or not _are_hex(fingerprints):
            raise ValueError(f"not a note: {text[:100]!r}")
        return cls(tuple(fingerprints), int(deaths), request)

    def text(self, spider: Spider) -> str:
        """The text that Redis keeps."""
        return f"{prefix(spider)}{self.deaths} {' '.join(self.fingerprints)}\n{self.request}"

    def restore(self, spider: Spider) -> Request:
        """The request of the note. Raises ValueError if it can't be restored."""
        try:
            fields = literal_eval(self.request)
            kind = fields.get("_class")
            if kind is not None and kind not in {f"{c.__module__}.{c.__name__}" for c in _kinds()}:
                raise ValueError(f"this spider knows no such class of requests: {kind!r}")
            return request_from_dict(fields, spider=spider)
        except (*_NO_LITERAL, AttributeError, KeyError) as error:
            raise ValueError(f"not a request: {error}") from None


def note_text(
    crawler: Crawler, request: Request, fingerprints: tuple[str, ...], deaths: int = 0
) -> str:
    """The text of the request's note; empty if none is wanted, if it is too long, or if a literal can't carry it.

    With pickle, a client that can write to Redis could run code here.
    """
    spider = spider_of(crawler)
    if not TAKE_OVER.is_on(crawler.settings, default=True):
        return ""
    try:
        fields: dict[str, Any] = request.to_dict(spider=spider)
        fields["meta"] = {key: value for key, value in request.meta.items() if key != CLAIM}
        request_text = ascii({k: v for k, v in fields.items() if v and v != _DEFAULTS.get(k)})
        literal_eval(request_text)
        text = Note(fingerprints, deaths, request_text).text(spider)
    except _NO_LITERAL:  # the callback is not the spider's, or a value has another type
        text = ""
    if not text or len(text) > _MAX_NOTE:
        count(crawler, "tbloom/not_noted")
        return ""
    return text


def prefix(spider: Spider) -> str:
    """The beginning of the notes of a spider; another spider has other callbacks."""
    return f"{spider.name}\n"


def _are_hex(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(value, str) and re.fullmatch("(?:[0-9a-f]{2})+", value) for value in values
    )


def _kinds(of: type[Request] = Request) -> Iterator[type[Any]]:
    """Request and all of its subclasses that have been imported."""
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
