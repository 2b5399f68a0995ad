"""What callers ask: the verbs of the library, each with its arguments by item and what it answers of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from typing import Any

from tbloom import Claim
from tests.simulation.accounts import LENGTH
from tests.simulation.callers import Program, Question
from tests.simulation.server import START_MS


def ask(verb: str, item: str, **how: Any) -> Question:
    """A verb of one item that answers something, or nothing."""
    return Question(
        verb, {item: how}, lambda s: getattr(s, verb)(item, **how), lambda got: {item: got}
    )


def ask_many(verb: str, items: Iterable[str], **how: Any) -> Question:
    """A verb of several items, in one call that answers something of each."""
    all_ = [*items]
    return Question(
        verb,
        dict.fromkeys(all_, how),
        lambda s: getattr(s, verb)(all_, **how),
        lambda got: dict(zip(all_, got, strict=True)),
    )


def of_all(verb: str, items: Iterable[str], *arguments: Any) -> Question:
    """A verb that is about all items, and answers nothing."""
    all_ = {item: dict[str, Any]() for item in items}
    return Question(
        verb, all_, lambda s: getattr(s, verb)(*arguments), lambda _: dict.fromkeys(all_)
    )


#: Is the item new? Is it remembered?
add, contains = partial(ask, "add"), partial(ask, "contains")
add_many, contains_many = partial(ask_many, "add_many"), partial(ask_many, "contains_many")
#: Forgets everything. Keeps the session alive, and repeats what has failed.
clear, heartbeat = partial(of_all, "clear"), partial(of_all, "_send_heartbeat")


def last_seen(item: str) -> Question:
    """In which slice is it remembered?"""
    return Question(
        "last_seen",
        {item: {}},
        lambda s: s.last_seen(item),
        lambda got: {item: got and round(got.start.timestamp() * 1000) // LENGTH},
    )


def import_many(items: Iterable[str], age: int = 0) -> Question:
    """Remembers the items in the slice that was current so many slices before the schedule began."""
    all_, number = [*items], START_MS // LENGTH - age
    return Question(
        "import_many",
        {item: {"slice_": number if age else None} for item in all_},
        lambda s: s.import_many(all_, label_of(number) if age else None),
        lambda _: dict.fromkeys(all_),
    )


def claim(item: str, *, note: bool = False) -> Question:
    """May I work on the item?"""
    how = {"note": item} if note else {}
    return Question(
        "claim", {item: {"note": note}}, lambda s: s.claim(item, **how), lambda got: {item: got}
    )


def take_over(items: Iterable[str], *, all_: bool = False) -> Question:
    """Which items have dead sessions left? (Each one's note is the item.)"""
    how = {"all_": True} if all_ else {}
    return Question(
        "take_over",
        dict.fromkeys(items, how),
        lambda s: s.take_over(),
        lambda notes: {item: item in notes for item in items},
    )


def taking_over(items: Iterable[str]) -> Callable[[], Program]:
    """Does the work that others have left, twice."""

    def program() -> Program:
        for _ in range(2):
            for item in (yield take_over(items)) or []:
                yield ask("commit", item)

    return program


def working(item: str, end: str, *, note: bool = False) -> Callable[[], Program]:
    """Claims the item, and if it is new, ends the claim by that verb."""
    how = {"abandon_many": of_all(end, [item], [item])}

    def program() -> Program:
        if (yield claim(item, note=note)) is Claim.NEW:
            yield how.get(end, ask(end, item))

    return program


def label_of(number: int) -> str:
    """The label of a slice, by its number since the epoch."""
    return datetime.fromtimestamp(number * LENGTH // 1000, timezone.utc).strftime("%Y%m%dT%H%M%S")
