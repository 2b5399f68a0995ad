"""What a crawl does while Redis does not answer (``TBLOOM_ON_ERROR``).

A circuit breaker holds the store's calls back. With "schedule" the crawler then decides by what it has asked for itself, and
hands that to the server before it uses the server's answers again.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from tbloom.engine.flow import Flow
from tbloom.engine.retries import is_outage
from tbloom.engine.sync import SyncDriver
from tbloom.errors import ConfigMismatch, FilterFull, NotReplicated, TBloomError
from tbloom.items import Item
from tbloom.scrapy.circuit import CircuitBreaker

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Limit for the requests that a crawler remembers for an outage; beyond it, the older half is forgotten.
MAX_ASKED = 200_000


class _Asked(NamedTuple):
    """A request that this process has asked for.

    ``at``: when (ms); ``argument``: its ``within`` or ``ttl``; ``give``: what tells the server of it; ``note``: its claim's.
    """

    at: int
    argument: Any
    give: Callable[..., object] | None
    note: str


class CrawlStore(SyncDriver):
    """A store whose calls pass a circuit breaker."""

    assume_new: Any
    _heartbeat: threading.Thread | None = None

    def __init__(self, *args: Any, on_error: str = "raise", **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        #: What happens while the server does not answer.
        self.circuit = CircuitBreaker(self.name, on_error)
        #: With "schedule": what this process has asked for, oldest first.
        self._asked: dict[Item, _Asked] = {}
        #: True if the server does not know all of that.
        self._is_ahead = False

    def close(self) -> None:
        """Tries the server once more: tells it what it does not know, and closes the store."""
        self.circuit.try_again()
        try:
            if self._is_ahead:
                self._hand_over()
        except (RedisError, TBloomError) as error:
            message = "filter %r: what this crawler has scheduled meanwhile is new to others: %s"
            logger.warning(message, self.name, error)
        super().close()

    def _oldest(self, argument: Any) -> int:
        """The time before which an item was asked for that is new again (ms)."""
        raise NotImplementedError

    def _decide(self, ask: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """The server's answer; with "schedule" and "drop" the other one while there is none."""
        try:
            if self._is_ahead and not self.circuit.holds_off:
                self._hand_over()
            return ask()
        except RedisError as error:
            if self.circuit.on_error == "raise" or not is_outage(error):
                raise
        return otherwise()

    def _add(self, verb: Callable[..., bool], item: Item, argument: Any, give: Any) -> bool:
        def ask() -> bool:
            is_new = verb(item, argument)
            self._remember(item, argument, give)
            return is_new

        return self._decide(ask, partial(self._schedule, item, argument, give))

    def _add_many(
        self, verb: Callable[..., list[bool]], items: Iterable[Item], argument: Any, give: Any
    ) -> list[bool]:
        """Raises redis-py's errors, also where a policy decides for single items."""
        items = list(items)
        if self._is_ahead and not self.circuit.holds_off:
            self._hand_over()
        answers = verb(items, argument)
        for item in items:
            self._remember(item, argument, give)
        return answers

    def _is_new(self, item: Item, argument: Any) -> bool:
        """The answer without the server."""
        asked = self._asked.get(item)
        if asked and asked.at >= self._oldest(argument):
            return False
        self.circuit.answers += 1
        return self.circuit.on_error == "schedule"

    def _schedule(self, item: Item, argument: Any, give: Any, note: str = "") -> bool:
        """The answer without the server; a new item is handed over to it later."""
        is_new = self._is_new(item, argument)
        if is_new:
            self.assume_new([item])
            self._remember(item, argument, give, note)
            self._is_ahead = True
        return is_new

    def _remember(self, item: Item, argument: Any, give: Any, note: str = "") -> None:
        if self.circuit.on_error != "schedule":
            return
        before = self._asked.pop(item, None)  # first, so that no item of a hand-over is cut
        if len(self._asked) >= MAX_ASKED:
            for old in [*islice(self._asked, MAX_ASKED // 2)]:
                del self._asked[old]
        at = before.at if before and before.at >= self._oldest(argument) else now_ms()
        self._asked[item] = _Asked(at, argument, give, note)

    def _hand_over(self) -> None:
        """Gives the server what this process has asked for, because it may have forgotten that too."""
        groups = defaultdict[tuple[Any, Any], list[Item]](list)
        for item, asked in self._asked.items():
            groups[asked.give, asked.argument].append(item)
        for (give, argument), items in groups.items():
            oldest = self._oldest(argument)
            if give is not None:
                give(self, [item for item in items if self._asked[item].at >= oldest], argument)
        self._is_ahead = False

    def run(self, flow: Flow[T]) -> T:
        """See ``SyncDriver.run``; raises HeldOff while the circuit is open."""
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
            self.circuit.check()
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
        is_waited_for = not self.circuit.is_open and not _is_told_to_end()
        return super().retry_seconds() if is_waited_for else 0.0


def now_ms() -> int:
    """The time (ms)."""
    return time.time_ns() // 1_000_000


def _is_told_to_end() -> bool:
    """Whether Scrapy has caught a signal, which it handles once the crawl waits for nothing: the next one kills."""
    handler = signal.getsignal(signal.SIGTERM)
    return getattr(handler, "__name__", "").startswith("_signal_kill")
