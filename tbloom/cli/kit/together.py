"""Run flows of many filters together, with their calls in one write. These flows only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import redis

from tbloom.cli.kit.errors import CommandError
from tbloom.engine.flow import Call, Flow, chunks, together
from tbloom.engine.retries import CALLS_PER_NODE, Retries
from tbloom.engine.sending import node_of
from tbloom.engine.sync import Sender
from tbloom.errors import TBloomError

T = TypeVar("T")
#: Flows that run together.
_FLOWS = 100
#: Commands in one write, each of some microseconds: other clients wait for all of them.
_QUICK_PER_NODE = 400
#: The bytes that BITCOUNT reads in some microseconds.
_QUICK_BYTES = 1 << 15
#: The errors of one filter, not of the server.
ERRORS = (TBloomError, CommandError, redis.ResponseError)


def answers(
    client: Any, names: Sequence[str], flow: Callable[[str], Flow[T]]
) -> Iterator[tuple[str, T | Exception]]:
    """Yield each name with the answer of its flow, or with its error. Raise redis-py's error if the server does not answer."""
    for batch in chunks(names, _FLOWS):
        driven = together(*(_caught(flow, name) for name in batch))
        try:
            calls = next(driven)
            while True:
                calls = driven.send(_replies(client, [*calls]))
        except StopIteration as stop:
            yield from zip(batch, stop.value, strict=True)


def _caught(flow: Callable[[str], Flow[T]], name: str) -> Flow[T | Exception]:
    """Return the flow's answer, or its error."""
    try:
        return (yield from flow(name))
    except ERRORS as error:
        return error


def _replies(client: Any, calls: list[Call]) -> list[Any]:
    """Return the reply to each call, or redis-py's error. Equal calls are sent once."""
    first: dict[Any, int] = {}
    same = [first.setdefault(_identity(client, call), i) for i, call in enumerate(calls)]
    quick, slow = list[int](), list[int]()
    for place in first.values():
        (quick if _is_quick(calls[place]) else slow).append(place)
    found, sender, nodes = dict[int, Any](), Sender(client), partial(node_of, client)
    for places, per_node in (quick, _QUICK_PER_NODE), (slow, CALLS_PER_NODE):
        asked = [calls[place] for place in places]
        retries = Retries(asked, 0.0, lambda: 0.0, nodes, per_node=per_node)
        while sent := retries.next_calls():
            retries.record(sender.send(sent))
        found |= zip(places, retries.replies, strict=True)
    return [found[place] for place in same]


def _identity(client: Any, call: Call) -> Any:
    """Return equal values for equal calls. INFO is equal for all keys of a server."""
    if call.command[0] != "INFO":
        return call
    return call.command, node_of(client, call)


def _is_quick(call: Call) -> bool:
    """Return whether a call is no script, and reads few bytes."""
    if call.script:
        return False
    return (
        call.command[0] != "BITCOUNT" or int(call.command[3]) - int(call.command[2]) < _QUICK_BYTES
    )
