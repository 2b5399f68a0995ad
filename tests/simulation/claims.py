"""The cases of claims: who works on an item, what becomes of the work of the dead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation import ends
from tests.simulation.callers import Program
from tests.simulation.cases import ALL, Case
from tests.simulation.questions import asking, claim, heartbeat, of_all, taking_over, working


def _two(one: str, other: str, store: int) -> Callable[[], list[tuple[int, Program]]]:
    return lambda: [(0, working("x", one)), (store, working("x", other))]


def _one(end: str) -> list[tuple[int, Program]]:
    return [(0, working("x", end, note=end == "abandon_many"))]


def _four() -> list[tuple[int, Program]]:
    return [
        (0, asking(working("x", "commit", note=True), working("y", "release"))),
        (0, asking(working("y", "commit"), working("z", "abandon_many", note=True))),
        (1, asking(working("x", "release"), working("z", "commit", note=True))),
        (2, asking(working("z", "commit"), working("x", "commit"), working("y", "commit"))),
        (1, taking_over("x y z", 2)),
        (0, asking(heartbeat("xyz"), heartbeat("xyz"))),
    ]


def _ending() -> list[tuple[int, Program]]:
    """A session that ends with a claim, and others that take its work over."""
    return [
        (0, asking(claim("x", note=True), claim("y"), of_all("end_session", "xyz"), claim("z"))),
        (1, asking(taking_over("x y z", 2), working("y", "commit"))),
        (2, asking(working("x", "release"), working("z", "commit"))),
    ]


_GIVEN: dict[str, Any] = {"has_sessions": True, "end": ends.of_claims}
_LARGE = {"kinds": ALL, **_GIVEN}
_SMALL = {"exhaustive": True, **_GIVEN}
_CUT = {"kinds": frozenset({"lost", "error", "go on"}), **_SMALL}
_DIES, _ENDS = "the first object's process dies", "the slice ends"
CLAIMS = [
    *(
        Case(f"two {whose} work on an item, one {end}s it", "x", _two(end, "commit", store), **_SMALL)
        for whose, store in (("threads of an object", 0), ("clients", 1))
        for end in ("commit", "release")
    ),
    *(
        Case(f"a client {end}s an item, and does not ask again after an error", "x", partial(_one, end), faults=2, **_CUT)
        for end in ("commit", "release", "abandon_many")
    ),
    Case("two clients work on an item, slices end", "x", _two("commit", "commit", 1), faults=0, events=(_ENDS,) * 5, **_SMALL),
    Case("a client dies while it works, another one takes over", "x",
         lambda: [(0, asking(claim("x", note=True))), (1, taking_over("x", 2))], events=(_DIES,), **_CUT),
    Case("three clients work on three items, and one dies", "x y z", _four, faults=4,
         events=(_ENDS, _DIES, "scripts are forgotten"), **_LARGE),
    Case("three clients work on three items, the server comes back with what it had saved", "x y z", _four, faults=3,
         events=("the server saves",), **_LARGE),
    Case("a client ends its session", "x y z", _ending, faults=3, **_LARGE),
    Case("three clients work on three items", "x y z", _four, faults=5, events=(_ENDS,), **_LARGE),
]  # fmt: skip
