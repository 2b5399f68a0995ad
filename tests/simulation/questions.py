"""What callers ask: the verbs of the library, each with its arguments by item and what it answers of each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from tbloom import Claim
from tests.simulation.callers import Program, Question
from tests.simulation.server import START_MS

#: The length of a slice (ms).
LENGTH = 60_000


def add(item: str, **how: Any) -> Question:
    """Is the item new?"""
    return Question("add", {item: how}, lambda s: s.add(item, **how), lambda new: {item: new})


def add_many(items: Iterable[str], **how: Any) -> Question:
    """The same of several, in one call."""
    all_ = [*items]
    return Question(
        "add_many",
        dict.fromkeys(all_, how),
        lambda s: s.add_many(all_, **how),
        lambda new: dict(zip(all_, new, strict=True)),
    )


def contains(item: str, **how: Any) -> Question:
    """Is it remembered?"""
    return Question(
        "contains", {item: how}, lambda s: s.contains(item, **how), lambda seen: {item: seen}
    )


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


def ask(verb: str, item: str, **how: Any) -> Question:
    """A verb of one item that answers something, or nothing."""
    return Question(
        verb, {item: how}, lambda s: getattr(s, verb)(item, **how), lambda got: {item: got}
    )


def of_all(verb: str, items: Iterable[str], *arguments: Any) -> Question:
    """A verb that is about all items."""
    all_ = {item: dict[str, Any]() for item in items}
    return Question(
        verb, all_, lambda s: getattr(s, verb)(*arguments), lambda _: dict.fromkeys(all_)
    )


def asking(*questions: Question) -> Program:
    """Asks one after another."""
    for question in questions:  # noqa: UP028 - a program is sent the answers
        yield question


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


def taking_over(items: str, times: int = 1) -> Program:
    """Does the work that others have left."""
    for _ in range(times):
        for item in (yield take_over(items.split())) or []:
            yield ask("commit", item)


def heartbeat(items: Iterable[str]) -> Question:
    """Keeps the session alive, and repeats what has failed."""
    return of_all("_send_heartbeat", items)


def clear(items: str) -> Question:
    """Forgets everything."""
    return of_all("clear", items.split())


def working(item: str, end: str, *, note: bool = False) -> Program:
    """Claims the item, and if it is new, ends the claim by that verb."""
    if (yield claim(item, note=note)) is Claim.NEW:
        yield (
            Question("abandon_many", {item: {}}, lambda s: s.abandon_many([item]), lambda _: {})
            if end == "abandon_many"
            else ask(end, item)
        )


def label_of(number: int) -> str:
    """The label of a slice, by its number since the epoch."""
    return datetime.fromtimestamp(number * LENGTH // 1000, timezone.utc).strftime("%Y%m%dT%H%M%S")
