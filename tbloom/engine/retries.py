"""redis-py's errors: which are error replies, which are outages, and after which a call is sent again."""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from redis import exceptions

from tbloom.engine.flow import Call

#: The calls that are on their way to one node, at most: the server may execute all of them before another client's.
AT_ONCE = 4
#: Between two tries of a call (s).
_LONGEST_PAUSE = 1.0

# Redis 6.2 wraps the errors of a script's commands and so hides their codes:
# Error running script (call to f_<sha>): @user_script:7: -READONLY You can't write ...
_WRAPPED = re.compile(
    r"Error running script .*?: (?:@user_script: ?\d+: )*-?([A-Z]+) (.*)", re.DOTALL
)
_CLASSES = {"OOM": exceptions.OutOfMemoryError, "READONLY": exceptions.ReadOnlyError}


def _unwrapped(error: Exception) -> Exception:
    """The error as later versions of Redis send it."""
    wrapped = _WRAPPED.match(str(error))
    if wrapped is None or wrapped[1] == "ERR":
        return error
    if wrapped[1] in _CLASSES:
        return _CLASSES[wrapped[1]](wrapped[2])
    return exceptions.ResponseError(f"{wrapped[1]} {wrapped[2]}")


# After these a call is sent again: the connection failed, slots are moving to another node, the server is no master any
# more, or it refuses every call for a while.
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.AskError,  # MovedError too
    exceptions.TryAgainError,
    exceptions.ClusterError,  # ClusterDownError too
    exceptions.ReadOnlyError,
)
_PASSING_CODES = re.compile("(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|NOREPLICAS|TRYAGAIN|UNBLOCKED) ")
# These last until somebody frees memory or disk space.
_LASTING = exceptions.OutOfMemoryError
_LASTING_CODE = "MISCONF "
_FINAL = (exceptions.AuthenticationError, exceptions.AuthorizationError)


def _passes(error: Exception) -> bool:
    """Whether the error passes by itself."""
    if isinstance(error, _FINAL):
        return False
    return isinstance(error, _PASSING) or bool(_PASSING_CODES.match(str(error)))


def is_outage(error: Exception) -> bool:
    """Whether the error is about the server's present state, not about the call."""
    is_lasting = isinstance(error, _LASTING) or str(error).startswith(_LASTING_CODE)
    return is_lasting or _passes(error)


def as_redis_error(error: Exception) -> Exception:
    """The error; a ConnectionError for a RedisClusterException, which ``except RedisError`` would not catch: no node
    answers, or some slots have no node."""
    if isinstance(error, exceptions.RedisClusterException):
        lost = exceptions.ConnectionError(str(error))
        lost.__cause__ = error
        return lost
    return error


class Retries:
    """Calls, their replies, and which of them are sent next: those without a reply again, after ``pause`` seconds.

    ``retry_seconds``: for how long, asked after each try. ``node_of``: the node that a call goes to.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        retry_seconds: Callable[[], float],
        node_of: Callable[[Call], str],
        *,
        at_once: int = AT_ONCE,
    ) -> None:
        self.replies: list[Any] = [None] * len(calls)
        #: True: a server is no master any more, so its connections are to be closed; the address may lead to a new one.
        self.is_demoted: bool = False
        #: True: the next try comes after a pause.
        self.waits: bool = False
        #: The longest pause before the next try (s), doubled with each one.
        self._longest = _LONGEST_PAUSE / 128
        self._retry_seconds, self._node_of, self._at_once = retry_seconds, node_of, at_once
        #: The calls that still want a reply, by their places, and the places of those that were sent last.
        self._waiting = dict(enumerate(calls))
        self._asked = list[int]()
        #: When the first error came. (Counted from the sending on, a process that stood still meanwhile would not retry.)
        self._began: float | None = None

    @property
    def pause(self) -> float:
        """The pause before the next try (s), by chance, so that many clients do not come back at the same moment."""
        return random.uniform(0, self._longest)  # noqa: S311 - no secret

    def next_calls(self) -> list[Call]:
        """The calls that are sent next, in order: of each node the first ones."""
        of_node = defaultdict[str, list[int]](list)
        for place, call in self._waiting.items():
            places = of_node[self._node_of(call)]
            if len(places) < self._at_once:
                places.append(place)
        self._asked = sorted(chain.from_iterable(of_node.values()))
        return [self._waiting[place] for place in self._asked]

    def take(self, replies: Sequence[Any]) -> None:
        """Takes the reply, or redis-py's error, to each call that was sent.

        A script that the server does not know is sent in full. Other error replies are given to the flow. Other errors are raised once ``retry_for`` is over.
        """
        now = time.monotonic()
        self.is_demoted = self.waits = False
        for place, reply in zip(self._asked, replies, strict=True):
            call = self._waiting[place]
            if not isinstance(reply, Exception):
                self.replies[place] = reply
                del self._waiting[place]
                continue
            error, self._began = _unwrapped(reply), self._began or now
            self.is_demoted |= isinstance(error, exceptions.ReadOnlyError)
            if isinstance(error, exceptions.NoScriptError) and call.script:
                # After a SCRIPT FLUSH, a restart or a failover.
                self._waiting[place] = call.with_text()
            elif _passes(error) and now < self._began + self._retry_seconds():
                self.waits = True
                if not isinstance(error, exceptions.ResponseError):
                    call.is_resent = True
            elif isinstance(error, exceptions.ResponseError):
                self.replies[place] = error
                del self._waiting[place]
            else:
                raise error
        if self.waits:
            self._longest = min(_LONGEST_PAUSE, 2 * self._longest)
