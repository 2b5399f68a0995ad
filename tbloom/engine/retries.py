"""The kinds of redis-py's errors, and retries after transient errors."""

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

#: The most calls in flight to one node. The server may execute all of them before it turns to another client.
CALLS_PER_NODE = 4
#: The longest pause between two tries of a call (s).
_LONGEST_PAUSE = 1.0
#: Calls that wait no longer than this for their turn (s) have not waited.
_AT_ONCE = 0.1

#: An error reply that begins with one of these codes, has one of these texts, or is one of these words, means: the server refuses
#: calls for a while. Its call is sent again.
WAIT: tuple[str, ...] = (
    *("BUSY", "CLUSTERDOWN", "LOADING", "NOREPLICAS", "TRYAGAIN"),
    # Of a script's command, for CLUSTERDOWN and TRYAGAIN; and of a node of a cluster with too many connections.
    *("while the cluster is down", "slot not served", "during rehashing", "number of clients"),
    # Of proxies whose server is away: twemproxy ("unknown" where it has ended within a call), and Envoy.
    *("Connection refused", "Connection timed out", "unknown"),
    *("upstream failure", "no upstream host"),
)
#: The same, for: another server has the slot, or is the master. Its call is sent again, after the client has looked for it.
ELSEWHERE: tuple[str, ...] = (
    *("ASK", "MASTERDOWN", "MOVED", "READONLY"),
    # Of a script's command, for MOVED or ASK, and for MASTERDOWN.
    *("access a non local key", "on a stale replica"),
)
#: The same, for: the server has no room for writes, on its disk or in its memory. It is raised; a crawl waits for room. An error that
#: stands in no table is raised, too: the caller or an operator has to do something. (After NOSCRIPT the script's text is sent once.)
NO_ROOM: tuple[str, ...] = ("MISCONF", "OOM")
#: redis-py's classes for codes, which it takes off their texts.
_CLASSES: dict[str, type[exceptions.RedisError]] = {
    "ASK": exceptions.AskError,
    "CLUSTERDOWN": exceptions.ClusterDownError,
    "LOADING": exceptions.BusyLoadingError,
    "MASTERDOWN": exceptions.MasterDownError,
    "MOVED": exceptions.MovedError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "TRYAGAIN": exceptions.TryAgainError,
}
_CODES = {kind: code for code, kind in _CLASSES.items()}
_CODE = re.compile("([A-Z]+) ")

# Redis 6.2 wraps the errors of a script's commands and so hides their codes:
# Error running script (call to f_<sha>): @user_script:7: -READONLY You can't write ...
_WRAPPED = re.compile(
    r"Error running script .*?: (?:@user_script: ?\d+: )*-?([A-Z]+) (.*)", re.DOTALL
)


def _unwrapped(error: Exception) -> Exception:
    """Return the error as later versions of Redis send it."""
    wrapped = _WRAPPED.match(str(error))
    if wrapped is None or wrapped[1] == "ERR":
        return error
    if wrapped[1] in _CLASSES:
        return _CLASSES[wrapped[1]](wrapped[2])
    return exceptions.ResponseError(f"{wrapped[1]} {wrapped[2]}")


#: The cause of a redirection (MOVED) that a client of a single server gets.
NODE = (
    "this server is a node of a cluster: use redis+cluster://HOST:PORT, or redis-py's RedisCluster"
)

# Errors that are no replies, but for BusyLoadingError and ClusterDownError, after which a call is sent again.
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterError)
_FINAL = (exceptions.AuthenticationError, exceptions.AuthorizationError)
# OpenSSL's reasons, in redis-py's messages, that another try does not mend: a server without TLS, and wrong certificates or
# settings of either side. (With asyncio, redis-py before version 6 does not name them, so such calls are retried.)
_NO_TLS = re.compile(r"\[SSL: (WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE)]")
_WRONG_TLS = re.compile(
    r"\[(X509|SSL|PEM): \w*(CERT|UNKNOWN_CA|HANDSHAKE_FAILURE|PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|PEM_LIB|KEY_VALUES)"
)
_TLS_REMEDY = " (this port does not speak TLS: use redis://, or the server's port for rediss://)"


def _code_of(error: Exception) -> str:
    """Return the code of an error reply; "" if it has none."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    # redis-py has no class for some codes, and redis-py 5 none for those of a cluster where its client is a single server's.
    match = _CODE.match(str(error))
    return match[1] if match else ""


def _is_in(table: tuple[str, ...], error: Exception) -> bool:
    """Return True if the table has the code of the error reply, its text, or a piece of several words."""
    code, text = _code_of(error), str(error)
    return code in table or text in table or any(" " in piece and piece in text for piece in table)


def is_redirection(error: Exception) -> bool:
    """Return True if a cluster's node does not have the call's slot."""
    return _code_of(error) in ("ASK", "MOVED")


def is_elsewhere(error: Exception) -> bool:
    """Return True if another server has to be asked."""
    return _is_in(ELSEWHERE, error)


def has_no_room(error: Exception) -> bool:
    """Return True if the server refuses writes until an operator has made room."""
    return _code_of(error) in NO_ROOM


def is_outage(error: Exception) -> bool:
    """Return True if the error goes away by itself."""
    text = str(error)
    if isinstance(error, _FINAL) or _NO_TLS.search(text) or _WRONG_TLS.search(text):
        return False
    return isinstance(error, _LOST) or _is_in(WAIT + ELSEWHERE, error)


def as_redis_error(error: Exception) -> Exception:
    """Return the error as one that ``except RedisError`` catches. A missing TLS is named.

    redis-py raises RedisClusterException, which is no RedisError, if no node answers, or if some slots have no node.
    """
    text = str(error)
    remedy = _TLS_REMEDY if _NO_TLS.search(text) and _TLS_REMEDY not in text else ""
    if remedy or isinstance(error, exceptions.RedisClusterException):
        lost = exceptions.ConnectionError(text + remedy)
        lost.__cause__ = error
        return lost
    return error


class Retries:
    """Calls, their replies so far, and the calls to send next.

    Calls without a reply are sent again.

    ``began``: when they were sent first, or began to wait for their turn behind others without a reply (monotonic).
    ``waited``: how long they have waited so (s).
    ``retry_seconds``: returns for how long after ``began`` calls are retried (s). It is called after each try.
    ``node_of``: returns the node that a call goes to.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        began: float,
        retry_seconds: Callable[[], float],
        node_of: Callable[[Call], str | None],
        *,
        waited: float = 0.0,
    ) -> None:
        self.replies: list[Any] = [None] * len(calls)
        #: True: another server has to be asked. The driver closes connections, so that the next ones may reach a new master.
        self.is_demoted: bool = False
        #: True: the next try comes after ``pause`` seconds: random, so that many clients do not come back at the same moment.
        self.waits: bool = False
        self.pause: float = 0.0
        #: The pauses so far (s). In a user's tests the clock may stand still.
        self._paused = 0.0
        #: The longest pause before the next try (s), doubled with each try.
        self._longest = _LONGEST_PAUSE / 128
        self.began: float = began
        self._retry_seconds = retry_seconds
        self._node_of = node_of
        #: The calls without a reply, by their places.
        self._waiting = dict(enumerate(calls))
        #: The places of the calls that were sent last.
        self._sent = list[int]()
        #: When they were sent (monotonic).
        self._sent_at = began
        #: True: a call has failed, or others that went before.
        self._has_failed = waited > _AT_ONCE

    def next_calls(self) -> list[Call]:
        """Return the calls to send next, in order: for each node, the first calls without a reply."""
        of_node = defaultdict[str | None, list[int]](list)
        for place, call in self._waiting.items():
            places = of_node[self._node_of(call)]
            if len(places) < CALLS_PER_NODE:
                places.append(place)
        self._sent_at = time.monotonic()
        self._sent = sorted(chain.from_iterable(of_node.values()))
        return [self._waiting[place] for place in self._sent]

    def record(self, replies: Sequence[Any]) -> None:
        """Record the reply, or redis-py's error, to each call that was sent.

        If the server does not know a script, the next call sends its text. After a transient error, a call is retried if this
        try was its first, or if ``retry_for`` is not over. Where a try has ended in a connection that was lost, that was not over if
        it was not when the try began: the process may have been frozen since. Any other error reply becomes the call's reply, and
        so does each error of an optional call. Any other error is raised.
        """
        seconds = self._retry_seconds()
        has_timed_out = any(isinstance(reply, exceptions.TimeoutError) for reply in replies)
        until = time.monotonic() if has_timed_out else self._sent_at
        taken = max(until - self.began, self._paused)
        is_retried = seconds > 0 and (not self._has_failed or taken < seconds)
        self.is_demoted = self.waits = False
        for place, reply in zip(self._sent, replies, strict=True):
            call = self._waiting[place]
            if not isinstance(reply, Exception):
                self.replies[place] = reply
                del self._waiting[place]
                continue
            error = _unwrapped(as_redis_error(reply))
            if is_redirection(error) and self._node_of(call) is None:
                # Its text has no code in front.
                error = exceptions.ResponseError(f"{NODE} ({error})")
            self.is_demoted |= is_elsewhere(error)
            if isinstance(error, exceptions.NoScriptError) and call.command[0] == "EVALSHA":
                # The server loses its scripts by a SCRIPT FLUSH, a restart or a failover.
                self._waiting[place] = call.with_text()
            elif is_retried and is_outage(error) and not call.is_optional:
                self.waits = self._has_failed = True
            elif isinstance(error, exceptions.ResponseError) or call.is_optional:
                self.replies[place] = error
                del self._waiting[place]
            else:
                raise error
        if self.waits:
            self._longest = min(_LONGEST_PAUSE, 2 * self._longest)
            left = max(0.0, self.began + seconds - time.monotonic())
            self.pause = random.uniform(0, min(self._longest, left))  # noqa: S311 - no secret
            self._paused += self.pause
