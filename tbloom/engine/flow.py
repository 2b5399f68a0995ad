"""Calls to the server and their replies, as data; and what every flow does about error replies.

A *flow* is a generator that yields calls and is sent their replies. A driver
(``sync``, ``aio``) sends the calls of one ``yield`` together and in order, and
hands back a reply for each: what redis-py returned, or a ``Failure`` where the
server said no. A lost connection is the driver's to raise.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from tbloom.engine.keys import kind_of
from tbloom.engine.scripts import Script
from tbloom.errors import ServerTooOld

OLDEST_SERVER = (6, 2)
#: Calls that a flow may have under way at once.
CALLS_AT_ONCE = 32


class Status(IntEnum):
    """How a script's reply begins; the scripts' headers say what each means."""

    OK = 0
    CLOCK = 1
    MISMATCH = 2
    STRAY = 3
    UNKNOWN = 4
    LAYOUT = 5
    FULL = 6
    FOREIGN = 7
    DAMAGED = 8


class Command(NamedTuple):
    """A plain Redis command."""

    words: tuple[Any, ...]


class ScriptCall(NamedTuple):
    """A call of one of our scripts, by its hash; ``in_full``: with its text, which loads it."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Any, ...]
    #: More arguments, made when the call is sent.
    items: Iterable[Any] = ()
    in_full: bool = False

    @property
    def words(self) -> tuple[Any, ...]:
        """The command's words."""
        if self.in_full:
            head = ("EVAL", self.script.text, len(self.keys))
        else:
            head = ("EVALSHA", self.script.sha, len(self.keys))
        return (*head, *self.keys, *self.args, *self.items)


class Failure(NamedTuple):
    """An error reply: its code, such as ``NOSCRIPT``, and redis-py's error for it.

    ``in_doubt``: an earlier copy of the call got no reply, and may have been executed.
    """

    code: str
    error: Exception
    in_doubt: bool = False


Call = Command | ScriptCall
T = TypeVar("T")
Flow = Generator[Sequence[Call], Sequence[Any], T]


def deliver(calls: Sequence[Call]) -> Flow[Sequence[Any]]:
    """The replies to the calls, none of them a Failure: raises the server's first error."""
    replies = yield calls
    if Failure in map(type, replies):
        replies = yield from again_in_full(calls, replies)
        yield from raise_first(calls, replies)
    return replies


def again_in_full(calls: Sequence[Call], replies: Sequence[Any]) -> Flow[Sequence[Any]]:
    """The replies; scripts that the server has forgotten (SCRIPT FLUSH, a restart, a failover) are sent
    once more, with their text."""
    forgotten = {
        i: call._replace(in_full=True)
        for i, (call, reply) in enumerate(zip(calls, replies, strict=True))
        if isinstance(call, ScriptCall) and isinstance(reply, Failure) and reply.code == "NOSCRIPT"
    }
    if forgotten:
        replies = list(replies)
        again = yield list(forgotten.values())
        for i, reply in zip(forgotten, again, strict=True):
            was_in_doubt = isinstance(reply, Failure) and replies[i].in_doubt
            replies[i] = reply._replace(in_doubt=True) if was_in_doubt else reply
    return replies


def raise_first(calls: Sequence[Call], replies: Sequence[Any]) -> Flow[None]:
    """Raises the first error among the replies, if there is one."""
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Failure):
            yield from _raise(call, reply)


def chunks(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The sequence in pieces of at most ``size``."""
    for start in range(0, len(sequence), size):
        yield sequence[start : start + size]


def text(reply: str | bytes) -> str:
    """A client with decode_responses returns str, one without returns bytes."""
    # (A text that is not UTF-8 is somebody else's, and no text of ours.)
    return reply if isinstance(reply, str) else reply.decode(errors="replace")


def _raise(call: Call, failure: Failure) -> Flow[None]:
    """Raises the server's error, or one that says more."""
    error = failure.error
    if failure.code == "WRONGTYPE":
        keys = call.keys if isinstance(call, ScriptCall) else call.words[1:2]
        types = yield [Command(("TYPE", key)) for key in keys]
        for key, reply in zip(keys, types, strict=True):
            kind = "" if isinstance(reply, Failure) else text(reply)
            if kind not in ("", "none", kind_of(text(key))):
                explanation = f"WRONGTYPE key {key!r} holds a {kind}, which is not tbloom's"
                raise type(error)(explanation) from error
    elif failure.code == "ERR":
        [server] = yield [Command(("INFO", "server"))]
        version = str(server.get("redis_version", "")) if isinstance(server, dict) else ""
        if version and tuple(map(int, version.split(".")[:2])) < OLDEST_SERVER:
            raise ServerTooOld(version) from error
    raise error
