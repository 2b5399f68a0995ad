"""The cases of claims: who works on an item, what becomes of the work of the dead."""

from __future__ import annotations

from typing import Any

from tests.simulation import ends
from tests.simulation.callers import claim, heartbeat, of_all, taking_over, working
from tests.simulation.cases import ALL, Case

_FOUR = [
    (0, working("x", "commit", note=True), working("y", "release")),
    (0, working("y", "commit"), working("z", "abandon_many", note=True)),
    (1, working("x", "release"), working("z", "commit", note=True)),
    (2, working("z", "commit"), working("x", "commit"), working("y", "commit")),
    (1, taking_over("xyz")),
    (0, heartbeat("xyz"), heartbeat("xyz")),
]
#: A session that ends with a claim, and others that take its work over.
_ENDING = [
    (0, claim("x", note=True), claim("y"), of_all("end_session", "xyz"), claim("z")),
    (1, taking_over("xyz"), working("y", "commit")),
    (2, working("x", "release"), working("z", "commit")),
]
_GIVEN: dict[str, Any] = {"has_sessions": True, "end": ends.of_claims}
_LARGE = {"kinds": ALL, **_GIVEN}
_SMALL = {"exhaustive": True, **_GIVEN}
_CUT = {"kinds": frozenset({"lost", "error", "go on"}), **_SMALL}
_DIES, _ENDS = "the first object's process dies", "the slice ends"
CLAIMS = [
    *(
        Case(f"two {whose} work on an item, one {end}s it", "x", [(0, working("x", end)), (store, working("x", "commit"))],
             **_SMALL)
        for whose, store in (("threads of an object", 0), ("clients", 1))
        for end in ("commit", "release")
    ),
    *(
        Case(f"a client {end}s an item, and does not ask again after an error", "x",
             [(0, working("x", end, note=end == "abandon_many"))], faults=2, **_CUT)
        for end in ("commit", "release", "abandon_many")
    ),
    Case("two clients work on an item, slices end", "x", [(0, working("x", "commit")), (1, working("x", "commit"))],
         faults=0, events=(_ENDS,) * 5, **_SMALL),
    Case("a client dies while it works, another one takes over", "x",
         [(0, claim("x", note=True)), (1, taking_over("x"))], events=(_DIES,), **_CUT),
    Case("three clients work on three items, and one dies", "x y z", _FOUR, faults=4,
         events=(_ENDS, _DIES, "scripts are forgotten"), **_LARGE),
    Case("three clients work on three items, the server comes back with what it had saved", "x y z", _FOUR, faults=3,
         events=("the server saves",), **_LARGE),
    Case("a client ends its session", "x y z", _ENDING, faults=3, **_LARGE),
    Case("three clients work on three items", "x y z", _FOUR, faults=5, events=(_ENDS,), **_LARGE),
]  # fmt: skip
