"""The error for a keyword argument that a class does not take."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


def takes(optional: type, *required: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate an ``__init__`` to raise TypeError for an unknown argument. The message names the nearest one, or all.

    ``optional`` is a TypedDict of the optional arguments, ``required`` are other ones. A subclass may take more: only what it
    passes on is checked.
    """
    taken = (*required, *optional.__annotations__)
    # Arguments of from_url and open, which make a client.
    others = ("client_options",) if "client" in required else ()

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        @wraps(init)
        def checked(*args: P.args, **given: P.kwargs) -> None:
            for name in given.keys() - {*taken}:
                nearest = get_close_matches(name, (*taken, *others), 1)
                hint = (
                    f"did you mean {nearest[0]!r}?" if nearest else f"it takes {', '.join(taken)}"
                )
                if name in others:
                    hint = "from_url() and open() do"
                raise TypeError(f"{_name_of(args[0])} takes no argument {name!r}; {hint}")
            init(*args, **given)

        return checked

    return decorate


def _name_of(instance: Any) -> str:
    return type(instance).__name__
