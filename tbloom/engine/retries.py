"""redis-py's errors: which are error replies, which are outages, and after which a call is sent again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions
from redis.backoff import ExponentialBackoff

from tbloom.engine.flow import Call, Failure


def backoff() -> ExponentialBackoff:
    """The pauses between retries: 10 ms, doubled each time, at most a second."""
    return ExponentialBackoff(cap=1, base=0.01)


# Redis 6.2 wraps the errors of a script's commands and so hides their codes:
# Error running script (call to f_<sha>): @user_script:7: -READONLY You can't write ...
_WRAPPED = re.compile(
    r"Error running script .*?: (?:@user_script: ?\d+: )*-?([A-Z]+) (.*)", re.DOTALL
)
_CLASSES = {"OOM": exceptions.OutOfMemoryError, "READONLY": exceptions.ReadOnlyError}


def failure(error: exceptions.ResponseError) -> Failure:
    """The Failure for an error reply."""
    if isinstance(error, exceptions.NoScriptError):
        return Failure("NOSCRIPT", error)
    wrapped = _WRAPPED.match(str(error))
    if wrapped and wrapped[1] in _CLASSES:
        error = _CLASSES[wrapped[1]](wrapped[2])
    elif wrapped and wrapped[1] != "ERR":
        error = exceptions.ResponseError(f"{wrapped[1]} {wrapped[2]}")
    if type(error) is not exceptions.ResponseError:
        return Failure("", error)
    return Failure("WRONGTYPE" if str(error).startswith("WRONGTYPE") else "ERR", error)


# After these a call is sent again: the connection failed, slots are moving to another node, or a failover
# is under way.
_RETRIED = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.AskError,  # MovedError too
    exceptions.TryAgainError,
    exceptions.ClusterError,  # ClusterDownError too
)
# On a cluster after these too. RedisClusterException: no node answers, or some slots have no node. The
# others are bugs of redis-py 8.1: another task or thread closes the connection that it uses, or slots move to a node
# that it does not know yet.
_CLUSTER_BUGS = (AttributeError, KeyError, RuntimeError)
_RETRIED_ON_CLUSTER = (exceptions.RedisClusterException, *_CLUSTER_BUGS)
_FINAL = (exceptions.AuthenticationError, exceptions.AuthorizationError)


# Error replies about the server's present state, not about the call.
_OUTAGE_CODES = re.compile(
    "OOM|READONLY|LOADING|BUSY|MISCONF|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|UNBLOCKED"
)
_OUTAGES = (exceptions.OutOfMemoryError, exceptions.ReadOnlyError, *_RETRIED)


def is_outage(error: Exception) -> bool:
    """Whether the error may pass by itself."""
    if isinstance(error, _FINAL):
        return False
    return isinstance(error, _OUTAGES) or bool(_OUTAGE_CODES.match(str(error)))


def as_redis_error(error: Exception) -> Exception:
    """The error; a ConnectionError for those that ``except RedisError`` would not catch, such as RedisClusterException."""
    if isinstance(error, _RETRIED_ON_CLUSTER):
        lost = exceptions.ConnectionError(str(error))
        lost.__cause__ = error
        return lost
    return error


class Retries:
    """Calls that are sent together, their replies, and which of them are sent again.

    ``retry_seconds``: for how long, asked after each try. ``began``: when they were sent first (``time.monotonic``).
    ``pending``: the calls that are sent again, after ``pause`` seconds. ``resends``: redis-py may send a call again by
    itself.
    """

    __slots__ = (
        *("_began", "_is_cluster", "_pauses", "_places", "_resends", "_retry_seconds"),
        *("pause", "pending", "replies"),
    )

    def __init__(
        self,
        calls: Sequence[Call],
        retry_seconds: Callable[[], float],
        began: float,
        *,
        is_cluster: bool,
        resends: bool,
    ) -> None:
        self.pending = calls
        self._is_cluster = is_cluster
        self._resends = resends
        self.pause = 0.0
        self.replies: list[Any] = [None] * len(calls)
        self._places: Sequence[int] = range(len(calls))
        self._pauses = 0
        self._began, self._retry_seconds = began, retry_seconds

    def _is_retried(self, error: Exception) -> bool:
        if isinstance(error, _FINAL):
            return False
        return isinstance(error, _RETRIED) or (
            self._is_cluster and isinstance(error, _RETRIED_ON_CLUSTER)
        )

    def take(self, replies: Sequence[Any]) -> None:
        """Takes the reply, or redis-py's error, to each pending call.

        Error replies become Failures. Other errors are raised once ``retry_for`` is over.
        """
        again = []
        for place, reply in zip(self._places, replies, strict=True):
            if not isinstance(reply, Exception):
                self.replies[place] = reply
            elif self._is_retried(reply) and time.monotonic() < self._began + self._retry_seconds():
                again.append(place)
            elif isinstance(reply, exceptions.ResponseError):
                # The server may have executed the first copy of a call that was sent again.
                in_doubt = self._resends or self._pauses > 0
                self.replies[place] = failure(reply)._replace(in_doubt=in_doubt)
            else:
                raise as_redis_error(reply) if self._is_cluster else reply
        if again:
            calls = dict(zip(self._places, self.pending, strict=True))
            self.pending = [calls[place] for place in again]
            self._pauses += 1
            self.pause = backoff().compute(self._pauses)
        else:
            self.pending = ()
        self._places = again
