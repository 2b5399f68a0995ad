"""What may go wrong, and what else happens: to the time, to the server, and by other clients. Each is a move.

The moves, by the names under which schedules have them ("A" is a caller, or a call of its batch of tasks):

- ``A asks``, ``A asks again`` (after an error), ``A goes on`` (without asking again)
- ``A is answered``: the server executes its next request, and the reply arrives
- ``A: executed, the reply is slow``: the reply arrives by a later move
- ``A: cut off, ...``: the connection breaks; before that, some of its requests are executed, and the others are lost, or come
  late; then the driver sends the call again, or raises an error
- ``A: interrupted, ...``: the caller gives up by a signal, or its task is cancelled
- ``A: refused, OOM, ...``: the server executes the request while its memory is full; or READONLY, NOREPLICAS, LOADING, BUSY,
  MOVED
- ``a late request arrives``
- what else happens, each once: ``EVENTS``
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import redis

from tests.simulation.accounts import LENGTH, SLICES
from tests.simulation.callers import Caller
from tests.simulation.network import LOST, Link

if TYPE_CHECKING:
    from tests.simulation.world import Case, World

Moves = dict[str, Callable[[], None]]
#: Error replies of a server that executes nothing. (A cluster's client asks another node after MOVED, and tells of it only if
#: that goes on.)
_REFUSALS: dict[str, Exception] = {
    "LOADING": redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    "BUSY": redis.ResponseError("BUSY Redis is busy running a script."),
    "MOVED": redis.exceptions.MovedError("7 127.0.0.1:1"),
}
#: All error replies; these are the server's own, to what has something to write.
CODES = ("OOM", "READONLY", "NOREPLICAS", *_REFUSALS)


def possible_faults(world: World) -> Moves:
    """What may go wrong now, of the kinds that the case has."""
    found: Moves = {}
    for name, link in world.links().items():
        found |= _cuts(world, name, link) | _refusals(world, name, link)
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
    for code in CODES:
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
    link.error = error
    try:
        world.go_on(link)
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
    for link in [*world.network.waiting]:
        if link in world.network.waiting:  # else it has gone with another one
            break_off(world, link, 0, "lost", LOST, then="again")
    world.network.late.clear()


def add_event(world: World, case: Case, name: str) -> None:
    """Adds what a case names to what may happen."""
    times = sum(known.startswith(name) for known in world.events)
    world.events[f"{name} ({times + 1})" if times else name] = partial(EVENTS[name], world, case)


def _pass(world: World, case: Case, ms: int = LENGTH) -> None:
    """Time passes; heartbeats are sent meanwhile."""
    _beat(world, case)
    world.account.time_changes(lambda: world.server.clock.pass_by(ms))
    _beat(world, case)


def _beat(world: World, case: Case) -> None:
    """The heartbeats of the living sessions."""
    if case.has_sessions:
        for number in range(len(world.stores)):
            if number not in world.gone:
                world.through(number, world.heartbeat)


def _first_dies(world: World, case: Case) -> None:
    """The process of the first object is gone, and others know it by the time that passes."""
    world.kill(0)
    if world.network.late:
        world.account.heard_late.add(0)
    _pass(world, case, 100_000)
    world.account.time_changes(lambda: world.account.dead.add(0))
    _pass(world, case, 51_000)


def _step(world: World, _: Case, ms: int) -> None:
    world.account.time_changes(lambda: world.server.clock.step(ms))


def _forget_scripts(world: World, _: Case) -> None:
    world.server.forget_scripts()


def _save(world: World, _: Case) -> None:
    world.saved = world.server.saved()
    world.account.is_saved()
    world.events["the server restarts with what it saved"] = partial(_restart, world)


def _restart(world: World) -> None:
    world.server.restart(world.saved)
    world.account.restarts()
    cut_all(world)


EVENTS: dict[str, Callable[..., Any]] = {
    "the first object's process dies": _first_dies,
    "the slice ends": _pass,
    "the window ends": partial(_pass, ms=SLICES * LENGTH),
    "the clock is set on": partial(_step, ms=LENGTH),
    "the clock is set back": partial(_step, ms=-40_000),
    "scripts are forgotten": _forget_scripts,
    "the server saves": _save,
}
