"""Feeds a store from anything that has pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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


def import_pages(
    store: PageStore, source: Iterable[Page | Skipped], progress: Callable[[], object]
) -> PagesImported:
    """Stores the pages of a source, except those that the store has, fetched at the same time or later.

    The pages of one address come in the order in which they were fetched. They need not be checked: what the store
    refuses is skipped and counted.
    """
    importer = _Importer(store)
    batch: list[Page] = []
    size = 0
    for number, one in enumerate(source, 1):
        if isinstance(one, Page):
            batch.append(one)
            size += len(one.body)
        else:
            importer.skip(one)
        if not number % BATCH_PAGES or size >= BATCH_BYTES:
            importer.put(batch)
            progress()
            batch, size = [], 0
    importer.put(batch)
    progress()
    return importer.result()


class _Importer:
    """Puts pages, and counts."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._stored = self._present = 0
        self._skipped: Counter[str] = Counter()
        self._damaged: list[str] = []

    def put(self, batch: list[Page]) -> None:
        """Stores the pages; those that the store refuses are counted."""
        try:
            stored = self._store.put_many(batch, newer=True)
        except ConfigError as error:
            if len(batch) > 1:  # one of them is refused, and none was stored
                for page in batch:
                    self.put([page])
            else:
                is_old = error.argument == "at"
                self._skipped["outside the window" if is_old else f"refused: {error.argument}"] += 1
        else:
            self._stored += stored
            self._present += len(batch) - stored

    def skip(self, one: Skipped) -> None:
        """Counts what is not imported."""
        self._skipped[one.kind] += 1
        if one.kind == DAMAGED:
            self._damaged.append(one.where)

    def result(self) -> PagesImported:
        """The counts."""
        skipped = dict(self._skipped.most_common())
        return PagesImported(self._stored, self._present, skipped, tuple(self._damaged))
