"""The filters that ``tbloom metrics`` serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbloom.cli.kit import filters
from tbloom.cli.metrics import FilterCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.cli.kit.filters import Server


class OnServer(FilterCollector):
    """The filters of these names, or all with slices, whose parameters are read at each scrape: they may change."""

    def __init__(self, server: Server, names: tuple[str, ...], max_age: float) -> None:
        super().__init__(max_age=max_age)
        self._server, self._names = server, names

    def infos(self) -> Iterator[tuple[str, Any]]:
        """Each filter's name and FilterInfo, or the error that it raises; None: the server does not answer."""
        unread = dict.fromkeys(self._names or self._server.names(filters.WITH_SLICES))
        try:
            for name, info in self._server.infos([*unread]):
                del unread[name]
                yield name, info
        except filters.OUTAGES as error:
            first, *others = unread
            yield first, error
            yield from dict.fromkeys(others).items()
