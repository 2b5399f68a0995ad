"""A page in work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbloom.scrapy.claims.states import State

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.claims.feeds import Place
    from tbloom.scrapy.claims.token import Token


class Page:
    """A request between ``next_request`` and its end, known by the object that is passed on."""

    __slots__ = (
        "doubt", "failed", "inside", "items", "note", "places", "request", "retried", "state", "thing", "token",
    )  # fmt: skip

    def __init__(self, token: Token, request: Request, note: str) -> None:
        self.token, self.state = token, State.QUEUED
        #: The request that came out of the queue, and its note as it was then.
        self.request, self.note = request, note
        #: The Request, Response or exception that is passed on now. (It is held, so that no other object gets its id.)
        self.thing: Any = request
        #: The number of items in the pipelines, with retries that are not queued yet.
        self.items = 0
        #: How many generators and coroutines of ours its output runs through.
        self.inside = 0
        #: Where its items wait that have passed the pipelines.
        self.places: set[Place] = set()
        #: Why it has failed; and why it fails unless a retry makes it good. Both are stats, after ``tbloom/left/``.
        self.failed = self.doubt = ""
        #: A callback has asked for it again, and the retry is in the queue.
        self.retried = False

    @property
    def first(self) -> str:
        """The fingerprint of its first URL."""
        return self.token.fingerprints[0]
