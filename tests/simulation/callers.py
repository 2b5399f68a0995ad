"""Who asks: a caller is a thread or a task, which asks one question after another of an object of the library; and the questions:
the verbs of the library, each with its arguments by item and what it answers of each."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import redis
from greenlet import greenlet

from tbloom import Claim
from tbloom.claims.notes import History, Note, Taken
from tests.simulation.accounts import IS_OVER, LENGTH, taken_after
from tests.simulation.histories import Op
from tests.simulation.network import Abandoned
from tests.simulation.server import START_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The name of the caller whose task, or task's task, this is.
asking = contextvars.ContextVar("asking", default="")


class Question(NamedTuple):
    """A verb, its arguments by item, and how it is called."""

    verb: str
    arguments: dict[str, Any]
    call: Callable[[Any], Any]
    #: The answers by item, from what the verb returned.
    read: Callable[[Any], dict[str, Any]]


#: Questions that follow from the answers, which it is sent.
Program = Generator[Question, Any, None]
#: What a caller asks.
Part = Question | Callable[[], Program]


def _asking(parts: Iterable[Part]) -> Program:
    """Asks one after another."""
    for part in parts:
        if isinstance(part, Question):
            yield part
        else:
            yield from part()


class Caller:
    """A thread, or a task, that asks one question after another of an object, each until it has its answer."""

    def __init__(self, world: World, name: str, store: int, parts: Iterable[Part]) -> None:
        self.name, self.store, self._world, self._program = name, store, world, _asking(parts)
        self.question: Question | None = next(self._program, None)
        self.op: Op | None = None
        self.has_failed = self.is_gone = False
        #: What it got: ("answer", ...) or ("error", ...).
        self.outcome: tuple[str, Any] | None = None
        self.thread: greenlet | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is in a call."""
        return self.op is not None

    def ask(self) -> None:
        """Begins, or begins anew."""
        assert self.question is not None
        self.has_failed = False
        self.op = self._world.account.begins(
            self.store, self.question.verb, self.question.arguments
        )
        store, call = self._world.stores[self.store], self.question.call
        if self._world.loop is not None:
            self.task = self._world.task(self.name, self._await(call, store))
        else:
            self.thread = greenlet(partial(self._run, call, store))
            self._world.callers_of[self.thread] = self
            self.thread.switch()

    def _run(self, call: Callable[[Any], Any], store: Any) -> None:
        try:
            self.outcome = "answer", call(store)
        except BaseException as error:  # noqa: BLE001 - a signal's, too
            self.outcome = "error", error

    async def _await(self, call: Callable[[Any], Any], store: Any) -> None:
        try:
            self.outcome = "answer", await call(store)
        except BaseException as error:  # noqa: BLE001 - a cancellation
            self.outcome = "error", error

    def conclude(self) -> None:
        """Tells the account of an outcome, and goes on."""
        assert self.question is not None
        assert self.op is not None
        assert self.outcome is not None
        (kind, what), op, self.outcome, self.op = self.outcome, self.op, None, None
        self.thread = None
        account = self._world.account
        if kind == "answer":
            account.answered(op, self.question.read(what))
            self._next(what)
        elif isinstance(what, redis.RedisError | KeyboardInterrupt | asyncio.CancelledError):
            account.failed(op)
            self.has_failed = True
        elif not isinstance(what, Abandoned):
            raise what

    def go_on(self) -> None:
        """Does not ask again."""
        self.has_failed = False
        self._next(None)

    def _next(self, answer: Any) -> None:
        try:
            self.question = self._program.send(answer)
        except StopIteration:
            self.question = None


def ask(
    verb: str, item: str, *more: Any, told: Any = None, read: Any = lambda got: got, **how: Any
) -> Question:
    """A verb of one item. ``told``: what the model is told, if it is not ``how``; ``read``: its answer, from what the verb returned."""
    return Question(
        verb,
        {item: how if told is None else told},
        lambda s: getattr(s, verb)(item, *more, **how),
        lambda got: {item: read(got)},
    )


def ask_many(verb: str, items: Iterable[str], *more: Any, told: Any = None, **how: Any) -> Question:
    """A verb of several items, in one call that answers something of each."""
    all_ = [*items]
    return Question(
        verb,
        dict.fromkeys(all_, how if told is None else told),
        lambda s: getattr(s, verb)(all_, *more, **how),
        lambda got: dict(zip(all_, got, strict=True)),
    )


def of_all(verb: str, items: Iterable[str], *arguments: Any, **told: Any) -> Question:
    """A verb that is about all items, and answers nothing."""
    all_ = dict.fromkeys(items, told)
    return Question(
        verb, all_, lambda s: getattr(s, verb)(*arguments), lambda _: dict.fromkeys(all_)
    )


def _slice_of(interval: Any) -> int | None:
    return interval and round(interval.start.timestamp() * 1000) // LENGTH


#: Is the item new? Is it remembered, and in which slice?
add, contains = partial(ask, "add"), partial(ask, "contains")
add_many, contains_many = partial(ask_many, "add_many"), partial(ask_many, "contains_many")
last_seen = partial(ask, "last_seen", read=_slice_of)
#: Forgets everything. Keeps the session alive, and repeats what has failed.
clear, heartbeat = partial(of_all, "clear"), partial(of_all, "_send_heartbeat")


def import_many(items: Iterable[str], age: int = 0) -> Question:
    """Remembers the items in the slice that was current so many slices before the schedule began."""
    all_, number = [*items], START_MS // LENGTH - age
    given = (all_, label_of(number)) if age else (all_,)
    return of_all("import_many", all_, *given, slice_=number if age else None)


def claim(item: str, *, note: bool = False) -> Question:
    """May I work on the item?"""
    how = {"note": item} if note else {}
    return ask("claim", item, told={"deaths": 0 if note else None}, **how)


def note_history(note: Note) -> Question:
    """Work on the item begins, so that who dies now has died of it."""
    deaths = note.deaths
    return of_all("note_history", [note.text], {note.text: History(deaths=deaths)}, deaths=deaths)


def push(item: str) -> Question:
    """Leaves the item to who takes it. (Its note is the item.)"""
    return ask("push", item, item)


def push_many(items: Iterable[str], *, deaths: int = 0) -> Question:
    """The same of several items, in one call."""
    notes = [Note(item, deaths=deaths) for item in items]
    return ask_many("push_many", items, notes, told={"deaths": deaths})


def leave(item: str) -> Question:
    """Leaves a claimed item to who takes it."""
    return of_all("leave_many", [item], [item])


def take(items: Iterable[str], *, idle: bool = True, sure: bool = False) -> Question:
    """Which of these items are left? Of each that is taken, how many have died; False: nothing is left; None: others were taken.
    ``sure``: no session has died since the last count."""

    def read(taken: Taken) -> dict[str, Any]:
        found = {note.text: taken_after(note.deaths) for note in taken.notes}
        assert len(found) == len(taken.notes), f"taken twice by one call: {taken.notes}"
        answers = {item: found.get(item, None if found else False) for item in items}
        return {**answers, IS_OVER: taken.is_over}

    how = {"sure": True} if sure else {}
    return Question(
        "take", {item: {"idle": idle, **how} for item in items}, lambda s: s.take(idle=idle), read
    )


def taking(
    items: Iterable[str], end: str = "commit", *, idle: bool = True, notes: bool = False
) -> Callable[[], Program]:
    """Takes what is left, twice, and ends the claims by that verb: at the second time by a commit. ``notes``: first the claims get
    the number of deaths."""

    def program() -> Program:
        for verb in end, "commit":
            taken = yield take(items, idle=idle)
            for note in taken.notes if taken else []:
                if notes:
                    yield note_history(note)
                yield leave(note.text) if verb == "leave_many" else ask(verb, note.text)

    return program


def working(item: str, end: str, *, note: bool = False) -> Callable[[], Program]:
    """Claims the item, and if it is new, ends the claim by that verb."""

    def program() -> Program:
        if (yield claim(item, note=note)) is Claim.NEW:
            yield leave(item) if end == "leave_many" else ask(end, item)

    return program


def label_of(number: int) -> str:
    """The label of a slice, by its number since the epoch."""
    return datetime.fromtimestamp(number * LENGTH // 1000, UTC).strftime("%Y%m%dT%H%M%S")
