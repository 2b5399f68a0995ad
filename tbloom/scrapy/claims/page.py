"""A page in work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbloom.scrapy.claims.states import State

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.claims.token import Token


class Page:
    """A request between ``next_request`` and its end, known by the object that is passed on."""

    __slots__ = (
        "doubt", "failed", "inside", "items", "note", "places", "request", "retry", "state", "thing", "token",
    )  # fmt: skip

    def __init__(self, token: Token, request: Request, note: str) -> None:
        self.token, self.state = token, State.QUEUED
        #: The request that came out of the queue, and its note as it was then.
        self.request, self.note = request, note
        #: The Request, Response or exception that is passed on now. (It is held, so that no other object gets its id.)
        self.thing: Any = request
        #: The number of items in the pipelines, with a retry that the engine has not scheduled yet.
        self.items = 0
        #: How many of our generators its output runs through.
        self.inside = 0
        #: Where its items wait that have passed the pipelines.
        self.places = set[object]()
        #: Why it has failed; and why it fails unless a retry makes it good. Both are stats, after ``tbloom/left/``.
        self.failed = self.doubt = ""
        #: The request with which a callback or errback asks for it again: queued once this page has ended.
        self.retry: Request | None = None


def reason(error: BaseException) -> str:
    """Why a page has failed whose callback raised this."""
    return f"callback/{type(error).__name__}"
