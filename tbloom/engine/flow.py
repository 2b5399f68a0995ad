"""Requests to the server and their replies, as data; and what every flow does about error replies.

A *flow* is a generator that yields calls and is sent their replies. A driver (``sync``, ``aio``) sends the calls of one
``yield`` together and in order. It returns a reply for each: redis-py's, or its error for an error reply. A connection error
is raised by the driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, islice
from typing import Any, TypeVar

from tbloom.errors import ServerTooOld, TBloomError

OLDEST_SERVER = (6, 2)
#: What a server says to a user whose rights do not do.
_DENIED = re.compile("no permissions to|user executing the script can't", re.IGNORECASE)
#: How a ``ResponseError`` begins whose code is another one than ERR.
_CODE = re.compile("[A-Z]+ ")
#: The calls that a flow yields at once, at most.
CALLS_AT_ONCE = 32

#: A slice ends, or the layout changes, between a call and its reply: by chance once or twice. More often, without any
#: answer, means that the server's clock runs away, or that another program changes the layout.
MAX_CORRECTIONS = 64


class Status(IntEnum):
    """How a script's reply begins. Only OK and FULL replies have answers; the others have changed nothing."""

    OK = 0
    #: The server's clock is not within the slice that the client believes current.
    CLOCK = 1
    #: Other parameters are stored.
    MISMATCH = 2
    #: The token's lane has had a later call, so this is a late copy of a call that was answered.
    STRAY = 3
    #: No parameters are stored, and the client has not compared its own elsewhere.
    UNKNOWN = 4
    #: The stored layout is not the one that the client knows.
    LAYOUT = 5
    #: There is no room for a new item.
    FULL = 6
    #: A counter holds ids of another generation than its mapping.
    OTHER_IDS = 7
    #: A key's value is not tbloom's, or missing where there must be one.
    DAMAGED = 8
    #: A mapping has counters, or buckets that are still to be deleted.
    IN_USE = 9


@dataclass(slots=True, eq=False)
class Call:
    """A command, or the call of a script. Its reply is in bytes, whatever the client's ``decode_responses`` is."""

    #: The command's words.
    words: tuple[Any, ...]
    #: A key on the node that it asks, if that is not its first one.
    at: Any = ""
    #: Its ``Script`` (``engine/scripts``); None: it is a command.
    script: Any = None
    #: True: an earlier copy got no reply, and may be executed late.
    is_resent: bool = False

    @property
    def key(self) -> Any:
        """A key on the node that it asks."""
        return self.at or self.words[3 if self.script else 1]

    def with_text(self) -> Call:
        """The same call, from now on by its script's text, which loads it."""
        if self.script:
            self.words = ("EVAL", self.script.text, *self.words[2:])
        return self


def pairs(reply: Any) -> dict[Any, Any]:
    """A hash as a dict, as which it comes in RESP3, and from redis-py."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


T = TypeVar("T")
Flow = Generator[Sequence[Call], Sequence[Any], T]


def deliver(calls: Sequence[Call]) -> Flow[Sequence[Any]]:
    """The replies to the calls; raises the first error among them."""
    replies = yield calls
    yield from raise_first(calls, replies)
    return replies


def deliver_all(calls: Sequence[Call], at_once: int = CALLS_AT_ONCE) -> Flow[list[Any]]:
    """The replies to any number of calls; at most ``at_once`` are sent together."""
    replies: list[Any] = []
    for turn in chunks(calls, at_once):
        replies += yield from deliver(turn)
    return replies


def together(*flows: Flow[Any]) -> Flow[list[Any]]:
    """Return the answers of these flows, in order. The calls that they have at the same time are sent together.

    All flows get the replies to their calls before the first error is raised.
    """
    answers: dict[Flow[Any], Any] = {}
    replies: dict[Flow[Any], Any] = dict.fromkeys(flows)
    try:
        while replies:
            calls, errors = dict[Flow[Any], Sequence[Call]](), list[Exception]()
            for flow, replied in replies.items():
                try:
                    calls[flow] = flow.send(replied)
                except StopIteration as stop:
                    answers[flow] = stop.value
                except Exception as error:  # noqa: BLE001 - raised below
                    errors.append(error)
            if errors:
                raise errors[0]
            came = iter((yield [*chain(*calls.values())]) if calls else ())
            replies = {flow: [*islice(came, len(own))] for flow, own in calls.items()}
        return [answers[flow] for flow in flows]
    finally:
        for flow in flows:
            flow.close()


def too_many_corrections(name: str, change: str) -> TBloomError:
    """The error for a call that the server has corrected ``MAX_CORRECTIONS`` times."""
    return TBloomError(f"{name!r}: {change} {MAX_CORRECTIONS} times in a row")


def corrected(name: str, change: str, attempt: Callable[[], Flow[T | None]]) -> Flow[T]:
    """The answer of the first attempt that the server does not correct; None: it did. ``change``: why."""
    for _ in range(MAX_CORRECTIONS):
        answer = yield from attempt()
        if answer is not None:
            return answer
    raise too_many_corrections(name, change)


def raise_first(calls: Sequence[Call], replies: Sequence[Any]) -> Flow[None]:
    """Raises the first error among the replies."""
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Exception):
            yield from _raise(call, reply)


def chunks(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The sequence in pieces of at most ``size``."""
    for start in range(0, len(sequence), size):
        yield sequence[start : start + size]


def text(reply: str | bytes) -> str:
    """The reply as str; redis-py makes some itself."""
    # What is not UTF-8 was written by another program.
    return reply if isinstance(reply, str) else reply.decode(errors="replace")


def _raise(call: Call, error: Exception) -> Flow[None]:
    """Raises the server's error, or one that names its cause."""
    if _DENIED.search(str(error)):
        where = (
            "SECURITY.md has all rights that are needed; the server's ACL LOG says which one is not"
        )
        raise type(error)(f"{error} ({where})") from error
    if str(error).startswith("WRONGTYPE "):
        tag = text(call.key).partition("}")[0]
        raise type(error)(f"{error} (another program has written to a key of {tag}}})") from error
    # (By its name, because flows know no redis-py.)
    if type(error).__name__ == "ResponseError" and not _CODE.match(str(error)):
        [server] = yield [Call(("INFO", "server"), call.key)]
        # redis-py makes a dict of it.
        version = re.search(r"redis_version\W+((\d+)\.(\d+)[\d.]*)", str(server))
        if version and (int(version[2]), int(version[3])) < OLDEST_SERVER:
            raise ServerTooOld(version[1]) from error
    raise error
