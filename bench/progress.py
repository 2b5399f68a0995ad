"""A progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

import click

T = TypeVar("T")


def shown(items: Sequence[T], label: str) -> Iterator[T]:
    """Yield the items, and show how many are done."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(items, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield from bar
