"""A page in its three forms: a token in the meta of a queued request, for queues of any kind; a note on Redis, from which
another crawler restores the request; and an object, while it is in work."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from scrapy import Request, Spider
from scrapy.http import Response

from tbloom.scrapy.claims.states import State
from tbloom.scrapy.settings import CLAIM

#: The kinds of notes: of a request that is queued or running, which any crawler takes over once its own has died; and of
#: a page that has failed, which the next crawl takes over as it begins.
RUNNING, LEFT = "running", "left"
#: Where Scrapy counts the retries of one attempt.
RETRIES = "retry_times"

_TOKEN = re.compile(r"([0-9a-f]+) (\d{1,18}) (\d{1,9})((?: (?:[0-9a-f]{2})+)+)", re.ASCII)


class Token(NamedTuple):
    """The session that holds the page's claims, its number there, and the fingerprints of all its URLs so far."""

    session: str
    number: int
    fingerprints: tuple[str, ...]
    #: How many crawlers have died of it, if one dies while it works on it; 0 if none has taken it over.
    deaths: int = 0

    @classmethod
    def read(cls, text: Any) -> Self | None:
        """The token that a text holds; None if it is no valid one: other programs may write to a queue."""
        form = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        session, number, deaths, fingerprints = form.groups()
        return cls(session, int(number), (*fingerprints.split(),), int(deaths))

    @classmethod
    def of(cls, request: Request) -> Self | None:
        """The request's token, if it carries one."""
        return cls.read(request.meta.get(CLAIM))

    def text(self) -> str:
        """The token as a text, which takes a third of a list's memory."""
        return " ".join(map(str, [self.session, self.number, self.deaths, *self.fingerprints]))

    def write(self, request: Request) -> None:
        """Writes the token into the request's meta."""
        request.meta[CLAIM] = self.text()

    @property
    def in_queue(self) -> Self:
        """The token for the note of a queued request, of which no crawler dies."""
        return self._replace(deaths=self.deaths - 1) if self.deaths else self

    @property
    def items(self) -> list[bytes]:
        """The fingerprints as items of the filter."""
        return [bytes.fromhex(fingerprint) for fingerprint in self.fingerprints]


class Note(NamedTuple):
    """What Redis keeps of a page: its token, where ``deaths`` counts if its crawler dies now, and its request as a text."""

    token: Token
    request: str

    @classmethod
    def read(cls, text: str) -> Self:
        """The note that the text holds. Raises ValueError if it holds none."""
        _, head, request = [*text.split("\n", 2), "", ""][:3]
        token = Token.read(head)
        if token is None:
            raise ValueError(f"not a note: {text[:100]!r}")
        return cls(token, request)

    def text(self, spider: Spider, kind: str = RUNNING) -> str:
        """The text that Redis keeps."""
        return f"{prefix(spider, kind)}{self.token.text()}\n{self.request}"


def prefix(spider: Spider, kind: str = RUNNING) -> str:
    """The beginning of a spider's notes of a kind; another spider has other callbacks."""
    return f"{kind} {spider.name}\n"


def without(key: str, request: Request) -> Request:
    """The request, or a copy without this key in its meta: the original may be in a queue."""
    if key not in request.meta:
        return request
    return request.replace(meta={k: v for k, v in request.meta.items() if k != key})


@dataclass(slots=True, eq=False)
class Page:
    """A request between ``next_request`` and its end, known by the object that is passed on."""

    token: Token
    #: The request that came out of the queue, and its note as it was then.
    request: Request
    note: str
    state: State = State.QUEUED
    #: The Request, Response or exception that is passed on now. (It is held, so that no other object gets its id.)
    thing: Any = None
    #: The number of items in the pipelines, and of links and a retry that the engine has not scheduled yet.
    items: int = 0
    #: How many of our generators its output runs through.
    inside: int = 0
    #: Where its items wait that have passed the pipelines.
    places: set[object] = field(default_factory=set)
    #: Why it has failed; and why it fails unless a retry makes it good. Both are stats, after ``tbloom/left/``.
    failed: str = ""
    would_fail: str = ""
    #: The request with which a callback or errback asks for it again: queued once this page has ended.
    retry: Request | None = None


def is_retry(page: Page, request: Request) -> bool:
    """Whether its callback asks for the page again (``get_retry_request``, or the same request by hand): else the token came with
    a copied meta."""
    token = Token.of(request)
    if token is None or token[:2] != page.token[:2] or not request.dont_filter:
        return False
    last: Any = page.thing.request if isinstance(page.thing, Response) else page.request
    is_later = request.meta.get(RETRIES, 0) > last.meta.get(RETRIES, 0)
    is_same = (request.url, request.method, request.body) == (last.url, last.method, last.body)
    return page.state is State.PARSING and (is_later or is_same)


def reason(error: BaseException | None) -> str:
    """Why a page has failed whose callback raised this."""
    return f"callback/{type(error).__name__}"


def pipeline_of(error: BaseException | None) -> str:
    """The name of the pipeline that has raised the exception."""
    trace = error.__traceback__ if error else None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "process_item" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__qualname__
        trace = trace.tb_next
    return type(error).__name__
