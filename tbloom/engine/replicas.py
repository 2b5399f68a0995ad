"""Answers that are given only once replicas have them: WAIT goes with the call, on its connection."""

from __future__ import annotations

from typing import Any, NamedTuple

from tbloom.engine.flow import Call, text
from tbloom.errors import ConfigError

_MOST = 1000
#: How long (s) an answer waits for the replicas at most: a replica that follows takes milliseconds.
_LONGEST_WAIT = 1.0


class Replicas(NamedTuple):
    """How many replicas must have an answer, and for how long it waits for them (ms)."""

    number: int
    timeout_ms: int

    @classmethod
    def checked(cls, number: Any, client: Any) -> Replicas | None:
        """What the argument ``replicas`` says; None: answers wait for none.

        An answer waits for half of the client's time limit for a reply at most, so that WAIT ends first.
        """
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST:
            raise ConfigError("replicas", number, f"a whole number from 0 to {_MOST}")
        pool = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
        limit = getattr(pool, "connection_kwargs", {}).get("socket_timeout") or 2 * _LONGEST_WAIT
        return cls(number, max(1, round(500 * min(limit, 2 * _LONGEST_WAIT)))) if number else None

    def behind(self, key: Any) -> tuple[Call, Call]:
        """The commands behind a call with this key.

        WAIT goes by the last write of its connection, and a call that is sent again may write nothing: so there is one.
        """
        tag, brace, _ = text(key).partition("}")
        own = f"{tag}{brace}:replicas"
        return Call(("SET", own, "", "PX", 1)), Call(("WAIT", self.number, self.timeout_ms), own)


class Lacking(NamedTuple):
    """A call's reply that too few replicas had in time (s)."""

    reply: Any
    replicas: int
    copies: int
    timeout: float


def without_waits(call: Call, replies: list[Any]) -> list[Any]:
    """The replies to calls that were sent together. Where commands are behind the only one: the first error, or ``Lacking``
    where WAIT says so."""
    if not call.behind:
        return replies
    for reply in replies:
        if isinstance(reply, Exception):
            return [reply]
    _, number, timeout_ms = call.behind[-1].words
    if replies[-1] < number:
        return [Lacking(replies[0], number, replies[-1], timeout_ms / 1000)]
    return replies[:1]
