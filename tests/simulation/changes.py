"""The cases in which a filter is changed as a whole: by ``swap``, by ``reconfigure``, by clients with other parameters."""

from __future__ import annotations

from typing import Any

from tbloom import TBloomError
from tests.simulation.callers import Question
from tests.simulation.cases import ALL, Case
from tests.simulation.questions import add, add_many, claim, contains, of_all
from tests.simulation.server import START_MS
from tests.simulation.windows import LENGTH
from tests.simulation.world import World

_SIX = "a b c d e f"
_ITEMS = _SIX.split()
_LARGE: dict[str, Any] = {"faults": 5, "kinds": ALL, "events": ("the slice ends", "scripts are forgotten")}  # fmt: skip


_ADDING = [
    (0, add_many(_ITEMS[:4]), contains("a"), add("f")),
    (0, add("f"), add("a"), contains("f")),
    (1, add_many(_ITEMS[::-1]), add("b")),
]
_NEW_PARAMETERS = [
    *_ADDING,
    (2, of_all("reconfigure", _ITEMS), add_many(_ITEMS[2:]), contains("a")),
]
#: None of its calls may change the store.
_A_STRANGER = [*_ADDING, (2, add("a"), contains("a"), claim("b"), add_many(["c"]), add("f"))]
_BUILT = {item: [START_MS // LENGTH] if item in _ITEMS[:2] else [] for item in _ITEMS}
_SWAP = Question(
    "swap",
    {item: {"built": frozenset(slices)} for item, slices in _BUILT.items()},
    lambda store: store.swap(f"{{{store.name}}}:new"),
    lambda _: dict.fromkeys(_ITEMS),
)


def _begun(world: World, _: Case) -> None:
    """The filter is stored with the first object's parameters, and holds an item."""
    world.through(0, add("f"))


def _with_built(world: World, case: Case) -> None:
    """Another filter holds some of the items, to be swapped in."""
    other = case.store(world, len(world.stores), name=f"{{{world.name}}}:new")
    world.undisturbed(other, lambda store: store.add_many(_ITEMS[:2]))
    other._let_go()


CHANGES = [
    Case("another client reconfigures", _SIX, _NEW_PARAMETERS, before=_begun,
         others={2: {"capacity": 9000}}, **_LARGE),
    Case("another client reconfigures slices that grow", _SIX, _NEW_PARAMETERS, {"capacity": 2}, before=_begun,
         others={2: {"capacity": 4}}, **_LARGE),
    Case("a client with other parameters", _SIX, _A_STRANGER, before=_begun, others={2: {"capacity": 9000}}, **_LARGE),
    Case("another client swaps a filter in", _SIX, [*_ADDING, (2, _SWAP, add_many(_ITEMS))], before=_with_built,
         may_refuse=(TBloomError,), **_LARGE),
]  # fmt: skip
