"""The token by which a queued request is known as a page: a text in its meta, for queues of any kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tbloom.scrapy.meta import CLAIM

if TYPE_CHECKING:
    from scrapy import Request
    from typing_extensions import Self

_FORM = re.compile(r"([0-9a-f]+) (\d{1,18}) (\d{1,9}|-)((?: (?:[0-9a-f]{2})+)+)")

_FINGERPRINT = re.compile("(?:[0-9a-f]{2})+")


class Token(NamedTuple):
    """The session that holds the page's claims, its number there, and the fingerprints of all its URLs so far."""

    session: str
    number: int
    fingerprints: tuple[str, ...]
    #: How many crawlers have died while they worked on it; None if none has taken it over.
    deaths: int | None = None

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """The request's token; None if it carries no valid one: other programs may write to a queue."""
        text = request.meta.get(CLAIM)
        form = _FORM.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        session, number, deaths, fingerprints = form.groups()
        known = None if deaths == "-" else int(deaths)
        return cls(session, int(number), (*fingerprints.split(),), known)

    def write(self, request: Request) -> None:
        """Writes the token into the request's meta. (A text takes a third of a list's memory.)"""
        deaths = "-" if self.deaths is None else self.deaths
        request.meta[CLAIM] = f"{self.session} {self.number} {deaths} {' '.join(self.fingerprints)}"

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


def are_fingerprints(texts: list[str]) -> bool:
    """Whether each text is a fingerprint in hexadecimal, and there is one."""
    return bool(texts) and all(_FINGERPRINT.fullmatch(text) for text in texts)


def without_token(request: Request) -> Request:
    """The request, or a copy without the token that came with a copied meta: the original may be in a queue."""
    if CLAIM not in request.meta:
        return request
    return request.replace(meta={k: v for k, v in request.meta.items() if k != CLAIM})
