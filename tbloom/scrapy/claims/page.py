"""A page in work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tbloom.scrapy.claims.states import State

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.claims.token import Token


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
    #: The number of items in the pipelines, with a retry that the engine has not scheduled yet.
    items: int = 0
    #: How many of our generators its output runs through.
    inside: int = 0
    #: Where its items wait that have passed the pipelines.
    places: set[object] = field(default_factory=set)
    #: Why it has failed; and why it fails unless a retry makes it good. Both are stats, after ``tbloom/left/``.
    failed: str = ""
    doubt: str = ""
    #: The request with which a callback or errback asks for it again: queued once this page has ended.
    retry: Request | None = None


def reason(error: BaseException) -> str:
    """Why a page has failed whose callback raised this."""
    return f"callback/{type(error).__name__}"
