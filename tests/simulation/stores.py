"""The cases of exact filters and of counters of distinct members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation import ends
from tests.simulation.accounts import ExactAccount
from tests.simulation.callers import Program
from tests.simulation.cases import ALL, Case, distinct, exact
from tests.simulation.questions import add, add_many, ask, asking, clear, contains

Programs = Callable[[], list[tuple[int, Program]]]
_KINDS: dict[str, dict[str, Any]] = {
    "exact": {"make": exact, "account": ExactAccount, "end": ends.of_exact},
    "distinct": {"make": distinct, "account": ExactAccount, "end": ends.of_distinct},
}
_SIX = "a b c d e f"


def _small(verb: str, kind: str) -> Programs:
    how = {"ttl": 1000} if kind == "exact" and verb == "add" else {}
    first = {"ttl": 1000} if kind == "exact" else {}
    return lambda: [(0, asking(add("x", **first))), (1, asking(ask(verb, "x", **how)))]


def _large(kind: str, *, clears: bool) -> Programs:
    ttls: tuple[dict[str, int], ...] = ({"ttl": 1000}, {"ttl": 90})
    long, short = ttls if kind == "exact" else ({}, {})
    items = _SIX.split()

    def programs() -> list[tuple[int, Program]]:
        found = [
            (0, asking(add_many(items[:4], **long), ask("discard", "b"), add("b", **short))),
            (0, asking(add("a", **short), contains("a"), add_many(items[3:], **long))),
            (1, asking(add_many(items[::-1], **long), ask("discard", "f"), contains("f"))),
            (1, asking(add("b", **long), ask("discard", "a"), add("a", **long))),
        ]
        return [*found, (2, asking(clear(_SIX)))] if clears else found

    return programs


OTHERS = [
    Case(f"{kind}: two clients, one {verb}s", "x", _small(verb, kind), exhaustive=True, **given)
    for kind, given in _KINDS.items()
    for verb in ("add", "discard")
] + [
    Case(
        f"{kind}: four threads add and discard{', another clears' if clears else ''}",
        _SIX,
        _large(kind, clears=clears),
        faults=5,
        kinds=ALL,
        events=("the slice ends", "the slice ends", "scripts are forgotten"),
        **given,
    )
    for kind, given in _KINDS.items()
    for clears in (False, True)
]
