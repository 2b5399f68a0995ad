"""What else happens: to the time, to the server, and by other clients. Each is a move, by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tbloom.bloom.layout import Layout
from tbloom.cli.commands.restore import Part, Upload
from tests.simulation.accounts import LENGTH, SLICES
from tests.simulation.faults import cut_all
from tests.simulation.questions import add_many, clear

if TYPE_CHECKING:
    from tests.simulation.cases import Case
    from tests.simulation.world import World


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


def _clear_and_add(world: World, case: Case) -> None:
    """Another client asks both, and nothing comes between."""
    other = _other(world, case)
    for question in (clear, add_many):
        world.through(other, question(world.account.histories))


def _export(world: World, case: Case) -> None:
    """Another client makes a copy of a filter of one shard, as ``tbloom export`` does."""
    config, do = world.stores[0].config, world.server.do
    layout = Layout(config, (do("HGET", config.keys.state(0), "layout") or b"").decode())
    parts = {}
    for slice_ in config.window.live(world.account.now):
        for number, _ in enumerate(layout.parts(slice_.label)):
            data = do("GET", config.keys.slice(slice_.label, 0, number))
            if data is not None:
                leaves = config.window.expires(slice_)
                count = int(
                    do("HGET", config.keys.state(0), config.keys.field(slice_.label, number))
                )
                parts[Part(slice_.label, 0, number, leaves, len(data), count)] = data
    world.account.is_saved()
    restore = partial(_restore, world, case, layout, parts)
    world.events["another client restores the copy"] = restore


def _restore(world: World, case: Case, layout: Layout, parts: dict[Part, bytes]) -> None:
    """The same client restores it, as ``tbloom restore --replace`` does."""
    live = {part: data for part, data in parts.items() if part.expires > world.account.now}
    world.through(_other(world, case), clear(world.account.histories))
    if live:
        upload = Upload(world.server.client, world.stores[0].config)
        for part, data in live.items():
            upload.send(part, data)
        upload.install([layout], "")
        world.account.is_restored()


def _other(world: World, case: Case) -> int:
    """The number of the other client's object."""
    if world.other is None:
        world.stores.append(case.store(world, len(world.stores)))
        world.other = len(world.stores) - 1
    return world.other


EVENTS: dict[str, Callable[..., Any]] = {
    "the first object's process dies": _first_dies,
    "the slice ends": _pass,
    "half a minute passes": partial(_pass, ms=30_000),
    "the window ends": partial(_pass, ms=SLICES * LENGTH),
    "the clock is set on": partial(_step, ms=LENGTH),
    "the clock is set back": partial(_step, ms=-40_000),
    "another client clears and adds": _clear_and_add,
    "another client makes a copy": _export,
    "scripts are forgotten": _forget_scripts,
    "the server saves": _save,
}
