"""What the sync and the async class share: construction, and redis-py's errors as Failures."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis import exceptions
from redis.backoff import ExponentialBackoff

from tbloom.calls import Call, Failure
from tbloom.config import Config, Parameters, configure
from tbloom.errors import ConfigError
from tbloom.protocol import Protocol
from tbloom.sizing import shards_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

Client = TypeVar("Client")

#: redis-py 8 resends up to 10 times when a client is made by its constructor, never when it is made
#: by its from_url. Our clients are like the former.
RESENDS = 10
#: So long (s) calls are asked again by a client of a cluster, or of a Sentinel. A failover takes some
#: seconds more than their time-outs (cluster-node-timeout, down-after-milliseconds): 15 and 30 s as they come.
PATIENCE = 40.0


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
    exceptions.RedisClusterException,  # no node answers, or not all slots are covered
    # redis-py 8.1's cluster clients stumble over connections that another task or thread has closed,
    # and over slots that are on their way to a node that they haven't met.
    AttributeError,
    KeyError,
    RuntimeError,
)
_FINAL = (exceptions.AuthenticationError, exceptions.AuthorizationError)


def _as_redis_error(error: Exception) -> Exception:
    """The error, or one that ``except RedisError`` catches, as RedisClusterException is not."""
    if isinstance(error, exceptions.RedisClusterException):
        lost = exceptions.ConnectionError(str(error))
        lost.__cause__ = error
        return lost
    return error


class Trip:
    """Calls that are sent together, and what came back.

    ``pending`` are those to be sent (again, if need be) after ``pause`` seconds.
    """

    __slots__ = ("_deadline", "_pauses", "_places", "pause", "pending", "replies")

    def __init__(self, calls: Sequence[Call], patience: float) -> None:
        self.pending = calls
        self.pause = 0.0
        self.replies: list[Any] = [None] * len(calls)
        self._places: Sequence[int] = range(len(calls))
        self._pauses = 0
        self._deadline = time.monotonic() + patience if patience else 0.0

    def take(self, replies: Sequence[Any]) -> None:
        """Takes the reply, or redis-py's error, to each call that was pending.

        Error replies become Failures. Other errors are raised, once there is no more patience.
        """
        again = []
        for place, reply in zip(self._places, replies, strict=True):
            if not isinstance(reply, Exception):
                self.replies[place] = reply
            elif self._deadline and isinstance(reply, _ASK_AGAIN) and not isinstance(reply, _FINAL):
                if time.monotonic() > self._deadline:
                    raise _as_redis_error(reply)
                again.append(place)
            elif isinstance(reply, exceptions.ResponseError):
                self.replies[place] = failure(reply)
            else:
                raise reply
        if again:
            calls = dict(zip(self._places, self.pending, strict=True))
            self.pending = [calls[place] for place in again]
            self._pauses += 1
            self.pause = backoff().compute(self._pauses)
        else:
            self.pending = ()
        self._places = again


class Base(Generic[Client]):
    """A filter, its client and its protocol."""

    #: The redis-py classes that the subclass works with, and the class for the others.
    _CLIENTS: tuple[type, ...]
    _OTHER: str
    # How long calls are asked again (s). With a single server that is left to the client.
    _patience = 0.0

    def __init__(self, client: Client, name: str, **parameters: Unpack[Parameters]) -> None:
        """A filter that remembers items for the newest ``slices`` periods of ``granularity``.

        :param client: a redis-py client; it stays the caller's to close.
        :param name: the filter's name: all who give the same name share it.
        :param granularity: ``"h"``, ``"d"`` (the default), ``"w"`` (ISO week) or ``"m"`` in the time
            zone ``tz``; or a fixed length counted from the epoch, such as ``"15min"`` or a
            ``timedelta``.
        :param slices: how many periods, the current one included (7). An item is remembered for at
            least ``slices - 1`` of them, at most ``slices``.
        :param capacity: distinct items expected per slice. None, the default: 1,000,000, or what
            ``bits`` and ``hashes`` hold at ``error_rate``.
        :param error_rate: the chance that an item never added is called seen, over the whole window
            (1e-4).
        :param tz: an IANA time zone (UTC).
        :param shards: independent parts of the filter; on a cluster they spread over its nodes. None,
            the default: those of the stored filter, or as few as keep each key at 32 MB or less, in
            a multiple of the cluster's masters.
        :param grow: what happens when a slice holds its capacity: True, the default: it gets further
            parts, and the error rate is kept; False: ``FilterFull`` is raised.
        :param bits: size of a slice, in place of the one that ``capacity`` leads to; needs ``hashes``.
        :param hashes: bits per item.
        :raises ConfigError: where an argument can't be right.
        """
        if not isinstance(client, self._CLIENTS):
            expected = f"a redis-py client for {type(self).__name__}: " + " or ".join(
                f"{cls.__module__.split('.client')[0].split('.cluster')[0]}.{cls.__name__}"
                for cls in self._CLIENTS
            )
            raise ConfigError("client", client, f"{expected} (else see {self._OTHER})")
        #: The redis-py client.
        self.client: Client = client
        self._owned = False
        # A call that redis-py resends goes to the address that the first one had: Sentinel is not asked.
        if hasattr(getattr(client, "connection_pool", None), "sentinel_manager"):
            self._patience = PATIENCE
        self._adopts_shards = parameters.get("shards") is None
        config = configure(name, **parameters)
        self._protocol = Protocol(config, adopts_shards=self._adopts_shards)

    def _spread(self, masters: int) -> None:
        """On a cluster of so many masters, chooses a number of shards that spreads evenly."""
        self._patience = PATIENCE
        shards = shards_for(self.config.bits, masters)
        if self._adopts_shards and shards != self.config.shards:
            self._protocol.use_shards(shards)

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._protocol.config.name

    @property
    def config(self) -> Config:
        """The filter's parameters, the derived ones too."""
        return self._protocol.config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"


def parse_url(url: Any) -> tuple[str, bool]:
    """A URL that redis-py can read, and whether it is a cluster's; raises ConfigError."""
    match = (
        re.fullmatch(r"(rediss?|unix)(\+cluster)?(://.*)", url) if isinstance(url, str) else None
    )
    if not match:
        expected = "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://"
        raise ConfigError("url", url, expected)
    return match[1] + match[3], bool(match[2])
