"""A flow, driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.client import NEVER_DECODE

from tbloom.engine.flow import Call
from tbloom.engine.methods import verb


def replies_to(client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
    """What the server says to a flow's calls."""
    in_full = [call.with_text() for call in calls]
    return [client.execute_command(*call.command, **{NEVER_DECODE: True}) for call in in_full]


def run(client: redis.Redis, flow: Any, replies: Any = None) -> tuple[Any, int]:
    """What the flow answers, after these replies, and how many scripts it called."""
    scripts = 0
    while True:
        try:
            calls = flow.send(replies)
        except StopIteration as end:
            return end.value, scripts
        scripts += sum(bool(call.script) for call in calls)
        replies = replies_to(client, calls)


def keys_of(call: Call) -> tuple[Any, ...]:
    """The keys of a call of a script."""
    return call.command[3 : 3 + int(call.command[2])]


def sent(client: redis.Redis, flow: Any) -> list[Call]:
    """Runs the flow; returns the script calls that it made."""
    calls, made = next(flow), list[Call]()
    with suppress(StopIteration):
        while True:
            made += [call for call in calls if call.script]
            calls = flow.send(replies_to(client, calls))
    return made


def lose(client: redis.Redis, flow: Any) -> None:
    """The server executes the flow's first calls, and the replies to them are lost."""
    replies_to(client, next(flow))
    with suppress(redis.ConnectionError):
        flow.throw(redis.ConnectionError())


def until(client: redis.Redis, flow: Any, script: str) -> list[Call]:
    """Runs the flow until it calls the script; returns these calls, which are not made."""
    calls: list[Call] = next(flow)
    while script not in map(script_of, calls):
        calls = flow.send(replies_to(client, calls))
    return calls


def script_of(call: Call) -> str:
    """The name of the script that a call is one of; '' for a plain command."""
    return call.script.name if call.script else ""


def flow_of(store: Any, name: str, *args: Any, **arguments: Any) -> Any:
    """The flow of a store's verb."""
    kinds = type(store).__mro__
    declared = next(vars(kind)[name] for kind in kinds if isinstance(vars(kind).get(name), verb))
    return declared.flow(store, *args, **arguments)
