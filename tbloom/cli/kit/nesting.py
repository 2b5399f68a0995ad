"""Commands that have sub-commands of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def verbs_of(
    parser: argparse.ArgumentParser, add_first: Callable[[argparse.ArgumentParser], object]
) -> Callable[..., argparse.ArgumentParser]:
    """What adds a verb to the command; ``add_first`` declares the argument that each of them begins with."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help: str, example: str, more: str = "") -> argparse.ArgumentParser:
        description, epilog = f"{help[0].upper()}{help[1:]}.{more}", f"Example: {example}"
        made = verbs.add_parser(name, help=help, description=description, epilog=epilog)
        add_first(made)
        return made

    return verb
