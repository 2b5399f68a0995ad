"""What a crawl does while Redis does not answer (``TBLOOM_ON_ERROR``).

The calls of its stores pass a circuit breaker, and ``Answers`` decides in place of the server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom import Claim, ExactFilter, LocalBloom, Note, TimeBloom
from tbloom.arguments import Item
from tbloom.bloom.claims.calls import Hosts
from tbloom.engine.flow import Flow
from tbloom.engine.retries import is_outage
from tbloom.engine.sync import SyncDriver
from tbloom.errors import ConfigMismatch, FilterFull, TBloomError
from tbloom.scrapy.compat import is_told_to_end
from tbloom.scrapy.done.local import CrawlLocal
from tbloom.scrapy.settings import ON_ERROR

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

#: The time between two tries of a server that does not answer (s).
HOLD_OFF = 10.0
#: Log phrases for errors of a server that answers.
_FAILS: dict[type[Exception], str] = {
    OutOfMemoryError: "refuses to write",
    ReadOnlyError: "refuses to write",
}
#: What happens during an outage.
_EFFECTS = {
    "raise": "the crawl ends",
    "schedule": "this crawler decides by itself meanwhile",
}
#: Limit for the requests that a crawler remembers for an outage; beyond it, the oldest are forgotten.
MAX_ASKED = 100_000


class CircuitBreaker:
    """Opens when a call fails. It then lets a call through every 10 seconds, and closes when that one is answered.

    The log has the beginning and the end of an outage.
    """

    def __init__(self, place: str) -> None:
        #: How the log names the server, and what it says that happens during an outage.
        self.place: str = place
        self.effect: str = "calls fail"
        #: Calls that ended in an error.
        self.errors: int = 0
        self._next_try: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last call ended in an error."""
        return self._next_try is not None

    @property
    def holds_off(self) -> bool:
        """Whether no call may be sent now."""
        next_try = self._next_try  # another thread may close the circuit meanwhile
        return next_try is not None and time.monotonic() < next_try

    def try_again(self) -> None:
        """Let the next call through."""
        if self.is_open:
            self._next_try = 0.0

    def worked(self) -> None:
        """Close the circuit: the server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("%s: the server answers again", self.place)

    def failed(self, error: Exception) -> None:
        """Count an error, and open the circuit."""
        self.errors += 1
        if self._next_try is None:
            does = _FAILS.get(type(error), "does not answer")
            logger.error("%s: the server %s, so %s: %s", self.place, does, self.effect, error)
        self._next_try = time.monotonic() + HOLD_OFF


class CrawlStore(SyncDriver):
    """A store that does not wait for a server that is away. A call for one item passes no circuit breaker: ask for many."""

    _heartbeat: threading.Thread | None = None

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.circuit: CircuitBreaker = CircuitBreaker(f"filter {self.name!r}")

    def run(self, flow: Flow[T]) -> T:
        """See ``SyncDriver.run``; raise ConnectionError while the circuit is open."""
        if threading.current_thread() is self._heartbeat:  # is always sent, and decides nothing
            return super().run(flow)
        if self.circuit.holds_off:
            try:
                next(flow)
            except StopIteration as stop:  # it needs no server
                done: T = stop.value
                return done
            finally:
                flow.close()  # it notes that its calls were not sent
            raise RedisConnectionError("the server did not answer, and is not tried again yet")
        try:
            answer = super().run(flow)
        except RedisError as error:
            if is_outage(error):
                self.circuit.failed(error)
            else:
                self.circuit.worked()
            raise
        except (FilterFull, ConfigMismatch):  # answers too
            self.circuit.worked()
            raise
        self.circuit.worked()
        return answer

    def retry_seconds(self) -> float:
        """Return 0 during an outage, or when Scrapy is to end."""
        is_waited_for = not self.circuit.is_open and not is_told_to_end()
        return super().retry_seconds() if is_waited_for else 0.0


class CrawlExact(CrawlStore, ExactFilter):
    """A crawl's ``ExactFilter``."""

    @property
    def lasts_ms(self) -> int:
        """How long an item is remembered by default."""
        return self._ttl


class CrawlBloom(CrawlStore, TimeBloom):
    """A crawl's ``TimeBloom``."""

    #: Claims can be kept with a note, from which another process takes the work over.
    keeps_notes = True

    def known(self, item: Item) -> Claim | None:
        """Return the answer for the item that needs no server, if there is one."""
        digest = self.config.digest(item)
        if self._claims.session.owns(digest):
            return Claim.BUSY
        return Claim.SEEN if self._is_cached(digest, self.config.slices) else None

    def uncommitted(self, items: Iterable[bytes]) -> set[bytes]:
        """Return the items whose commits have failed so far. Heartbeats and ``close`` repeat these commits."""
        digests = self._claims.uncommitted
        return {item for item in items if self.config.digest(item) in digests}

    def note_again(self, notes: dict[bytes, Note], within: int | None = None) -> None:
        """Give items that this process has claimed, within as many slices, other notes. It works on them, whatever the answers are."""
        try:
            self.claim_many([*notes], within, [*notes.values()], again=True)
        except RedisError:
            self.assume_new(notes)
            raise

    @property
    def taken_over(self) -> int:
        """How many items of this session were committed after others had taken them over."""
        return len(self._claims.taken_over)

    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> list[bool]:
        """See ``TimeBloom.commit_many``. Items that are kept for the whole window go into the local cache, so links to them need no server."""
        items, view = list(items), self._dispatcher.current_view()
        answers = super().commit_many(items, keep)
        if keep is None:
            self._cache_seen(self.config.digests_of(items), view)
        return answers

    def _warn_of_taken_over(self) -> None:
        """Do nothing: the crawl's report warns once."""

    def give(self, hosts: Hosts, items: list[bytes]) -> None:
        """Leave items to any session, part with hosts, and free others; see ``GivingHosts``."""
        self.run(self._claims.release(self.config.digests_of(items), leaves=True, hosts=hosts))

    def pop_waiting(self) -> int:
        """Return how many sessions of this crawl's queue waited at the last commit; 0: that was asked since."""
        waiting, self._dispatcher.waiting = self._dispatcher.waiting, 0
        return waiting


class Guess(Enum):
    """What is decided without the server's answer; the value is its stat, after ``tbloom/``."""

    SCHEDULED = "errors/scheduled"
    DROPPED = "errors/dropped"


#: The answer for a request.
Answer = Claim | Guess
#: The answers with which it is fetched.
NEW = (Claim.NEW, Guess.SCHEDULED)
#: Any store of a crawl. (A local one always answers.)
AnyStore = CrawlBloom | CrawlExact | LocalBloom
#: A store with claims.
ClaimStore = CrawlBloom | CrawlLocal


class _Kind(NamedTuple):
    """How the server is told of requests that were scheduled during an outage: by ``claim`` or ``add``, with these arguments."""

    claims: bool
    arguments: tuple[tuple[str, Any], ...]


class Answers:
    """Asks a crawl's store for requests, in batches; the policy answers where the server does not.

    With "schedule", a request is new unless this crawler has asked for it; the server gets it before it is asked again.
    """

    def __init__(self, seen: AnyStore, on_error: str = "raise") -> None:
        self.seen: AnyStore = seen
        self.on_error: str = on_error
        self.circuit: CircuitBreaker = getattr(seen, "circuit", CircuitBreaker(""))
        hint = "; with 'schedule' it goes on" if on_error == "raise" else ""
        self.circuit.effect = f"{_EFFECTS[on_error]} ({ON_ERROR.name} = {on_error!r}{hint})"
        #: With "schedule": what this process has asked for, oldest first.
        self._asked: dict[bytes, None] = {}
        #: Requests that the server was not told of yet, with the notes of their claims, by the arguments of ``add`` or ``claim``.
        self._unsent = defaultdict[_Kind, dict[bytes, Any]](dict)
        #: Whether there are such requests. Any thread may read it; ``hand_over`` and the others run in the thread that asks.
        self.has_unsent: bool = False

    def ask(
        self, items: list[bytes], notes: list[Note | str] | None = None, **arguments: Any
    ) -> list[Answer]:
        """Return the answers for the items. New items are remembered, or claimed where there are ``notes``.

        Raise redis-py's errors where no policy decides.
        """
        try:
            self.hand_over()
            answers = self._ask(items, notes, arguments)
        except RedisError as error:
            if self.on_error == "raise" or not is_outage(error):
                raise
            if arguments.pop("again", None):  # only the server knows who has it now
                self.forget(items)
            kind = _Kind(notes is not None, (*arguments.items(),))
            return [
                self._decide(item, note, kind)
                for item, note in zip(items, notes or [""] * len(items), strict=True)
            ]
        for item, answer in zip(items, answers, strict=True):
            if answer is not Claim.BUSY:
                self._remember(item)
        return answers

    def forget(self, items: Iterable[bytes]) -> None:
        """Forget items that were released: they are new if they are asked for again."""
        for item in items:
            self._asked.pop(item, None)
            for kind, unsent in self._unsent.items():
                if kind.claims:
                    unsent.pop(item, None)

    def close(self) -> None:
        """After an outage, try the server again, and tell it of the requests that were scheduled meanwhile. Close the store and its client."""
        if self.has_unsent:
            self.circuit.try_again()
        try:
            self.hand_over()
        except (RedisError, TBloomError) as error:
            message = "filter %r: pages that this crawler scheduled during the outage are new to other crawlers: %s"
            logger.warning(message, self.seen.name, error)
        self.seen.close()
        if not isinstance(self.seen, LocalBloom):
            self.seen.client.close()

    def _ask(
        self, items: list[bytes], notes: list[Note | str] | None, arguments: dict[str, Any]
    ) -> list[Answer]:
        if notes is not None and isinstance(self.seen, ClaimStore):
            return [*self.seen.claim_many(items, notes=notes, **arguments)]
        return [
            Claim.NEW if is_new else Claim.SEEN for is_new in self.seen.add_many(items, **arguments)
        ]

    def _decide(self, item: bytes, note: Any, kind: _Kind) -> Answer:
        """Decide without the server."""
        if item in self._asked:
            return Claim.SEEN
        assert not isinstance(self.seen, LocalBloom)  # noqa: S101 - it always answers
        self.seen.assume_new([item])
        self._remember(item)
        self._unsent[kind][item] = note
        self.has_unsent = True
        return Guess.SCHEDULED

    def _remember(self, item: bytes) -> None:
        if self.on_error == "schedule":
            self._asked.pop(item, None)
            self._asked[item] = None
            if len(self._asked) > MAX_ASKED:
                del self._asked[next(iter(self._asked))]

    def hand_over(self) -> None:
        """Give the server what was scheduled without it, if it may be asked."""
        if self.circuit.holds_off or not self.has_unsent:
            return
        for kind, notes in self._unsent.items():
            arguments = dict(kind.arguments)
            if not kind.claims:
                self._ask([*notes], None, arguments)
            elif notes and isinstance(self.seen, ClaimStore):
                # This process works on them, whatever the answer is.
                self.seen.note_again(notes, **arguments)
        self._unsent.clear()
        self.has_unsent = False
