"""What may go wrong, as moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import redis

from tests.simulation.callers import Caller
from tests.simulation.network import LOST, Link

if TYPE_CHECKING:
    from tests.simulation.world import World

Moves = dict[str, Callable[[], None]]
#: Error replies of a server that executes nothing; those to OOM and READONLY are the server's own.
_REFUSALS: dict[str, Exception] = {
    "LOADING": redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    "BUSY": redis.ResponseError("BUSY Redis is busy running a script."),
}


def possible_faults(world: World) -> Moves:
    """What may go wrong now, of the kinds that the case has."""
    found: Moves = {}
    for name, link in world.links().items():
        if link.requests:
            found |= _cuts(world, name, link)
            found |= _refusals(world, name, link)
    fates = [fate for fate in ("lost", "late") if fate in world.kinds]
    for caller in world.callers:
        if caller.task is not None and caller.is_waiting and "interrupt" in world.kinds:
            for fate in fates:
                text = f"{caller.name}: interrupted, requests are {fate}"
                found[text] = partial(_cancel, world, caller, fate)
        if caller.has_failed and "go on" in world.kinds:
            found[f"{caller.name} goes on"] = caller.go_on
    return found


def _cuts(world: World, name: str, link: Link) -> Moves:
    """How a connection may break: how many of its requests are executed, what becomes of the others, what the driver does."""
    found: Moves = {}
    for executed, fate, text in _fates(world, link):
        move = partial(break_off, world, link, executed, fate)
        for then in ("again", "error"):
            if then in world.kinds:
                found[f"{name}: cut off, {text}, then {then}"] = partial(move, LOST, then=then)
        if world.loop is None and "interrupt" in world.kinds:
            found[f"{name}: interrupted, {text}"] = partial(move, KeyboardInterrupt(), then="error")
    return found


def _fates(world: World, link: Link) -> Iterator[tuple[int, str, str]]:
    done, all_ = sum(request.is_executed for request in link.requests), len(link.requests)
    for executed in range(done, all_):
        for fate in ("lost", "late"):
            if fate in world.kinds:
                yield executed, fate, f"{executed} of {all_} executed, the others {fate}"
    yield all_, "lost", f"{all_} of {all_} executed"


def _refusals(world: World, name: str, link: Link) -> Moves:
    """How the server may treat the next request: slowly, or by an error reply."""
    found, [request, *_] = Moves(), link.requests
    if request.is_executed:
        return found
    if "slow" in world.kinds:
        found[f"{name}: executed, the reply is slow"] = partial(world.execute, request)
    for code in ("OOM", "READONLY", "LOADING", "BUSY"):
        for then in ("again", "error"):
            if code in world.kinds and then in world.kinds:
                found[f"{name}: refused, {code}, then {then}"] = partial(
                    _refuse, world, link, code, then
                )
    return found


def break_off(
    world: World, link: Link, executed: int, fate: str, error: BaseException, *, then: str
) -> None:
    """A connection breaks, once some of its requests were executed. ``fate``: of the others."""
    for request in [*link.requests][:executed]:
        if not request.is_executed:
            world.execute(request)
    if fate == "late":
        stores = {c.store for c in world.callers if link.name.startswith(c.name)}
        _note_copies(world, stores)
    world.tries_again, world.network.fate = then == "again", fate
    try:
        world.arrive(link, error)
    finally:
        world.tries_again, world.network.fate = False, "lost"


def _note_copies(world: World, stores: set[int]) -> None:
    """Tells the account that calls of these objects may come late, whatever their callers are answered."""
    for caller in world.callers:
        if caller.op is not None and caller.store in stores:
            world.account.echo(caller.op)


def _cancel(world: World, caller: Caller, fate: str) -> None:
    assert caller.task is not None
    if fate == "late":
        _note_copies(world, {caller.store})
    world.network.fate = fate
    caller.task.cancel()
    world.settle()
    world.network.fate = "lost"


def _refuse(world: World, link: Link, code: str, then: str) -> None:
    request = link.requests[0]
    if code in _REFUSALS:
        request.reply, request.is_executed = _REFUSALS[code], True
    else:
        with world.server.refusing(code):
            world.execute(request)
    world.tries_again = then == "again"
    try:
        world.answer(link)
    finally:
        world.tries_again = False


def cut_all(world: World) -> None:
    """The server is gone for a moment: all connections break, and drivers try again."""
    for link in world.network.waiting():
        if link.is_open and link.requests:
            break_off(world, link, 0, "lost", LOST, then="again")
    world.network.late.clear()
