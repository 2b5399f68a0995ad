"""What a crawl does while Redis does not answer (``TBLOOM_ON_ERROR``)."""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from redis import RedisError

from tbloom import Claim, LocalBloom
from tbloom.engine.retries import is_outage
from tbloom.errors import TBloomError
from tbloom.scrapy.settings import ON_ERROR
from tbloom.scrapy.stores import CircuitBreaker, CrawlBloom, CrawlExact

logger: logging.Logger = logging.getLogger(__name__)

#: What happens during an outage.
_EFFECTS = {
    "raise": "the crawl ends",
    "schedule": "this crawler decides by itself meanwhile",
    "drop": "requests count as seen meanwhile",
}
#: Limit for the requests that a crawler remembers for an outage; beyond it, the oldest are forgotten.
MAX_ASKED = 100_000


class Guess(Enum):
    """What is decided without the server's answer; the value is its stat, after ``tbloom/``."""

    SCHEDULED = "errors/scheduled"
    DROPPED = "errors/dropped"


#: The answer for a request.
Answer = Claim | Guess
#: The answers with which it is fetched.
NEW = (Claim.NEW, Guess.SCHEDULED)


class Answers:
    """Asks a crawl's store for requests, in batches; the policy answers where the server does not.

    With "schedule", a request is new unless this crawler has asked for it; the server gets it before it is asked again.
    """

    def __init__(self, seen: CrawlBloom | CrawlExact | LocalBloom, on_error: str = "raise") -> None:
        self.seen: CrawlBloom | CrawlExact | LocalBloom = seen
        self.on_error: str = on_error
        #: A local store always answers.
        self.circuit: CircuitBreaker = (
            CircuitBreaker("") if isinstance(seen, LocalBloom) else seen.circuit
        )
        hint = "; with 'schedule' it goes on" if on_error == "raise" else ""
        self.circuit.effect = f"{_EFFECTS[on_error]} ({ON_ERROR.name} = {on_error!r}{hint})"
        #: With "schedule": what this process has asked for, oldest first.
        self._asked = OrderedDict[bytes, None]()
        #: What the server does not know yet: the note of its claim, if it is claimed, and the arguments of ``add``.
        self._unsent: dict[bytes, tuple[str | None, tuple[tuple[str, Any], ...]]] = {}

    def ask(self, items: list[bytes], notes: list[str] | None = None, **given: Any) -> list[Answer]:
        """The answers for the items; those that are new are remembered, or claimed where there are ``notes``.

        Raises redis-py's errors where no policy decides.
        """
        try:
            self._hand_over()
            answers = self._ask(items, notes, given)
        except RedisError as error:
            if self.on_error == "raise" or not is_outage(error):
                raise
            if given.pop("previous_owner", None):  # only the server knows who has it now
                self.forget(items)
            each: list[str | None] = [*notes] if notes else [None] * len(items)
            return [self._decide(item, note, given) for item, note in zip(items, each, strict=True)]
        for item, answer in zip(items, answers, strict=True):
            if answer is not Claim.BUSY:
                self._remember(item)
        return answers

    def forget(self, items: Iterable[bytes]) -> None:
        """The items were released: they are new if they are asked for again."""
        for item in items:
            self._asked.pop(item, None)
            self._unsent.pop(item, None)

    def close(self) -> None:
        """After an outage, tries the server once more, and gives it what it does not know. Closes the store and its client."""
        if self._unsent:
            self.circuit.try_again()
        try:
            self._hand_over()
        except (RedisError, TBloomError) as error:
            message = "filter %r: what this crawler has scheduled meanwhile is new to others: %s"
            logger.warning(message, self.seen.name, error)
        self.seen.close()
        if not isinstance(self.seen, LocalBloom):
            self.seen.client.close()

    def _ask(
        self, items: list[bytes], notes: list[str] | None, given: dict[str, Any]
    ) -> list[Answer]:
        if notes is not None and isinstance(self.seen, CrawlBloom):
            return [*self.seen.claim_many(items, notes=notes, **given)]
        return [
            Claim.NEW if is_new else Claim.SEEN for is_new in self.seen.add_many(items, **given)
        ]

    def _decide(self, item: bytes, note: str | None, given: dict[str, Any]) -> Answer:
        """The answer without the server."""
        if item in self._asked:
            return Claim.SEEN
        if self.on_error == "drop":
            return Guess.DROPPED
        assert not isinstance(self.seen, LocalBloom)  # noqa: S101 - it always answers
        self.seen.assume_new([item])
        self._remember(item)
        self._unsent[item] = note, () if note is not None else tuple(given.items())
        return Guess.SCHEDULED

    def _remember(self, item: bytes) -> None:
        if self.on_error == "schedule":
            self._asked[item] = None
            self._asked.move_to_end(item)
            if len(self._asked) > MAX_ASKED:
                self._asked.popitem(last=False)

    def _hand_over(self) -> None:
        """Gives the server what was scheduled without it, if it may be asked."""
        if not self._unsent or self.circuit.holds_off:
            return
        groups = defaultdict[tuple[tuple[str, Any], ...], list[bytes]](list)
        for item, (_, given) in self._unsent.items():
            groups[given].append(item)
        for given, items in groups.items():
            notes = [note for item in items if (note := self._unsent[item][0]) is not None]
            # This process works on what it claims, whatever the answer is.
            owner = self.seen.session if notes and isinstance(self.seen, CrawlBloom) else None
            own = {"previous_owner": owner} if owner else dict(given)
            self._ask(items, notes or None, own)
        self._unsent.clear()
