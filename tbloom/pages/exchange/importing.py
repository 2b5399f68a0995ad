"""Feeds a store from anything that has pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tbloom.errors import ConfigError
from tbloom.pages.page import Page
from tbloom.pages.sync import PageStore
from tbloom.pages.writer import BATCH_BYTES, BATCH_PAGES

#: The kind of what can't be read.
DAMAGED = "damaged"


class Skipped(NamedTuple):
    """Something in a source that is not imported."""

    #: What is counted: "request", "revisit", ``DAMAGED``, ...
    kind: str
    #: Of damage: the file, the offset, and what is wrong.
    where: str = ""


@dataclass(frozen=True, slots=True)
class PagesImported:
    """The result of an import."""

    #: Pages that were stored.
    stored: int
    #: Pages that the store had already, fetched at the same time or later.
    present: int
    #: The number of what was skipped, by kind: "request", "outside the window", "damaged", ...
    skipped: Mapping[str, int]
    #: The places of what could not be read.
    damaged: tuple[str, ...]


def import_pages(store: PageStore, source: Iterable[Page | Skipped]) -> PagesImported:
    """Stores the pages of a source, except those that the store has, fetched at the same time or later.

    The pages need not be checked: what the store refuses is skipped and counted.
    """
    counts, skipped = Counter[str](), Counter[str]()
    damaged: list[str] = []
    batch: list[Page] = []
    size = 0
    for number, one in enumerate(source, 1):
        if isinstance(one, Page):
            batch.append(one)
            size += len(one.body)
        else:
            skipped[one.kind] += 1
            damaged += [one.where] * (one.kind == DAMAGED)
        if not number % BATCH_PAGES or size >= BATCH_BYTES:
            _put(store, batch, counts, skipped)
            batch, size = [], 0
    _put(store, batch, counts, skipped)
    return PagesImported(
        counts["stored"], counts["present"], dict(skipped.most_common()), tuple(damaged)
    )


def _put(store: PageStore, batch: list[Page], counts: Counter[str], skipped: Counter[str]) -> None:
    """Stores the pages; those that the store refuses are counted."""
    try:
        stored = store.put_many(batch, newer=True)
    except ConfigError as error:
        if len(batch) > 1:  # one of them is refused, and none was stored
            for page in batch:
                _put(store, [page], counts, skipped)
        else:
            is_old = error.argument == "at"
            skipped["outside the window" if is_old else f"refused: {error.argument}"] += 1
    else:
        counts["stored"] += stored
        counts["present"] += len(batch) - stored
