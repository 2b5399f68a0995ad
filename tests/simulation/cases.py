"""The cases that are played: which callers ask what of which store, and what happens beside them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tbloom import AsyncTimeBloom, Claim, TimeBloom
from tbloom.distinct import DistinctCounter
from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers.flows import flow_of
from tests.simulation.accounts import Account, ClaimAccount
from tests.simulation.choosing import Choose
from tests.simulation.player import REFUSALS, Caller, Program, Question, World, run
from tests.simulation.server import Server
from tests.simulation.tasks import TaskCaller, TaskWorld

_names = (f"played-{os.getpid()}-{number}" for number in itertools.count())
#: A session without a heartbeat for so long is dead (s).
_SESSION_TTL = 5


class Played(TimeBloom):
    """A filter whose heartbeats are moves, not a thread's."""

    def _keep_session(self) -> None:
        """Nothing."""


def bloom(server: Server, name: str, **arguments: Any) -> Played:
    """A filter of minutes: what is added is seen for three more slices, of which schedules end one or two."""
    given = {"granularity": "60s", "slices": 4, "session_ttl": _SESSION_TTL, **arguments}
    return Played(server.client, name, **given)


def small(server: Server, name: str, **arguments: Any) -> Played:
    """One that is full after two items, and grows."""
    return bloom(server, name, capacity=2, **arguments)


def exact(server: Server, name: str) -> ExactFilter:
    """An exact filter of an hour."""
    return ExactFilter(server.client, name, ttl=3600)


def distinct(server: Server, name: str) -> DistinctCounter:
    """A counter that never forgets."""
    return DistinctCounter(server.client, name, f"{name}-ids")


def asking(*questions: Question) -> Program:
    """Asks these, one after another."""
    for question in questions:  # noqa: UP028 - a tuple takes no answers
        yield question


def tasks_of(kind: Any, server: Server, name: str, **arguments: Any) -> Any:
    """A store for asyncio's tasks. (Its client connects to nothing.)"""
    return kind(server.async_client, name, **arguments)


def adding(*items: str) -> Program:
    """Adds items one by one."""
    return asking(*(("add", (item,)) for item in items))


def adding_many(*batches: Iterable[str]) -> Program:
    """Adds items in batches."""
    return asking(*(("add_many", ((*batch,),)) for batch in batches))


def working(*ends: tuple[str, str]) -> Program:
    """Claims each item, and where it is new, ends its claim by the verb beside it."""
    for item, end in ends:
        if (yield "claim", (item,)) is Claim.NEW:
            yield end, ([item] if end.endswith("_many") else item,)


@dataclass(frozen=True)
class Case:
    """``callers``: the number of each one's store, and what it asks; ``also``: what else happens, once."""

    name: str
    make: Callable[..., Any]
    callers: Callable[[], list[tuple[int, Program]]]
    faults: int
    also: tuple[str, ...] = ()
    account: Callable[..., Any] = Account
    #: The error replies that it may get.
    refusals: tuple[str, ...] = (*REFUSALS,)
    #: The store is there, and its clients know it.
    is_known: bool = False
    #: Makes the stores of asyncio's tasks; the callers are tasks then.
    tasks: Callable[..., Any] | None = None

    def world(self, server: Server) -> World:
        """The callers before their first move."""
        server.begin()
        name = next(_names)
        make = partial(self.make, server, name)
        kind = TaskWorld if self.tasks else World
        world = kind(server, self.account(server, make, name), self.faults)
        world.refusals = {code: REFUSALS[code] for code in self.refusals}
        programs = self.callers()
        numbers = [number for number, _ in programs]
        make_store = partial(self.tasks, server, name) if self.tasks else make
        stores = [make_store() for _ in range(1 + max(numbers))]
        if self.is_known:
            world.account.begins(stores)
        for at, (number, program) in enumerate(programs):
            label, store = chr(ord("A") + at), stores[number]
            if isinstance(world, TaskWorld):
                world.callers.append(TaskCaller(label, world, store, program))
            else:
                is_alone = numbers.count(number) == 1
                world.callers.append(Caller(label, world, store, program, is_alone=is_alone))
        if isinstance(world, TaskWorld):
            world.join(stores)
        for what in self.also:
            if server.has_clock or what not in _CLOCKS:
                world.also[what] = partial(_ALSO[what], world, stores)
        return world

    def play(self, server: Server, choose: Choose) -> World:
        """Plays one schedule. Raises AssertionError, with the world's moves as its note, where the account does not hold."""
        world = self.world(server)
        try:
            world.play(choose)
            world.account.close(world.callers)
        except Exception as error:
            raise Failed(world.log, error) from error
        return world


class Failed(AssertionError):
    """A schedule whose account does not hold."""

    def __init__(self, moves: list[str], error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.moves = moves


def _slice_ends(world: World, _: list[Any]) -> None:
    world.server.move_clock(60)


def _clock_steps_back(world: World, _: list[Any]) -> None:
    world.server.move_clock(-2)


def _scripts_are_forgotten(world: World, _: list[Any]) -> None:
    world.server.forget_scripts()


def _another_clears(world: World, _: list[Any]) -> None:
    world.account.clears()


def _first_session_dies(world: World, stores: list[Any]) -> None:
    """Its heartbeats have stopped; the others' have not."""
    world.server.move_clock(_SESSION_TTL + 1)
    world.account.dies(stores[0])
    for store in stores[1:]:
        run(world.server, flow_of(store, "_send_heartbeat"))


_ALSO: dict[str, Callable[..., None]] = {
    "the slice ends": _slice_ends,
    "the clock steps back": _clock_steps_back,
    "scripts are forgotten": _scripts_are_forgotten,
    "another client clears": _another_clears,
    "the first session dies": _first_session_dies,
}
_CLOCKS = {"the slice ends", "the clock steps back", "the first session dies"}

_LOOSE = partial(Account, counts=False, leaves=False)


def _two(program: Callable[[], Program], stores: tuple[int, int]) -> Callable[[], Any]:
    return lambda: [(number, program()) for number in stores]


def _alphabet(size: int) -> Callable[[], list[tuple[int, Program]]]:
    """Four callers on two stores, who add the same items in other orders and batches."""
    items = [f"item {number}" for number in range(size)]
    half, third = size // 2, size // 3
    return lambda: [
        (0, adding_many(items[:half], items[third:])),
        (0, adding(*items[:third], items[-1])),
        (1, adding_many(items[::2], items[1::2])),
        (1, adding_many(items[::-1])),
    ]


_STORES = {"bloom": bloom, "small": small, "exact": exact, "distinct": distinct}
_ACCOUNTS: dict[str, Any] = {"distinct": _LOOSE, "exact": partial(Account, counts=False)}

#: One that passes by itself.
_FEW = ("LOADING",)
#: Of these, all schedules are played.
SMALL = [
    Case(
        f"{kind}: two {whose} add one item",
        make,
        _two(partial(adding, "x"), stores),
        1,
        account=_ACCOUNTS.get(kind, Account),
        refusals=_FEW,
        is_known=True,
    )
    for kind, make in _STORES.items()
    for whose, stores in (("threads", (0, 0)), ("clients", (0, 1)))
]
SMALL += [
    Case(
        f"{kind}: two clients add overlapping batches",
        make,
        lambda: [(0, adding_many("ab")), (1, adding_many("bc"))],
        1,
        account=_ACCOUNTS.get(kind, Account),
        refusals=_FEW,
        is_known=True,
    )
    for kind, make in _STORES.items()
]
SMALL += [
    Case(
        f"claims: one {end}s, one works",
        bloom,
        lambda end=end: [(0, working(("x", end))), (1, working(("x", "commit")))],
        1,
        account=ClaimAccount,
        refusals=_FEW,
        is_known=True,
    )
    for end in ("commit", "release")
]

#: Of these, random ones, for a time.
_MUCH = ("the slice ends", "the clock steps back", "scripts are forgotten")
LARGE = [
    Case(
        f"{kind}: four callers{', ' * bool(also)}{also}",
        make,
        _alphabet(9),
        6,
        (*_MUCH, *filter(None, [also])),
        _ACCOUNTS.get(kind, Account),
    )
    for kind, make in _STORES.items()
    for also in ("", "another client clears")
]
LARGE += [
    Case(
        f"claims in {kind}: four callers, the first session dies",
        make,
        lambda: [
            (0, working(("x", "commit"), ("y", "release"))),
            (0, working(("y", "commit"), ("z", "abandon_many"))),
            (1, working(("x", "release"), ("z", "commit"))),
            (2, working(("z", "commit"), ("x", "commit"), ("y", "commit"))),
        ],
        5,
        (*_MUCH, "the first session dies"),
        ClaimAccount,
    )
    for kind, make in (("bloom", bloom), ("small", small))
]
TASKS = {
    "bloom": (bloom, partial(tasks_of, AsyncTimeBloom, granularity="60s", slices=4)),
    "small": (small, partial(tasks_of, AsyncTimeBloom, granularity="60s", slices=4, capacity=2)),
    "exact": (exact, partial(tasks_of, AsyncExactFilter, ttl=3600)),
}
LARGE += [
    Case(
        f"{kind}: six tasks",
        make,
        lambda: [(number % 2, adding(*"abcde"[number:], *"abcde"[:number])) for number in range(6)],
        6,
        _MUCH,
        _ACCOUNTS.get(kind, Account),
        tasks=tasks,
    )
    for kind, (make, tasks) in TASKS.items()
]
#: All of them by their names.
CASES = {case.name: case for case in [*SMALL, *LARGE]}
