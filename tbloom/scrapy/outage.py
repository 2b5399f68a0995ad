"""What a crawl does while Redis does not answer (``TBLOOM_ON_ERROR``): its stores answer without it, and try it now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from tbloom import Claim, ExactFilter, TimeBloom
from tbloom.engine.flow import Flow
from tbloom.engine.retries import is_outage
from tbloom.engine.sync import SyncDriver
from tbloom.errors import ConfigError, TBloomError
from tbloom.items import Item

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: During an outage: raise the error, answer "new", or answer "seen".
ON_ERROR = ("raise", "schedule", "drop")
#: The time between two tries of a server that does not answer (s).
HOLD_OFF = 10.0


class HeldOff(RedisConnectionError):
    """The server is not asked: it did not answer some seconds ago."""


class CircuitBreaker:
    """Lets every call through while the server answers, and one every 10 seconds during an outage.

    It logs the beginning and the end of an outage once each. With ``"raise"`` it only counts errors.
    """

    def __init__(self, name: str, on_error: str) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError("on_error", on_error, " or ".join(map(repr, ON_ERROR)))
        self.on_error = on_error
        #: Calls that ended in an error, and calls that were answered without the server.
        self.errors = 0
        self.answers = 0
        self._name = name
        self._next_try: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last call ended in an error."""
        return self._next_try is not None

    def lets_through(self) -> bool:
        """Whether a call may be sent now."""
        if self._next_try is None:
            return True
        now = time.monotonic()
        if now < self._next_try:
            return False
        self._next_try = now + HOLD_OFF  # other calls wait for the result of this one
        return True

    def worked(self) -> None:
        """Closes the circuit: the server has answered."""
        if self._next_try is not None:
            self._next_try = None
            logger.info("filter %r: the server answers again", self._name)

    def failed(self, error: Exception) -> None:
        """Counts an error, and opens the circuit."""
        self.errors += 1
        if self.on_error == "raise":
            return
        if self._next_try is None:
            what = "new" if self.on_error == "schedule" else "seen"
            logger.error(
                "filter %r: the server does not answer; items are taken for %s meanwhile (on_error=%r): %s",
                self._name,
                what,
                self.on_error,
                error,
            )
        self._next_try = time.monotonic() + HOLD_OFF


class _ThisThread(threading.local):
    #: The thread's call may be answered without the server. A heartbeat, for example, is always sent.
    has_policy = False


class _CrawlStore(SyncDriver):
    """A store whose calls pass a circuit breaker."""

    assume_new: Callable[[Iterable[Item]], None]

    def __init__(self, *args: Any, on_error: str = "raise", **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        #: What happens while the server does not answer.
        self.circuit = CircuitBreaker(self.name, on_error)
        self._this_thread = _ThisThread()

    def _decide(
        self, verb: Callable[..., T], *args: Any, schedule: T, drop: T, new: Iterable[Item] = ()
    ) -> T:
        """The verb's answer, or that of TBLOOM_ON_ERROR; ``new``: the items that "schedule" calls new."""
        policy = self.circuit.on_error
        if policy == "raise":
            return verb(*args)
        self._this_thread.has_policy = True
        try:
            return verb(*args)
        except RedisError as error:
            if not is_outage(error):
                raise
        finally:
            self._this_thread.has_policy = False
        self.circuit.answers += 1
        if policy == "drop":
            return drop
        self.assume_new(new)
        return schedule

    def _run(self, flow: Flow[T]) -> T:
        if self.circuit.is_open:
            flow = self._gated(flow)
        try:
            return super()._run(flow)
        except RedisError as error:
            if is_outage(error) and not isinstance(error, HeldOff):
                self.circuit.failed(error)
            raise

    def _gated(self, flow: Flow[T]) -> Flow[T]:
        """The flow; ends in HeldOff if it is too early to ask the server, and closes the circuit if that answers."""
        is_answered = False
        try:
            calls = next(flow)
            if self._this_thread.has_policy and not self.circuit.lets_through():
                raise HeldOff("the server did not answer, and is not asked yet")
            while True:
                replies = yield calls
                is_answered = True
                calls = flow.send(replies)
        except StopIteration as stop:
            if is_answered:
                self.circuit.worked()
            answer: T = stop.value
            return answer
        except (RedisError, TBloomError) as error:
            if is_answered and not is_outage(error):
                self.circuit.worked()
            raise
        finally:
            flow.close()

    def _retry_seconds(self) -> float:
        return 0.0 if self.circuit.is_open else super()._retry_seconds()


class CrawlExact(_CrawlStore, ExactFilter):
    """A crawl's ``ExactFilter``."""

    def add(self, item: Item, ttl: float | timedelta | None = None) -> bool:
        """See ``ExactFilter.add``."""
        return self._decide(super().add, item, ttl, schedule=True, drop=False, new=[item])

    def contains(self, item: Item) -> bool:
        """See ``ExactFilter.contains``."""
        return self._decide(super().contains, item, schedule=False, drop=True)


class CrawlBloom(_CrawlStore, TimeBloom):
    """A crawl's ``TimeBloom``."""

    def add(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.add``."""
        return self._decide(super().add, item, within, schedule=True, drop=False, new=[item])

    def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.contains``."""
        return self._decide(super().contains, item, within, schedule=False, drop=True)

    def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Claim:
        """See ``TimeBloom.claim``."""
        arguments = (item, within, note, previous_owner)
        return self._decide(
            super().claim, *arguments, schedule=Claim.NEW, drop=Claim.SEEN, new=[item]
        )

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``."""
        items = list(items)
        new, seen = [Claim.NEW] * len(items), [Claim.SEEN] * len(items)
        arguments = (items, within, notes, previous_owner)
        return self._decide(super().claim_many, *arguments, schedule=new, drop=seen, new=items)

    def commit_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.commit_many``; a heartbeat makes up for it."""
        self._decide(super().commit_many, items, schedule=None, drop=None)

    def release(self, item: Item) -> None:
        """See ``TimeBloom.release``; a heartbeat makes up for it."""
        self._decide(super().release, item, schedule=None, drop=None)

    def release_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.release_many``; a heartbeat makes up for it."""
        self._decide(super().release_many, items, schedule=None, drop=None)
