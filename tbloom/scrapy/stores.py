"""The stores of a crawl, whose calls pass a circuit breaker: it decides when a server that does not answer is tried again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tbloom import Claim, ExactFilter, TimeBloom
from tbloom.engine.flow import Flow
from tbloom.engine.retries import is_outage
from tbloom.engine.sync import SyncDriver
from tbloom.errors import ConfigMismatch, FilterFull, NotReplicated
from tbloom.items import Item
from tbloom.scrapy.compat import is_told_to_end

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)

#: The time between two tries of a server that does not answer (s).
HOLD_OFF = 10.0


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
        return self._next_try is not None and time.monotonic() < self._next_try

    def try_again(self) -> None:
        """Lets the next call through."""
        self._next_try = None if self._next_try is None else 0.0

    def worked(self) -> None:
        """Closes the circuit: the server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("%s: the server answers again", self.place)

    def failed(self, error: Exception) -> None:
        """Counts an error, and opens the circuit."""
        self.errors += 1
        if self._next_try is None:
            refuses = isinstance(error, OutOfMemoryError | ReadOnlyError)
            does = "refuses to write" if refuses else "does not answer"
            logger.error("%s: the server %s, so %s: %s", self.place, does, self.effect, error)
        self._next_try = time.monotonic() + HOLD_OFF


class CrawlStore(SyncDriver):
    """A store that does not wait for a server that is away. (A call for one item passes no circuit breaker: ask for many.)"""

    _heartbeat: threading.Thread | None = None

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.circuit: CircuitBreaker = CircuitBreaker(f"filter {self.name!r}")

    def run(self, flow: Flow[T]) -> T:
        """See ``SyncDriver.run``; raises ConnectionError while the circuit is open."""
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
            raise RedisConnectionError("the server did not answer, and is not asked yet")
        try:
            answer = super().run(flow)
        except NotReplicated as error:  # an outage too: the answer may be lost
            lost = RedisConnectionError(str(error))
            self.circuit.failed(lost)
            raise lost from error
        except RedisError as error:
            if is_outage(error):
                self.circuit.failed(error)
            raise
        except (FilterFull, ConfigMismatch):  # answers too
            self.circuit.worked()
            raise
        self.circuit.worked()
        return answer

    def retry_seconds(self) -> float:
        """No time during an outage, or when Scrapy is to end."""
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

    @property
    def has_handed_over(self) -> bool:
        """Whether other processes are to end claims of this session."""
        return self._claims.own.handed_over

    def holds(self, item: Item) -> bool:
        """Whether this process has claimed the item."""
        return self.config.digest(item) in self._claims.own.claimed

    def known(self, item: Item) -> Claim | None:
        """The answer for the item that needs no server, if there is one."""
        digest = self.config.digest(item)
        if digest in self._claims.own.claimed:
            return Claim.BUSY
        return Claim.SEEN if self._is_cached(digest, self.config.slices) else None

    def uncommitted(self, items: Iterable[Item]) -> int:
        """The number of these items whose commits have failed, and are still to be sent: heartbeats and ``close`` do."""
        return len(self._claims.own.to_commit.keys() & {*self.config.digests_of(items)})

    def note_again(self, notes: dict[bytes, str]) -> None:
        """Gives items that this process has claimed other notes."""
        self.claim_many([*notes], notes=[*notes.values()], previous_owner=self.session)

    def commit_many(self, items: Iterable[Item], keep: int | None = None) -> None:
        """See ``TimeBloom.commit_many``; links to what was committed for the whole window need no server any more."""
        items, calls = list(items), self._dispatcher.current_calls()
        super().commit_many(items, keep)
        if keep is None:
            self._cache_seen(self.config.digests_of(items), calls)

    def release_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.release_many``; a heartbeat makes up for one that fails."""
        items = list(items)
        try:
            super().release_many(items)
        except RedisError:  # else they would be busy here until the server knows of it
            self._claims.own.give_up(self.config.digests_of(items))
            raise
