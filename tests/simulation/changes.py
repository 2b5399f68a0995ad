"""The cases in which a filter is changed as a whole: by ``swap``, by ``reconfigure``, by clients with other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tbloom import TBloomError
from tests.simulation.callers import Program, Question
from tests.simulation.cases import ALL, Case
from tests.simulation.questions import add, add_many, asking, claim, contains, of_all
from tests.simulation.world import World

_SIX = "a b c d e f"
_ITEMS = _SIX.split()
_LARGE: dict[str, Any] = {"faults": 5, "kinds": ALL, "events": ("the slice ends", "scripts are forgotten")}  # fmt: skip


def _adding(*more: tuple[int, Callable[[], Program]]) -> Callable[[], list[tuple[int, Program]]]:
    return lambda: [
        (0, asking(add_many(_ITEMS[:4]), contains("a"), add("f"))),
        (0, asking(add("f"), add("a"), contains("f"))),
        (1, asking(add_many(_ITEMS[::-1]), add("b"))),
        *((store, program()) for store, program in more),
    ]


def _begun(world: World, _: Case) -> None:
    """The filter is stored with the first object's parameters, and holds an item."""
    world.through(0, add("f"))


def _new_parameters() -> Program:
    yield of_all("reconfigure", _ITEMS)
    yield add_many(_ITEMS[2:])
    yield contains("a")


def _stranger() -> Program:
    """A client with other parameters, which none of its calls may change."""
    return asking(add("a"), contains("a"), claim("b"), add_many(["c"]), add("f"))


def _with_built(world: World, case: Case) -> None:
    """Another filter holds some of the items, to be swapped in."""
    other = case.store(world, len(world.stores), name=f"{{{world.name}}}:new")
    world.undisturbed(other, lambda store: store.add_many(_ITEMS[:2]))
    other._let_go()


def _swapping() -> Program:
    account_slice = 1_795_435_230_000 // 60_000
    built = {item: frozenset([account_slice] if item in _ITEMS[:2] else []) for item in _ITEMS}
    yield Question(
        "swap",
        {item: {"built": slices} for item, slices in built.items()},
        lambda store: store.swap(f"{{{store.name}}}:new"),
        lambda _: dict.fromkeys(_ITEMS),
    )
    yield add_many(_ITEMS)


CHANGES = [
    Case("another client reconfigures", _SIX, _adding((2, _new_parameters)), before=_begun,
         others={2: {"capacity": 9000}}, **_LARGE),
    Case("another client reconfigures slices that grow", _SIX, _adding((2, _new_parameters)), {"capacity": 2}, before=_begun,
         others={2: {"capacity": 4}}, **_LARGE),
    Case("a client with other parameters", _SIX, _adding((2, _stranger)), before=_begun, others={2: {"capacity": 9000}}, **_LARGE),
    Case("another client swaps a filter in", _SIX, _adding((2, _swapping)), before=_with_built,
         may_refuse=(TBloomError,), **_LARGE),
]  # fmt: skip
