"""The cases: who asks what of which object, what may go wrong, and what else happens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tests.simulation import ends
from tests.simulation.accounts import ExactAccount
from tests.simulation.callers import (
    add,
    add_many,
    ask,
    claim,
    clear,
    contains,
    heartbeat,
    import_many,
    last_seen,
    of_all,
    push,
    push_many,
    take,
    taking,
    working,
)
from tests.simulation.faults import CODES
from tests.simulation.server import START_MS
from tests.simulation.world import ALL, CUTS, DISTINCT, EXACT, Case, Kind, World

_TIMES = ("the slice ends", "scripts are forgotten")
_NINE = "a b c d e f g h i"
_SIX = "a b c d e f"
_ITEMS = _NINE.split()


def _batches(items: str, size: int) -> list[tuple[Any, ...]]:
    """Four threads of two objects, each of which adds some of the items in batches."""
    all_ = items.split()
    orders = all_, all_[::-1], all_[1::2] + all_[::2], all_[len(all_) // 2 :]
    return [
        (at // 2, *(add_many(own[n : n + size]) for n in range(0, len(own), size)))
        for at, own in enumerate(orders)
    ]


_X, _ABC = (0, add("x")), (0, add_many("abc"))
_MANY = [
    (0, add_many(_ITEMS[:5]), contains("a"), add_many(_ITEMS[3:])),
    (0, *map(add, _ITEMS[:3]), add(_ITEMS[-1]), contains(_ITEMS[-1])),
    (1, add_many(_ITEMS[::2]), add_many(_ITEMS[1::2])),
    (1, add_many(_ITEMS[::-1]), contains("e")),
]
_MANY_AND_CLEAR = [*_MANY, (2, clear(_ITEMS))]
_ONE_BY_ONE_AND_CLEAR = [
    *(
        (store, *map(add, items), contains(items[0]))
        for store, items in ((0, "abc"), (0, "cba"), (0, "bcd"), (1, "abcd"))
    ),
    (2, clear("abcd")),
]
#: Many tasks of one object, whose items go together.
_TOGETHER = [
    *((0, add(item), contains(item)) for item in "abcabd"),
    (1, add_many("abcd")),
    (0, add("a", within=1)),
]
#: Of an object each: see ``found.txt`` for what happens to threads of one object that ask in other numbers of slices.
_AGES = [
    (0, add("a", keep=1), add("b", keep=2), contains("a"), add("a")),
    (1, add_many("abcd", keep=3), contains("b", within=2), add("d", within=1)),
    (2, add("b"), add_many("dcba", within=2), add("c", keep=1)),
    (3, add_many("dcba"), add_many("abcd", within=1)),
]
_IMPORTING = [
    (0, add_many("abcd"), last_seen("a"), add("e"), last_seen("e")),
    (1, import_many("abe"), add_many("abc"), last_seen("b")),
    (2, import_many("cdf", age=1), last_seen("c"), add("f"), contains("d")),
    (1, last_seen("f"), add("f"), last_seen("f")),
]
#: Few items go into the slice that is current at first, and many into the one before it.
_GROWING_BACK = [
    (0, add("a"), add_many("bcd"), contains("a")),
    (1, add("b"), add_many("dcb"), contains("b")),
]
_THIRTY = " ".join(f"item{n}" for n in range(30))
_LARGE: dict[str, Any] = {"faults": 6, "kinds": ALL}
_ERRORS = frozenset({"lost", "again", "error", *CODES})
_TASKS: dict[str, Any] = {"is_async": True, "kinds": frozenset({"lost", "late", "interrupt"})}
FILTERS = [
    Case("a client adds an item, two faults", "x", [_X], faults=2, kinds=_ERRORS),
    Case("three tasks add an item", "x", [_X] * 3, **_TASKS),
    Case("three tasks add items for some slices", "x y z", [(0, contains("x"), add("x", keep=1)), (0, add("y", keep=1)), (0, add("z", keep=2))],
         **_TASKS),
    Case("two clients add an item", "x", [_X, (1, add("x"))], faults=2, kinds=CUTS | {"OOM"}),
    Case("a client adds so many that the slice grows, and clears", "a b c", [(*_ABC, add("b")), (0, clear("abc"))],
         {"capacity": 2}, kinds=CUTS | {"interrupt", "OOM"}),
    Case("four threads of two clients add", _NINE, _MANY, events=_TIMES, **_LARGE),
    Case("four threads add, another clears", _NINE, _MANY_AND_CLEAR, events=_TIMES, **_LARGE),
    Case("four threads add one by one over kept connections, another clears", "a b c d", _ONE_BY_ONE_AND_CLEAR,
         {"is_kept": True}, events=_TIMES, **_LARGE),
    Case("two shards", _NINE, _MANY_AND_CLEAR, {"shards": 2}, events=_TIMES, **_LARGE),
    Case("slices grow", _NINE, _MANY, {"capacity": 2}, events=_TIMES, **_LARGE),
    Case("slices grow, another clears", _NINE, _MANY_AND_CLEAR, {"capacity": 2}, **_LARGE),
    Case("thirty items, without a capacity", _THIRTY, _batches(_THIRTY, 10), {"capacity": None}, events=_TIMES, **_LARGE),
    Case("items for some slices, asked in some", "a b c d", _AGES, events=("the slice ends",) * 4, **_LARGE),
    Case("items for some slices, which grow in two shards", "a b c d", _AGES, {"capacity": 2, "shards": 2, "bits": 2**12, "hashes": 7},
         events=("the slice ends",) * 4, **_LARGE),
    Case("threads of an object ask in other numbers of slices", "b", [(0, add("b")), (0, add("b"), add("b", within=1))],
         events=("the slice ends",), is_played=False),
    Case("threads of an object add while the slice grows", "a b c d",
         [(0, add("b")), (0, add("b")), (0, add("c"), add("d")), (1, add("a"))], {"capacity": 2}, is_played=False, **_LARGE),
    Case("the window ends", _SIX, _batches(_SIX, 3), events=("the window ends", "the slice ends"), **_LARGE),
    Case("other clients import items, and ask when they were last seen", _SIX, _IMPORTING, events=_TIMES, **_LARGE),
    Case("slices grow while other clients import", _SIX, _IMPORTING, {"capacity": 2}, events=_TIMES, **_LARGE),
    Case("the server's clock is set", _SIX, [*_batches(_SIX, 3), (2, clear(_SIX.split()))],
         events=("the clock is set on", "the clock is set back", "the slice ends"), **_LARGE),
    Case("slices grow while the server's clock is set", "a b c d", _GROWING_BACK, {"capacity": 2, "bits": 2**12, "hashes": 7},
         events=("the clock is set back", "the slice ends"), **_LARGE),
    Case("the server comes back with what it had saved", _SIX, _batches(_SIX, 3), events=("the server saves",), **_LARGE),
    Case("tasks whose items go together", "a b c d", _TOGETHER, is_async=True, events=_TIMES, **_LARGE),
    Case("tasks over kept connections, another clears", "a b c d", _ONE_BY_ONE_AND_CLEAR, {"is_kept": True},
         is_async=True, events=_TIMES, **_LARGE),
]  # fmt: skip


_FOUR = [
    (0, working("x", "commit", note=True), working("y", "release")),
    (0, working("y", "commit"), working("z", "leave_many", note=True)),
    (1, working("x", "release"), working("z", "commit", note=True)),
    (2, working("z", "commit"), working("x", "commit"), working("y", "commit")),
    (1, taking("xyz")),
    (0, heartbeat("xyz"), heartbeat("xyz")),
]
#: A session that ends with a claim, and others that take its work over.
_ENDING = [
    (0, claim("x", note=True), claim("y"), of_all("end_session", "xyz"), claim("z")),
    (1, taking("xyz"), working("y", "commit")),
    (2, working("x", "release"), working("z", "commit")),
]
#: Sessions that give each other work, and get some from outside.
_SHARING = [
    (0, working("x", "leave_many", note=True), taking("xyzuv"), taking("xyzuv", idle=False)),
    (0, working("y", "commit", note=True), heartbeat("xyzuv")),
    (1, taking("xyzuv", "leave_many"), working("z", "leave_many", note=True)),
    (2, taking("xyzuv", "release", idle=False), claim("u"), push("x")),
    (3, push_many("zuv"), push("y"), push_many("xyzuv"), taking("xyzuv", "release", notes=True)),
]
#: Many tasks of one object, whose claims and commits go together.
_CLAIMED_TOGETHER = [
    *(
        (0, working(item, end))
        for item, end in zip("xyzuxyx", ["commit", "release"] * 4, strict=False)
    ),
    (1, working("x", "commit"), working("y", "commit"), working("z", "release")),
]
_GIVEN: dict[str, Any] = {"has_sessions": True, "end": ends.of_claims}
_RANDOM = {"kinds": ALL, **_GIVEN}
_CUT = {"kinds": CUTS | {"go on"}, **_GIVEN}
_DIES, _ENDS = "the first object's process dies", "the slice ends"


def _left(world: World, case: Case) -> None:
    """All items were pushed."""
    world.through(0, push_many(case.items.split()))


def _suspect(world: World, _: Case) -> None:
    """A session has died of the first item."""
    world.through(0, push_many("x", deaths=1))
    world.through(0, push_many("y"))


CLAIMS = [
    Case("two threads of an object work on an item, one releases it", "x",
         [(0, working("x", "release")), (0, working("x", "commit"))], **_GIVEN),
    Case("two clients work on an item, one releases it", "x",
         [(0, working("x", "release")), (1, working("x", "commit"))], **_GIVEN),
    Case("a client commits an item, and does not ask again after an error", "x", [(0, working("x", "commit"))], faults=2, **_CUT),
    Case("tasks whose claims go together", "x y z u", _CLAIMED_TOGETHER, is_async=True, faults=5, events=(_ENDS, _DIES), **_RANDOM),
    Case("a client commits an item for one slice, and does not ask again after an error", "x", [(0, ask("commit", "x", keep=1))],
         faults=2, events=(_ENDS,), **_CUT),
    Case("a client works on an item, another one commits it", "x", [(0, claim("x")), (1, ask("commit", "x"))], **_GIVEN),
    Case("a client works on an item, another one clears", "x", [(0, working("x", "commit")), (1, clear("x"))], **_GIVEN),
    Case("two clients work on an item, slices end", "x", [(0, working("x", "commit")), (1, working("x", "commit"))],
         faults=0, events=(_ENDS,) * 5, **_GIVEN),
    Case("two clients push an item, another one takes it", "x", [(0, push("x")), (1, push("x")), (2, taking("x"))], **_CUT),
    Case("two clients take an item", "x", [(0, taking("x")), (1, taking("x"))], faults=2, before=_left, **_CUT),
    Case("two threads of an object take an item", "x", [(0, taking("x")), (0, taking("x", "leave_many"))], before=_left, **_GIVEN),
    Case("a client takes an item, another one commits it", "x", [(0, taking("x")), (1, ask("commit", "x"))], before=_left, **_GIVEN),
    Case("a client commits a left item", "x", [(0, ask("commit", "x"))], before=_left, **_GIVEN),
    Case("a client waits, and claims an item, another one asks whether all is over", "x",
         [(0, take("x"), claim("x", note=True)), (1, take("x"), take("x"))], **_GIVEN),
    Case("a client dies of an item of which one has died, others take it", "x y",
         [(0, taking("xy", "leave_many", notes=True)), (1, taking("xy", idle=False)), (2, taking("xy", notes=True))],
         events=(_DIES,), before=_suspect, **_RANDOM),
    Case("four clients share five items, and one dies", "x y z u v", _SHARING, faults=3, events=(_ENDS, _DIES, "scripts are forgotten"), **_RANDOM),
    Case("four clients share five items in two shards, and one dies", "x y z u v", _SHARING, {"shards": 2}, faults=4, events=(_DIES,), **_RANDOM),
    Case("tasks share five items, and a process dies", "x y z u v", _SHARING, is_async=True, faults=3, events=(_DIES,), **_RANDOM),
    Case("four clients share five items, the server comes back with what it had saved", "x y z u v", _SHARING, faults=2,
         events=("the server saves",), **_RANDOM),
    Case("three clients work on three items, and one dies", "x y z", _FOUR, faults=4,
         events=(_ENDS, _DIES, "scripts are forgotten"), **_RANDOM),
    Case("three clients work on three items, the server comes back with what it had saved", "x y z", _FOUR, faults=3,
         events=("the server saves",), **_RANDOM),
    Case("a client ends its session", "x y z", _ENDING, faults=3, **_RANDOM),
]  # fmt: skip


_LETTERS = _SIX.split()


def _large(kind: str, *, clears: bool) -> list[Any]:
    ttls: tuple[dict[str, int], ...] = ({"ttl": 1000}, {"ttl": 90})
    long, short = ttls if kind == "exact" else ({}, {})
    return [
        (0, add_many(_LETTERS[:4], **long), ask("discard", "b"), add("b", **short)),
        (0, add("a", **short), contains("a"), add_many(_LETTERS[3:], **long)),
        (1, add_many(_LETTERS[::-1], **long), ask("discard", "f"), contains("f")),
        (1, add("b", **long), ask("discard", "a"), add("a", **long)),
        *([(2, clear(_LETTERS))] if clears else []),
    ]


#: Many tasks of one object.
_MEMBERS = [
    *((0, add(item), contains(item)) for item in "abcabd"),
    (0, add("e"), ask("discard", "a"), add_many("abc")),
    (1, add_many("abcd"), ask("discard", "b")),
]
#: Members of two hours: an item is a member and its slice; a call is of one slice.
_NOW, _BEFORE = ["a@0", "b@0", "c@0"], ["a@1", "b@1", "c@1"]
_HOURS = [
    (0, add_many(_NOW), add("b@1"), add("c@0")),
    (0, add("a@1"), add_many(_BEFORE)),
    (1, add_many(_BEFORE[::-1]), add("a@0"), add_many(_NOW[::-1])),
    (1, add("c@1"), add_many(_NOW[::2])),
]


class _ByHour(DistinctCounter):
    """A counter whose members are counted in the slice that the item names."""

    def add(self, item: Any, at: Any = None) -> bool:  # noqa: ARG002
        member, _, age = item.partition("@")
        return super().add(member, at=_label(int(age)))

    def add_many(self, items: Iterable[Any], at: Any = None) -> list[bool]:  # noqa: ARG002
        members, ages = zip(*(item.split("@") for item in items), strict=True)
        return super().add_many(members, at=_label(int(ages[0])))


def _label(age: int) -> datetime:
    return datetime.fromtimestamp(START_MS // 1000 - 3600 * age, UTC)


def _of_hours(world: World, case: Case) -> None:
    """Each slice has those who were added to it, counted once."""
    ends.ask_for_pending_answers(world)
    observer = case.store(world, len(world.stores))
    world.stores.append(observer)
    for age in "01":
        hour = observer.slice(_label(int(age)))
        ends.check_count(world, hour, lambda hour: hour.count(), of=lambda item: item[-1] == age)  # noqa: B023


_BY_HOUR: dict[str, Any] = {"granularity": "1h", "slices": 4}
_HOURLY = Kind(_ByHour, AsyncDistinctCounter, ExactAccount, _of_hours, has_mapping=True, **_BY_HOUR)
_KINDS = {"exact": EXACT, "distinct": DISTINCT}
_X_FOR_LONG = (0, add("x", ttl=1000))
OTHERS = [
    *(
        Case(f"{kind}: four threads add and discard{', another clears' if clears else ''}", _SIX, _large(kind, clears=clears),
             {"shards": 2} if kind == "exact" and clears else {}, faults=5, kinds=ALL,
             events=("the slice ends", "the slice ends", "scripts are forgotten"), in_bucket=1 if clears else 80, kind=given)
        for kind, given in _KINDS.items()
        for clears in (False, True)
    ),
    Case("exact: two clients, one discards", "x", [_X_FOR_LONG, (1, ask("discard", "x"))], kind=EXACT),
    Case("exact: two clients, one clears", "x", [(*_X_FOR_LONG, add("x", ttl=1000)), (1, clear("x"))], kind=EXACT),
    Case("exact: an item expires", "x y", [(0, add_many("xy", ttl=1000), ask("discard", "x"), add("x", ttl=90), ask("discard", "x"))],
         events=("the slice ends",) * 2, kind=EXACT),
    Case("distinct: tasks whose members go together", _SIX, _MEMBERS, is_async=True, faults=5, kinds=ALL,
         events=("scripts are forgotten",), kind=DISTINCT),
    Case("distinct: members are added to two slices", " ".join(_NOW + _BEFORE), _HOURS, faults=5, kinds=ALL - {"go on"},
         events=("scripts are forgotten",), kind=_HOURLY),
]  # fmt: skip
CASES = {case.name: case for case in [*FILTERS, *CLAIMS, *OTHERS]}
PLAYED = [name for name, case in CASES.items() if case.is_played]
