"""The cases of exact filters and of counters of distinct members."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.simulation import ends
from tests.simulation.accounts import ExactAccount
from tests.simulation.callers import add, add_many, ask, clear, contains
from tests.simulation.cases import ALL, Case, Distinct, distinct, exact
from tests.simulation.server import START_MS
from tests.simulation.world import World

_KINDS: dict[str, dict[str, Any]] = {
    "exact": {"make": exact, "account": ExactAccount, "end": ends.of_exact},
    "distinct": {"make": distinct, "account": ExactAccount, "end": ends.of_distinct},
}
_SIX = "a b c d e f"


_ITEMS = _SIX.split()


def _small(verb: str, kind: str) -> list[Any]:
    how = {"ttl": 1000} if kind == "exact" else {}
    if verb == "clear":
        return [(0, add("x", **how), add("x", **how)), (1, clear("x"))]
    return [(0, add("x", **how)), (1, ask(verb, "x", **(how if verb == "add" else {})))]


def _large(kind: str, *, clears: bool) -> list[Any]:
    ttls: tuple[dict[str, int], ...] = ({"ttl": 1000}, {"ttl": 90})
    long, short = ttls if kind == "exact" else ({}, {})
    return [
        (0, add_many(_ITEMS[:4], **long), ask("discard", "b"), add("b", **short)),
        (0, add("a", **short), contains("a"), add_many(_ITEMS[3:], **long)),
        (1, add_many(_ITEMS[::-1], **long), ask("discard", "f"), contains("f")),
        (1, add("b", **long), ask("discard", "a"), add("a", **long)),
        *([(2, clear(_ITEMS))] if clears else []),
    ]


#: Many tasks of one object.
_TOGETHER = [
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


class _ByHour(Distinct):
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
    for age in (0, 1):
        histories = [h for item, h in world.account.histories.items() if item.endswith(str(age))]
        least, most = ends.at_least_and_most(
            {state.until is not None for state in history.states} for history in histories
        )
        counted = world.undisturbed(observer.slice(_label(age)), lambda members: members.count())
        assert least <= counted <= most, f"{counted} members"


OTHERS = [
    Case(f"{kind}: two clients, one {verb}s", "x", _small(verb, kind), exhaustive=True, **given)
    for kind, given in _KINDS.items()
    for verb in ("add", "discard", "clear")
] + [
    Case("exact: an item expires", "x y", [(0, add_many("xy", ttl=1000), ask("discard", "x"), add("x", ttl=90), ask("discard", "x"))],
         events=("the slice ends",) * 2, exhaustive=True, **_KINDS["exact"]),
] + [
    Case(
        f"{kind}: four threads add and discard{', another clears' if clears else ''}",
        _SIX,
        _large(kind, clears=clears),
        {"shards": 2} if kind == "exact" and clears else {},
        faults=5,
        kinds=ALL,
        events=("the slice ends", "the slice ends", "scripts are forgotten"),
        **given,
    )
    for kind, given in _KINDS.items()
    for clears in (False, True)
] + [
    Case(f"{kind}: buckets are split", _SIX, _large(kind, clears=False), faults=5, kinds=ALL,
         events=("the slice ends", "the slice ends", "scripts are forgotten"), in_bucket=1, **given)
    for kind, given in _KINDS.items()
] + [
    Case("distinct: tasks whose members go together", _SIX, _TOGETHER, is_async=True, faults=5, kinds=ALL,
         events=("scripts are forgotten",), **_KINDS["distinct"]),
    Case("distinct: members are added to two slices", " ".join(_NOW + _BEFORE), _HOURS, faults=5, kinds=ALL - {"go on"},
         events=("scripts are forgotten",), make=partial(distinct, kind=_ByHour, granularity="1h", slices=4), account=ExactAccount, end=_of_hours),
]  # fmt: skip
