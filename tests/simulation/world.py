"""One schedule: what is played, and by whom."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from tests.simulation.accounts import Account
from tests.simulation.callers import Caller, Question, asking, heartbeat
from tests.simulation.faults import Moves, possible_faults
from tests.simulation.network import Abandoned, Link, Network, Request
from tests.simulation.schedules import Choose

if TYPE_CHECKING:
    from tests.simulation.network import Player

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
        self.name = ""
        #: What the server has saved.
        self.saved: Any = None
        #: The objects that callers use, and others.
        self.stores: list[Any] = []
        #: The number of the other client's that events are about.
        self.other: int | None = None
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
        outcome: list[Any] = []
        before = {*self.network.waiting}
        if self.loop is not None:

            async def run() -> None:
                outcome.append(await call(store))

            context = contextvars.copy_context()
            context.run(asking.set, "player")
            task = context.run(self.loop.create_task, run())
            self.settle()
            while not task.done():
                new = [link for link in self.network.waiting if link not in before]
                assert new, "it does not end"
                for link in new:
                    self.answer(link)
            task.result()
            return outcome[0]
        return call(store)  # in this thread, in which the network answers at once

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
