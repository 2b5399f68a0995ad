"""Requests that perhaps another process has put into the queue: this one fetches them once their claims are its own."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tbloom.scrapy.claims.token import Token
from tbloom.scrapy.compat import look_again
from tbloom.scrapy.notes import NotNotable
from tbloom.scrapy.outage import NEW, Answer

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.claims.claimant import Claimant


class Adoption:
    """Claims requests that come out of a shared queue, or of an earlier run's, in the place of the session that had put them there."""

    def __init__(
        self,
        claimant: Claimant,
        drop: Callable[[Request], object],
        put_back: Callable[[Request], object],
        fail: Callable[[Exception], object],
    ) -> None:
        self._claimant, self._crawl = claimant, claimant.crawl
        self._drop, self._put_request_back, self._fail = drop, put_back, fail
        self._most = max(1, self._crawl.crawler.settings.getint("CONCURRENT_REQUESTS"))
        self._waiting: list[tuple[Request, Token]] = []
        self._asked: list[tuple[Request, Token]] = []
        self._adopted: deque[tuple[Request, Token]] = deque()

    @property
    def is_pending(self) -> bool:
        """Some are out of the queue, and not fetched yet."""
        return bool(self._waiting or self._asked or self._adopted)

    def next(self) -> tuple[Request, Token] | None:
        """A request that may be fetched."""
        return self._adopted.popleft() if self._adopted else None

    def add(self, request: Request, token: Token) -> bool:
        """Adds a request to those that wait; False: they are enough."""
        self._waiting.append((request, token))
        return len(self._waiting) + len(self._asked) < self._most

    def ask(self) -> None:
        """Claims those that wait, in one call."""
        if self._waiting and not self._asked:
            self._asked, self._waiting = self._waiting, []
            self._crawl.calls.begin(self._claim, self._have_answers)

    async def close(self) -> None:
        """Puts back what was not fetched."""
        while self._asked:
            await self._crawl.calls.run(lambda: None)
        while (adopted := self.next()) is not None:
            self._put_back(*adopted)
        for request, token in self._waiting:
            self._put_back(request, token)
        self._waiting = []

    def _claim(self) -> list[Answer]:
        """The answers for the requests, by the first items of their tokens."""
        by_owner = defaultdict[str, list[int]](list)
        for at, (_, token) in enumerate(self._asked):
            by_owner[token.session].append(at)
        answers = dict[int, Answer]()
        for owner, places in by_owner.items():
            items, notes, firsts = list[bytes](), list[str](), list[int]()
            for at in places:
                request, token = self._asked[at]
                firsts.append(len(items))
                items += token.items
                notes += [self._note(request, token)] + [""] * (len(token.items) - 1)
            asked = self._crawl.answers.ask(items, notes, previous_owner=owner)
            answers |= {at: asked[first] for at, first in zip(places, firsts, strict=True)}
        return [answers[at] for at in range(len(self._asked))]

    def _note(self, request: Request, token: Token) -> str:
        deaths = 0 if token.deaths is None else token.deaths + 1
        try:
            return self._claimant.note(request, token.fingerprints, deaths)
        except NotNotable:
            return ""

    def _have_answers(self, claimed: Future[list[Answer]]) -> None:
        asked, self._asked = self._asked, []
        try:
            answers = claimed.result()
        except Exception as error:  # noqa: BLE001 - the log has it
            self._fail(error)
            for request, token in asked:
                self._put_back(request, token)
            return
        for (request, token), answer in zip(asked, answers, strict=True):
            if answer in NEW:
                own = token
                if token.session != self._claimant.seen.session:
                    own = self._claimant.token(token.fingerprints, token.deaths)
                own.write(request)
                self._adopted.append((request, own))
            else:
                self._drop(request)
        self.ask()
        look_again(self._crawl.crawler.engine)

    def _put_back(self, request: Request, token: Token) -> None:
        self._put_request_back(request)
        if token.session == self._claimant.seen.session:
            self._claimant.hand_over(token)
