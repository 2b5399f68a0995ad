"""The note that Redis keeps with a claim: from it, another crawler restores the request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tbloom.scrapy.claims.token import are_fingerprints
from tbloom.scrapy.notes import restore_request

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from typing_extensions import Self

#: The kinds of notes: of a request that is queued or running, which any crawler takes over once its own has died; and of
#: a page that has failed, which the next crawl takes over as it begins.
RUNNING, LEFT = "running", "left"


class Note(NamedTuple):
    """The request's fingerprints, how many crawlers have died of it if its crawler dies now, and the request as a text."""

    fingerprints: tuple[str, ...]
    deaths: int
    request: str

    @classmethod
    def read(cls, text: str) -> Self:
        """The note that the text holds. Raises ValueError if it holds none."""
        _, _, rest = text.partition("\n")
        head, _, request = rest.partition("\n")
        deaths, *fingerprints = head.split(" ")
        if not re.fullmatch(r"\d{1,9}", deaths, re.ASCII) or not are_fingerprints(fingerprints):
            raise ValueError(f"not a note: {text[:100]!r}")
        return cls((*fingerprints,), int(deaths), request)

    def text(self, spider: Spider, kind: str = RUNNING) -> str:
        """The text that Redis keeps."""
        return f"{prefix(spider, kind)}{self.deaths} {' '.join(self.fingerprints)}\n{self.request}"

    def restore(self, spider: Spider) -> Request:
        """The request of the note. Raises ValueError if it can't be restored."""
        return restore_request(self.request, spider)


def prefix(spider: Spider, kind: str = RUNNING) -> str:
    """The beginning of a spider's notes of a kind; another spider has other callbacks."""
    return f"{kind} {spider.name}\n"
