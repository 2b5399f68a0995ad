"""The question before something is deleted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.formats import printable

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--yes."""
    parser.add_argument("--yes", action="store_true", help="don't ask")


def confirm(question: str) -> None:
    """Asks on the terminal; raises CommandFailed unless the answer is yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError("--yes: needed where standard input is no terminal")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandFailed("nothing was deleted")
