"""What pages have yielded, until the engine schedules it, or the pipelines have ended with it; known by the object."""

from __future__ import annotations

from typing import Any

from tbloom.scrapy.claims.page import Page


class Outputs:
    """Links and items, each with the page that has yielded it."""

    def __init__(self) -> None:
        #: By the id of an output, which is held, so that no other object gets its id; several times if it is the same object.
        self._by_id: dict[int, list[tuple[Any, Page]]] = {}

    def add(self, output: Any, page: Page) -> None:
        """The page has yielded it."""
        self._by_id.setdefault(id(output), []).append((output, page))

    def take(self, output: Any) -> Page | None:
        """The page that has yielded it first, for which it then counts no more; None: no page has."""
        outputs = self._by_id.pop(id(output), None)
        if outputs is None:
            return None
        (_, page), *others = outputs
        if others:
            self._by_id[id(output)] = others
        return page

    def processed(self, item: Any, output: Any) -> None:
        """The pipelines have made this of an item."""
        if output is not item and (page := self.take(item)):
            self.add(output, page)

    def clear(self) -> None:
        """Forgets them all."""
        self._by_id.clear()
