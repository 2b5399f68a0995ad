"""One schedule: what is played, and by whom; and the cases, of which schedules are played."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from greenlet import getcurrent, greenlet

from tbloom import AsyncTimeBloom, TimeBloom
from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tbloom.distinct import dispatcher as distinct_calls
from tbloom.exact import AsyncExactFilter, ExactFilter
from tbloom.exact import dispatcher as exact_calls
from tests.simulation import ends
from tests.simulation.accounts import SLICES, Account, ExactAccount, WindowAccount
from tests.simulation.callers import Caller, Question, asking, heartbeat
from tests.simulation.faults import CODES, Moves, add_event, possible_faults
from tests.simulation.histories import Undecided
from tests.simulation.network import Abandoned, Link, Network, Player, Request
from tests.simulation.playing import Choose

#: More moves are no schedule: somebody asks without end.
_MOST_MOVES = 2_000


class World:
    """One schedule: its callers, objects, requests on their way, and what was played."""

    def __init__(
        self, player: Player, account: Account, faults: int, kinds: frozenset[str]
    ) -> None:
        self.player, self.account, self.faults, self.kinds = player, account, faults, kinds
        self.server = player.server
        self.network = player.network = Network(self._park, self._user)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.name = "played"
        #: What the server has saved.
        self.saved: Any = None
        #: The objects that callers use, and others.
        self.stores: list[Any] = []
        #: The numbers of those whose processes are gone.
        self.gone = set[int]()
        #: What a living session sends from time to time.
        self.heartbeat = heartbeat(account.histories)
        self.callers: list[Caller] = []
        #: Each thread's.
        self.callers_of: dict[greenlet, Caller] = {}
        #: What else may happen, each once, by its name.
        self.events: Moves = {}
        self.log: list[str] = []
        #: Whether a driver tries again, where it asks how long it may.
        self.tries_again = False

    # The connections' side

    def _park(self, link: Link) -> None:
        thread = getcurrent()
        if thread.parent is None:  # the player's own
            self.answer(link)
        else:
            link.thread = thread
            thread.parent.switch()

    def _user(self) -> str:
        caller = self.callers_of.get(getcurrent())
        return caller.name if caller is not None else asking.get()

    # The player's side

    def play(self, choose: Choose) -> None:
        """Plays to the end. Raises AssertionError where a promise is broken."""
        for _ in range(_MOST_MOVES):
            usual, faults = self._usual(), possible_faults(self) if self.faults > 0 else {}
            if not usual:
                return
            names = [*usual, *faults]
            name = choose(names, len(faults))
            self.log.append(name)
            self.account.moves += 1
            if name in faults:
                self.faults -= 1
                faults[name]()
            else:
                usual[name]()
            self._conclude()
        raise AssertionError("the schedule has no end")

    def _conclude(self) -> None:
        for caller in self.callers:
            if caller.outcome is not None:
                caller.conclude()
        if not self.network.late:
            self.account.nothing_is_late()

    def links(self) -> dict[str, Link]:
        """The connections whose readers wait, by the names of their users."""
        found: dict[str, Link] = {}
        for link in sorted(self.network.waiting, key=attrgetter("name")):
            names = itertools.chain([link.name], (f"{link.name}{i}" for i in itertools.count(2)))
            found[next(name for name in names if name not in found)] = link
        return found

    def _usual(self) -> Moves:
        found: Moves = {}
        for name, link in self.links().items():
            found[f"{name} is answered"] = partial(self.answer, link)
        for caller in self.callers:
            if caller.question is not None and not caller.is_waiting and not caller.is_gone:
                again = " again" if caller.has_failed else ""
                found[f"{caller.name} asks{again}"] = partial(self._ask, caller)
        if self.network.late:
            found["a late request arrives"] = self._late
        for name, event in self.events.items():
            found[name] = partial(self._happen, name, event)
        return found

    def _happen(self, name: str, event: Callable[[], None]) -> None:
        del self.events[name]
        event()
        self.settle()

    def _ask(self, caller: Caller) -> None:
        caller.ask()
        self.settle()

    def answer(self, link: Link) -> None:
        """The server executes the next request, and its reply arrives."""
        request = link.requests[0]
        if not request.is_executed:
            self.execute(request)
        link.replies.append(link.requests.popleft().reply)
        self.go_on(link)

    def execute(self, request: Request) -> None:
        """The server executes a request."""
        request.reply, request.is_executed = self.server.execute(request.words), True

    def go_on(self, link: Link) -> None:
        """Who waits goes on, with all replies or an error."""
        if link.has_ended and link.thread is not None:
            link.thread.switch()
        elif link.has_ended and link.future is not None:
            link.future.set_result(None)
        self.settle()

    def _late(self) -> None:
        self.server.execute(self.network.late.pop(0).words)

    def settle(self) -> None:
        """Runs asyncio's tasks until all wait for the player."""
        loop: Any = self.loop
        if loop is not None:
            while True:
                loop.call_soon(loop.stop)
                loop.run_forever()
                if not loop._ready:
                    return

    def kill(self, store: int) -> None:
        """The process with this object is gone, in the midst of its calls."""
        self.gone.add(store)
        self.stores[store]._is_closed = True  # what its tasks wait for is not sent any more
        for caller in self.callers:
            if caller.store == store:
                caller.is_gone, caller.has_failed = True, False
                if caller.thread is not None:
                    _unwind(caller.thread)
                    caller.thread = None
                if caller.task is not None:
                    caller.task.cancel()
                    self.settle()
                if caller.op is not None:
                    self.account.failed(caller.op)
                caller.op = caller.outcome = caller.question = None
        if self.loop is not None:
            for task in asyncio.all_tasks(self.loop):
                if _shares(task, self.stores[store]):
                    task.cancel()
            self.settle()

    def through(self, store: int, question: Question) -> Any:
        """Asks without any fault, and tells the account."""
        op = self.account.begins(store, question.verb, question.arguments)
        answer = self.undisturbed(self.stores[store], question.call)
        self.account.answered(op, question.read(answer))
        return answer

    def undisturbed(self, store: Any, call: Callable[[Any], Any]) -> Any:
        """The answer of a call that nothing comes between."""
        if self.loop is None:
            return call(store)  # in this thread, in which the network answers at once
        before = {*self.network.waiting}
        task = self.task("player", call(store))
        self.settle()
        while not task.done():
            new = [link for link in self.network.waiting if link not in before]
            assert new, "it does not end"
            for link in new:
                self.answer(link)
        return task.result()

    def task(self, name: str, call: Awaitable[Any]) -> asyncio.Task[Any]:
        """A task in which this caller awaits a call."""

        async def run() -> Any:
            return await call

        assert self.loop is not None
        context = contextvars.copy_context()
        context.run(asking.set, name)
        return self.loop.create_task(run(), context=context)

    def end(self) -> None:
        """Unwinds what still waits."""
        if self.loop is not None:
            loop = self.loop
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            self.settle()
            for store in self.stores:
                loop.run_until_complete(store._stop_retrying())
        else:
            for thread in self.callers_of:
                _unwind(thread)
            for store in self.stores:
                store._stop_retrying()


def _shares(task: asyncio.Task[Any], store: Any) -> bool:
    """Whether the task sends a shared call of the object."""
    coroutine: Any = task.get_coro()
    waiting = coroutine.cr_frame.f_locals.get("waiting") if coroutine.cr_frame else None
    return bool(waiting) and waiting[0].call.run.__self__ is store


def _unwind(thread: greenlet) -> None:
    """Ends a thread, whatever it still tries."""
    while thread:
        thread.throw(Abandoned)


class Played:
    """A store whose driver asks the player how long it may try again, and whose heartbeats are moves."""

    world: World

    def retry_seconds(self) -> float:
        return 3600.0 if self.world.tries_again else 0.0

    def _keep_session(self) -> None:
        """Nothing."""


class Kind:
    """A kind of store, for threads and for tasks; what each has for arguments; its promises, and what is looked at in the end."""

    def __init__(
        self,
        sync: type,
        aio: type,
        account: Callable[..., Account],
        end: Callable[[World, Case], None],
        *,
        has_mapping: bool = False,
        **arguments: Any,
    ) -> None:
        self.sync, self.aio = (type("Played", (Played, made), {}) for made in (sync, aio))
        self.account, self.end = account, end
        self.has_mapping, self.arguments = has_mapping, arguments


#: A filter of minutes, an exact filter, and a counter of distinct members.
BLOOM = Kind(
    TimeBloom,
    AsyncTimeBloom,
    WindowAccount,
    ends.of_window,
    granularity="60s",
    slices=SLICES,
    capacity=1000,
    session_ttl=150,
    shards=1,
)
EXACT = Kind(ExactFilter, AsyncExactFilter, ExactAccount, ends.of_exact, ttl=1000)
DISTINCT = Kind(
    DistinctCounter, AsyncDistinctCounter, ExactAccount, ends.of_distinct, has_mapping=True
)


#: Kinds of faults (see ``World``).
CUTS = frozenset({"lost", "late", "again", "error"})
ALL = CUTS | {"slow", "interrupt", "go on", *CODES}


@dataclass(frozen=True)
class Case:
    """What is played: ``callers``: of each the number of its object, and what it asks; ``arguments``: of each object (``is_kept``: it
    makes its own connections)."""

    name: str
    items: str
    callers: Iterable[tuple[Any, ...]]
    arguments: dict[str, Any] = field(default_factory=dict)
    faults: int = 1
    kinds: frozenset[str] = CUTS
    events: tuple[str, ...] = ()
    kind: Kind = BLOOM
    #: How its schedules end, if not as those of its kind.
    end: Callable[[World, Case], None] | None = None
    is_async: bool = False
    #: Objects claim items: heartbeats are sent while time passes.
    has_sessions: bool = False
    #: False: only schedules in found.txt are played of it.
    is_played: bool = True
    #: So many items fill a bucket of a store that has some.
    in_bucket: int = 80
    #: What is in the store at the beginning.
    before: Callable[[World, Case], None] | None = None

    def store(self, world: World, number: int) -> Any:
        """An object of the case's store."""
        given = {**self.kind.arguments, **self.arguments}
        is_kept = given.pop("is_kept", False)
        names = [world.name, f"{world.name}-ids"][: 1 + self.kind.has_mapping]
        client = world.player.client_of(number, is_async=self.is_async)
        made: Any = self.kind.aio if self.is_async else self.kind.sync
        store = made(client, *names, **given, retry_for=1)
        store.world = world
        if is_kept:
            store._own_client()
        return store

    def play(self, player: Player, choose: Choose) -> World:
        """Plays one schedule. Raises Broken, with its moves, where a promise is broken."""
        clock = player.server.clock
        player.server.begin()
        random.seed(1)  # the library's choices by chance are the same when it is played again
        world = World(player, self.kind.account(clock, self.items.split()), self.faults, self.kinds)
        for module in exact_calls, distinct_calls:
            module._MAX_ENTRIES = self.in_bucket
        if self.is_async:
            world.loop = player.loop
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
            (self.end or self.kind.end)(world, self)
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
