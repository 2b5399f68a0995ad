"""What a request carries, and keeps in Redis, while it is claimed.

In its meta, through queues, retries and redirects: ``[session, number, fingerprint, ...]``, the
fingerprints of all of its URLs so far, in hexadecimal. In Redis, as the claim's note, what another
crawler needs to go on with it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider
    from typing_extensions import Self

#: Where a request's meta says within how many slices it counts as seen, for how long (s) it does so from now on
#: (in an exact store), and where it carries its claim.
WITHIN = "tbloom_within"
TTL_META = "tbloom_ttl"
CLAIM = "tbloom_claim"
#: In bytes, and so in characters.
_LONGEST_NOTE = 1 << 16
_DEFAULTS = Request("data:,").to_dict()


class Carried(NamedTuple):
    """The claim that a request carries: who claimed it, in which place of its own count, and its URLs."""

    session: str
    number: int
    fingerprints: tuple[str, ...]

    @classmethod
    def by(cls, request: Request) -> Self | None:
        """The request's, if it has one: a queue may have been written by others."""
        value = request.meta.get(CLAIM)
        if not isinstance(value, list) or len(value) <= cls._fields.index("fingerprints"):
            return None
        session, number, *fingerprints = value
        if not isinstance(session, str) or not isinstance(number, int):
            return None
        return cls(session, number, tuple(fingerprints)) if _are_hex(fingerprints) else None

    def write(self, request: Request) -> None:
        """Has the request carry it."""
        request.meta[CLAIM] = [self.session, self.number, *self.fingerprints]

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as the filter knows them."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


class Note(NamedTuple):
    """A note: the request's fingerprints, how often it was taken over, and the request as JSON."""

    fingerprints: tuple[str, ...]
    taken: int
    request: str

    @classmethod
    def of(cls, request: Request, fingerprints: tuple[str, ...], spider: Spider) -> Self | None:
        """The request's note; None if JSON can't carry it.

        JSON, not pickle: who can write to Redis must not be able to run code here.
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
            # JSON makes lists of tuples, and str of all keys: it would come back as another request.
            if json.loads(text) != fields:
                return None
        except (TypeError, ValueError, RecursionError):
            return None  # a callback that is not the spider's, or a value of any other type
        note = cls(fingerprints, 0, text)
        return note if len(note.text(spider)) <= _LONGEST_NOTE else None

    @classmethod
    def read(cls, text: str, spider: Spider) -> Self:
        """The note again. Raises ValueError where it is none."""
        head, _, request = text.removeprefix(prefix(spider)).partition("\n")
        taken, *fingerprints = head.split(" ")
        if not taken.isdecimal() or not _are_hex(fingerprints):
            raise ValueError(f"not a note: {text[:100]!r}")
        return cls(tuple(fingerprints), int(taken), request)

    def text(self, spider: Spider) -> str:
        """As it is kept."""
        return f"{prefix(spider)}{self.taken} {' '.join(self.fingerprints)}\n{self.request}"

    def restore(self, spider: Spider) -> Request:
        """The request again. Raises ValueError where that can't be."""
        try:
            fields = json.loads(self.request)
            kind = fields.get("_class")
            if kind is not None and kind not in {f"{c.__module__}.{c.__name__}" for c in _kinds()}:
                raise ValueError(f"no kind of request that this spider knows: {kind!r}")
            fields["body"] = fields.get("body", "").encode("latin-1")
            fields["headers"] = {
                name.encode("latin-1"): [value.encode("latin-1") for value in values]
                for name, values in fields.get("headers", {}).items()
            }
            return request_from_dict(fields, spider=spider)
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"not a request: {error}") from None


def prefix(spider: Spider) -> str:
    """How the notes of a spider's requests begin: another spider has other callbacks."""
    return f"{spider.name}\n"


def _are_hex(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(value, str) and re.fullmatch("(?:[0-9a-f]{2})+", value) for value in values
    )


def _kinds(of: type[Request] = Request) -> Iterator[type[Any]]:
    """Request, and all of its subclasses that have been imported."""
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
