"""The cases that are played: who asks what of which object, what may go wrong, and what else happens."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.distinct import dispatcher as distinct_calls
from tbloom.exact import ExactFilter
from tbloom.exact import dispatcher as exact_calls
from tests.simulation import ends
from tests.simulation.accounts import SLICES, Account, WindowAccount
from tests.simulation.callers import Caller
from tests.simulation.faults import CODES, add_event
from tests.simulation.histories import Undecided
from tests.simulation.network import AsyncPlayedClient, PlayedClient, Player
from tests.simulation.schedules import Choose
from tests.simulation.world import World

_names = (f"played-{os.getpid()}-{number}" for number in itertools.count())


class Played:
    """A store whose driver asks the player how long it may try again, and whose heartbeats are moves."""

    world: World

    def retry_seconds(self) -> float:
        return 3600.0 if self.world.tries_again else 0.0

    def _keep_session(self) -> None:
        """Nothing."""


class Bloom(Played, TimeBloom):
    """A filter for threads."""


class AsyncBloom(Played, AsyncTimeBloom):
    """A filter for tasks."""


class Exact(Played, ExactFilter):
    """An exact filter."""


class Distinct(Played, DistinctCounter):
    """A counter of distinct members."""


class AsyncDistinct(Played, AsyncDistinctCounter):
    """A counter for tasks."""


def bloom(world: World, number: int, name: str, **arguments: Any) -> Any:
    """A filter of minutes. ``is_async`` and ``is_kept``: the driver, and whether it keeps connections."""
    is_async, is_kept = arguments.pop("is_async", False), arguments.pop("is_kept", False)
    given: dict[str, Any] = {
        "granularity": "60s",
        "slices": SLICES,
        "capacity": 1000,
        "session_ttl": 150,
        "shards": 1,
    }
    kind = AsyncBloom if is_async else Bloom
    store = _made(kind, world, number, name, is_async=is_async, **{**given, **arguments})
    if is_kept:
        store._own_client()
    return store


def exact(world: World, number: int, name: str, **arguments: Any) -> Any:
    """An exact filter."""
    return _made(Exact, world, number, name, **{"ttl": 1000, **arguments})


def distinct(world: World, number: int, name: str, kind: Any = Distinct, **arguments: Any) -> Any:
    """A counter of distinct members."""
    kind = AsyncDistinct if arguments.get("is_async") else kind
    return _made(kind, world, number, name, f"{name}-ids", **arguments)


def _made(
    kind: Any, world: World, number: int, *names: str, is_async: bool = False, **arguments: Any
) -> Any:
    store = kind(
        client_of(world.player, number, is_async=is_async), *names, **arguments, retry_for=1
    )
    store.world = world
    return store


def client_of(player: Player, number: int, *, is_async: bool = False) -> Any:
    """The client of the object with this number, which is kept from schedule to schedule."""
    key = ("async" if is_async else "sync", number)
    if key not in player.clients:
        player.clients[key] = (AsyncPlayedClient if is_async else PlayedClient)(player)
    return player.clients[key]


#: Kinds of faults (see ``World``).
CUTS = frozenset({"lost", "late", "again", "error"})
ALL = CUTS | {"slow", "interrupt", "go on", *CODES}


@dataclass(frozen=True)
class Case:
    """``callers``: of each the number of its object, and what it asks; ``arguments``: of each object."""

    name: str
    items: str
    callers: Iterable[tuple[Any, ...]]
    arguments: dict[str, Any] = field(default_factory=dict)
    faults: int = 1
    kinds: frozenset[str] = CUTS
    events: tuple[str, ...] = ()
    make: Callable[..., Any] = bloom
    account: Callable[..., Account] = WindowAccount
    end: Callable[[World, Case], None] = ends.of_window
    is_async: bool = False
    #: Objects claim items: heartbeats are sent while time passes.
    has_sessions: bool = False
    #: False: only ``test_found`` plays schedules of it.
    is_played: bool = True
    #: All schedules are played, if there is time.
    exhaustive: bool = False
    #: So many items fill a bucket of a store that has some.
    in_bucket: int = 80
    #: What is in the store at the beginning.
    before: Callable[[World, Case], None] | None = None

    def store(self, world: World, number: int, **more: Any) -> Any:
        """An object of the case's store."""
        arguments = {**self.arguments, **more}
        if self.is_async:
            arguments["is_async"] = True
        return self.make(world, number, arguments.pop("name", world.name), **arguments)

    def play(self, player: Player, choose: Choose) -> World:
        """Plays one schedule. Raises Broken, with its moves, where a promise is broken."""
        clock = player.server.clock
        player.server.begin()
        random.seed(1)  # the library's choices by chance are the same when it is played again
        world = World(player, self.account(clock, self.items.split()), self.faults, self.kinds)
        world.name = next(_names)
        for module in exact_calls, distinct_calls:
            module._MAX_ENTRIES = self.in_bucket
        if self.is_async:
            world.loop = player.loop
        player.played += 1
        try:
            numbers = range(1 + max(number for number, *_ in self.callers))
            world.stores = [self.store(world, number) for number in numbers]
            if self.before:
                self.before(world, self)
            world.callers = [
                Caller(world, chr(ord("A") + at), number, parts)
                for at, (number, *parts) in enumerate(self.callers)
            ]
            for event in self.events:
                add_event(world, self, event)
            world.play(choose)
            self.end(world, self)
        except Undecided:
            player.undecided += 1
        except Exception as error:
            raise Broken(self, world.log, error) from error
        finally:
            world.end()
        return world


class Broken(AssertionError):
    """A schedule in which a promise is broken."""

    def __init__(self, case: Case, moves: list[str], error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.case, self.moves = case, moves
