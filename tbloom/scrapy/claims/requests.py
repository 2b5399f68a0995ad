"""A claimed request: the claim that it carries in its meta, and the note from which another crawler restores it.

The claim goes through queues, retries and redirects as ``[session, number, fingerprint, ...]``, with the
fingerprints of all URLs of the request so far in hexadecimal, and ``deaths`` before them once the request has been
taken over. Redis keeps the note with the claim.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.utils.request import request_from_dict

from tbloom.scrapy.crawler import count, spider_of
from tbloom.scrapy.meta import CLAIM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from typing_extensions import Self

#: Limit for a note (bytes; it has ASCII characters only).
_MAX_NOTE = 1 << 16
_DEFAULTS = Request("data:,").to_dict()


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
    """The request's fingerprints, how many crawlers have died of it if its crawler dies now, and the request as JSON."""

    fingerprints: tuple[str, ...]
    deaths: int
    request: str

    @classmethod
    def of(
        cls, request: Request, fingerprints: tuple[str, ...], spider: Spider, deaths: int = 0
    ) -> Self | None:
        """The request's note, or None if JSON can't carry it.

        With pickle, a client that can write to Redis could run code here.
        """
        try:
            fields = request.to_dict(spider=spider)
            fields |= {
                "meta": {key: value for key, value in request.meta.items() if key != CLAIM},
                "body": request.body.decode("latin-1"),
                "headers": {
                    name.decode("latin-1"): [value.decode("latin-1") for value in values]
                    for name, values in request.headers.items()
                },
            }
            fields = {
                key: value for key, value in fields.items() if value and value != _DEFAULTS.get(key)
            }
            text = json.dumps(fields, separators=(",", ":"))
            # JSON turns tuples into lists and keys into str: that would restore another request.
            if json.loads(text) != fields:
                return None
        except (TypeError, ValueError, RecursionError):
            return None  # the callback is not the spider's, or a value has another type
        note = cls(fingerprints, deaths, text)
        return note if len(note.text(spider)) <= _MAX_NOTE else None

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
            fields = json.loads(self.request)
            kind = fields.get("_class")
            if kind is not None and kind not in {f"{c.__module__}.{c.__name__}" for c in _kinds()}:
                raise ValueError(f"this spider knows no such class of requests: {kind!r}")
            fields["body"] = fields.get("body", "").encode("latin-1")
            fields["headers"] = {
                name.encode("latin-1"): [value.encode("latin-1") for value in values]
                for name, values in fields.get("headers", {}).items()
            }
            return request_from_dict(fields, spider=spider)
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"not a request: {error}") from None


def note_text(
    crawler: Crawler, request: Request, fingerprints: tuple[str, ...], deaths: int = 0
) -> str:
    """The text of the request's note; empty if JSON can't carry it."""
    spider = spider_of(crawler)
    note = Note.of(request, fingerprints, spider, deaths)
    if note is None:
        count(crawler, "tbloom/not_noted")
    return note.text(spider) if note else ""


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
