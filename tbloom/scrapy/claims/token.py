"""What is written of a request that is claimed: a token in its meta, for queues of any kind, and a note on Redis, from which
another crawler restores it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tbloom.scrapy.meta import CLAIM
from tbloom.scrapy.notes import note_request, restore_request

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from typing_extensions import Self

#: The kinds of notes: of a request that is queued or running, which any crawler takes over once its own has died; and of
#: a page that has failed, which the next crawl takes over as it begins.
RUNNING, LEFT = "running", "left"

_DEATHS = re.compile(r"(\d{1,9})((?: (?:[0-9a-f]{2})+)+)", re.ASCII)
_TOKEN = re.compile(rf"([0-9a-f]+) (\d{{1,18}}) {_DEATHS.pattern}", re.ASCII)


class Token(NamedTuple):
    """The session that holds the page's claims, its number there, and the fingerprints of all its URLs so far."""

    session: str
    number: int
    fingerprints: tuple[str, ...]
    #: How many crawlers have died of it, if one dies while it works on it; 0 if none has taken it over.
    deaths: int = 0

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """The request's token; None if it carries no valid one: other programs may write to a queue."""
        text = request.meta.get(CLAIM)
        form = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        session, number, deaths, fingerprints = form.groups()
        return cls(session, int(number), (*fingerprints.split(),), int(deaths))

    def write(self, request: Request) -> None:
        """Writes the token into the request's meta. (A text takes a third of a list's memory.)"""
        words = [self.session, self.number, self.deaths, *self.fingerprints]
        request.meta[CLAIM] = " ".join(map(str, words))

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


class Note(NamedTuple):
    """The request's fingerprints, how many crawlers have died of it if its crawler dies now, and the request as a text."""

    fingerprints: tuple[str, ...]
    deaths: int
    request: str

    @classmethod
    def of(cls, request: Request, token: Token, spider: Spider) -> Self:
        """The note of a request in work. Raises NotNotable."""
        return cls(token.fingerprints, token.deaths, note_request(request, spider))

    @classmethod
    def read(cls, text: str) -> Self:
        """The note that the text holds. Raises ValueError if it holds none."""
        _, head, request = [*text.split("\n", 2), "", ""][:3]
        form = _DEATHS.fullmatch(head)
        if form is None:
            raise ValueError(f"not a note: {text[:100]!r}")
        return cls((*form[2].split(),), int(form[1]), request)

    def text(self, spider: Spider, kind: str = RUNNING) -> str:
        """The text that Redis keeps."""
        return f"{prefix(spider, kind)}{self.deaths} {' '.join(self.fingerprints)}\n{self.request}"

    def restore(self, spider: Spider) -> Request:
        """The request of the note. Raises ValueError if it can't be restored."""
        return restore_request(self.request, spider)


def prefix(spider: Spider, kind: str = RUNNING) -> str:
    """The beginning of a spider's notes of a kind; another spider has other callbacks."""
    return f"{kind} {spider.name}\n"


def without_token(request: Request) -> Request:
    """The request, or a copy without the token that came with a copied meta: the original may be in a queue."""
    if CLAIM not in request.meta:
        return request
    return request.replace(meta={k: v for k, v in request.meta.items() if k != CLAIM})
