"""redis-py's errors: which of them are Failures, which pass, and which calls are worth sending again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.backoff import ExponentialBackoff

from tbloom.engine.flow import Call, Failure


def backoff() -> ExponentialBackoff:
    """How long to wait before a resend: 10 ms, doubled each time, at most a second."""
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


# Errors that mean "ask again": slots are on the move, or a master is gone and its replica has not taken
# over yet.
_ASK_AGAIN = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.AskError,  # MovedError too
    exceptions.TryAgainError,
    exceptions.ClusterError,  # ClusterDownError too
)
# The same of a cluster's client. The first: no node answers, or not all slots are covered. The others:
# redis-py 8.1 stumbles over connections that another task or thread has closed, and over slots that
# are on their way to a node that it hasn't met.
_STUMBLES = (exceptions.RedisClusterException, AttributeError, KeyError, RuntimeError)
_FINAL = (exceptions.AuthenticationError, exceptions.AuthorizationError)


# Error replies that say something about this moment's server, not about the call.
_PASSING = re.compile(
    "OOM|READONLY|LOADING|BUSY|MISCONF|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|UNBLOCKED"
)
_PASSING_CLASSES = (exceptions.OutOfMemoryError, exceptions.ReadOnlyError, *_ASK_AGAIN)


def is_outage(error: Exception) -> bool:
    """Whether the server may do later what it does not do now, so that ``on_error`` decides."""
    if isinstance(error, _FINAL):
        return False
    return isinstance(error, _PASSING_CLASSES) or bool(_PASSING.match(str(error)))


def as_redis_error(error: Exception) -> Exception:
    """The error, or one that ``except RedisError`` catches, as RedisClusterException is not."""
    if isinstance(error, _STUMBLES):
        lost = exceptions.ConnectionError(str(error))
        lost.__cause__ = error
        return lost
    return error


def have_failed(replies: Sequence[Any]) -> bool:
    """Whether one of the replies is an error. (Most often none is, and there is but one reply.)"""
    for reply in replies:  # noqa: SIM110 - any() would take four times as long
        if isinstance(reply, Exception):
            return True
    return False


class Trip:
    """Calls that are sent together, and what came back.

    It ``began`` by ``time.monotonic``. ``pending`` are those to be sent again, after ``pause`` seconds.
    """

    __slots__ = ("_deadline", "_is_cluster", "_pauses", "_places", "pause", "pending", "replies")

    def __init__(
        self, calls: Sequence[Call], retry_for: float, began: float, *, is_cluster: bool
    ) -> None:
        self.pending = calls
        self._is_cluster = is_cluster
        self.pause = 0.0
        self.replies: list[Any] = [None] * len(calls)
        self._places: Sequence[int] = range(len(calls))
        self._pauses = 0
        self._deadline = began + retry_for if retry_for else 0.0

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, _FINAL):
            return False
        return isinstance(error, _ASK_AGAIN) or (self._is_cluster and isinstance(error, _STUMBLES))

    def take(self, replies: Sequence[Any]) -> None:
        """Takes the reply, or redis-py's error, to each call that was pending.

        Error replies become Failures. Other errors are raised, once there is no more retry_for.
        """
        again = []
        for place, reply in zip(self._places, replies, strict=True):
            if not isinstance(reply, Exception):
                self.replies[place] = reply
            elif self._may_pass(reply) and time.monotonic() < self._deadline:
                again.append(place)
            elif isinstance(reply, exceptions.ResponseError):
                # Of a call that is sent again, the first copy may have been executed.
                self.replies[place] = failure(reply)._replace(in_doubt=self._pauses > 0)
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
