"""Calls and replies as data, and the handling of error replies that all flows share.

A *flow* is a generator that yields calls and is sent their replies. A driver (``sync``, ``aio``) sends the calls of one
``yield`` together and in order. It returns a reply for each call: redis-py's reply, or redis-py's exception for an error
reply. A flow never sees a connection error:
the driver raises it to the caller, and closes the flow. The flow gets GeneratorExit then, and notes what has no answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, islice
from typing import Any, TypeVar

from tbloom.errors import ServerTooOld, TBloomError

OLDEST_SERVER = (6, 2)
#: The server's errors for a user whose ACL rights do not suffice.
_DENIED = re.compile("no permissions to|user executing the script can't", re.IGNORECASE)
_RIGHTS = (
    "SECURITY.md lists all rights that tbloom needs; the server's ACL LOG shows the missing one"
)
#: What replaces the server's text if its memory is full, and it drops nothing (``noeviction``).
_MEMORY_FULL = (
    "the server's memory is full: raise its maxmemory, or free some (tbloom clear NAME), "
    "then repeat the call"
)
#: The start of a ``ResponseError`` with a code other than ERR. (redis-py removes ERR.)
_CODE = re.compile("[A-Z]+ ")
#: The most calls that a flow yields together.
CALLS_PER_YIELD = 32
#: After so many yields, a flow waits for another turn. A flow that begins a filter takes four.
YIELDS_PER_TURN = 8

#: The limit of corrections of a call. A slice may end, or the layout may change, between a call and its reply. By chance this
#: happens once or twice in a row. More often, the server's clock is wrong, or another program changes the layout.
MAX_CORRECTIONS = 64


class Status(IntEnum):
    """The first field of a script's reply.

    Only OK and FULL replies carry answers. With any other status, the script has changed nothing.
    """

    OK = 0
    #: The server's clock is not within the slice that the client believes current.
    CLOCK = 1
    #: Other parameters are stored.
    MISMATCH = 2
    #: The token's lane has had a later call, so this is a late copy of an answered call.
    STRAY = 3
    #: No parameters are stored, and the client has not compared its own elsewhere.
    UNKNOWN = 4
    #: The stored layout is not the one that the client knows.
    LAYOUT = 5
    #: There is no room for a new item.
    FULL = 6
    #: A counter holds ids of another generation than its mapping.
    OTHER_IDS = 7
    #: A key's value is not tbloom's, or a key that must exist is missing.
    DAMAGED = 8
    #: A mapping has counters, or buckets that are still to be deleted.
    IN_USE = 9
    #: The server does not know the client's session any more.
    LOST = 10


@dataclass(slots=True, eq=False)
class Call:
    """A command, or the call of a script.

    The reply is in bytes, whatever the client's ``decode_responses`` is.
    """

    #: The command and its arguments, in text or bytes. A number would make hiredis crash the interpreter if a signal handler
    #: raises an error, as Ctrl-C does, while hiredis makes the number's text.
    command: tuple[str | bytes, ...]
    #: A key on the node that executes the call; empty: the call's first key selects the node.
    routing_key: Any = ""
    #: The ``Script`` (``engine/scripts``); None for a command.
    script: Any = None
    #: True: it is tried once, and its reply may be any error.
    is_optional: bool = False

    @property
    def key(self) -> Any:
        """A key on the node that executes the call."""
        return self.routing_key or self.command[3 if self.script else 1]

    def with_text(self) -> Call:
        """Switch to EVAL with the script's text, which also loads the script, and return the call."""
        if self.script:
            self.command = ("EVAL", self.script.text, *self.command[2:])
        return self


def pairs(reply: Any) -> dict[Any, Any]:
    """Return a hash reply as a dict. With RESP2 it may be a flat list; with RESP3, or from redis-py, it is a dict."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
Flow = Generator[Sequence[Call], Sequence[Any], T]


def request(calls: Sequence[Call]) -> Flow[Sequence[Any]]:
    """Return the replies to the calls. Raise the first error among them (see ``raise_explained``)."""
    replies = yield calls
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Exception):
            yield from raise_explained(call, reply)
    return replies


def request_all(calls: Sequence[Call], at_once: int = CALLS_PER_YIELD) -> Flow[list[Any]]:
    """Return the replies to any number of calls, sent in groups of at most ``at_once``."""
    replies: list[Any] = []
    for group in chunks(calls, at_once):
        replies += yield from request(group)
    return replies


def ask_all(calls: Sequence[Call]) -> Flow[list[Any]]:
    """Return the replies to any number of calls. An error reply is returned, too."""
    replies: list[Any] = []
    for group in chunks(calls, CALLS_PER_YIELD):
        replies += yield group
    return replies


def together(*flows: Flow[Any]) -> Flow[list[Any]]:
    """Run flows side by side, and return their results in order. Their next calls are sent together.

    If a flow raises an error, all flows first get the replies to their calls.
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
            received = iter((yield [*chain(*calls.values())]) if calls else ())
            replies = {flow: [*islice(received, len(own))] for flow, own in calls.items()}
        return [answers[flow] for flow in flows]
    finally:
        for flow in flows:
            flow.close()


def give_up(flow: Flow[Any]) -> None:
    """End a flow that has not begun. It begins first, so that it notes what must be repeated, such as a commit."""
    with suppress(Exception):
        next(flow)
    flow.close()


def too_many_corrections(name: str, change: str) -> TBloomError:
    """Return the error for a call that the server has corrected ``MAX_CORRECTIONS`` times."""
    return TBloomError(f"{name!r}: {change} {MAX_CORRECTIONS} times in a row")


def corrected(name: str, change: str, attempt: Callable[[], Flow[T | None]]) -> Flow[T]:
    """Call ``attempt`` until it returns a value, and return that value.

    An attempt returns None if the server corrected it. ``change`` is the cause of the corrections, for the error.
    """
    for _ in range(MAX_CORRECTIONS):
        answer = yield from attempt()
        if answer is not None:
            return answer
    raise too_many_corrections(name, change)


def chunks(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the sequence in pieces of at most ``size``."""
    for start in range(0, len(sequence), size):
        yield sequence[start : start + size]


def text(reply: str | bytes) -> str:
    """Return a reply as str; redis-py decodes some replies itself."""
    # Another program may have written bytes that are not UTF-8.
    return reply if isinstance(reply, str) else reply.decode(errors="replace")


def copied(error: E) -> E:
    """Return a copy of the error, whose cause is the error. If it can't be copied, return the error itself."""
    try:
        copied = copy(error)
        copied.args = error.args  # the constructor may change its arguments
    except Exception:  # noqa: BLE001 - the constructor may raise anything
        return error
    copied.__cause__ = error
    return copied


def _explained(error: E, why: str) -> E:
    """Return the error with an explanation in its message."""
    error = copied(error)
    error.args = (f"{error} ({why})",)
    return error


def with_rights(text: str) -> str:
    """Return an error's text. If the server denies a right, it says where all rights are listed."""
    is_denied = _DENIED.search(text) and _RIGHTS not in text
    return f"{text} ({_RIGHTS})" if is_denied else text


def raise_explained(call: Call, error: Exception) -> Flow[None]:
    """Raise the server's error for a call, with an explanation if the cause is known.

    If the error has no code, first ask the server for its version, and raise ServerTooOld if it is too old.
    """
    if _DENIED.search(str(error)):
        raise _explained(error, _RIGHTS)
    # Classes are compared by name, because flows do not import redis-py.
    if type(error).__name__ == "OutOfMemoryError":
        full = copied(error)
        full.args = (_MEMORY_FULL,)
        raise full
    if str(error).startswith("MISCONF "):
        raise _explained(error, "make room on the server's disk, or see its log")
    if str(error).startswith("WRONGTYPE "):
        tag = text(call.key).partition("}")[0]
        raise _explained(error, f"another program has written to a key of {tag}}}")
    if type(error).__name__ == "ResponseError" and not _CODE.match(str(error)):
        ask_version = Call(("INFO", "server"), call.key, is_optional=True)
        [server] = yield [ask_version]
        # redis-py makes a dict of it.
        version = re.search(r"redis_version\W+((\d+)\.(\d+)[\d.]*)", str(server))
        if version and (int(version[2]), int(version[3])) < OLDEST_SERVER:
            raise ServerTooOld(version[1]) from error
    raise error
