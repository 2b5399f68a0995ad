"""The base of ``DistinctCounter`` and ``AsyncDistinctCounter``."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig
from tbloom.distinct.protocol import CountProtocol
from tbloom.distinct.selection import Selection, select, select_at, select_between
from tbloom.engine.client import Client, Store
from tbloom.engine.parameters import refuse_old_names
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Never

Sets = TypeVar("Sets")


class CounterArguments(TypedDict, total=False):
    """The optional arguments of both classes."""

    granularity: str | timedelta | None
    slices: int | None
    tz: str
    keep_members: bool
    max_members: int
    retry_for: float | None


class CounterBase(Store[Client, CounterConfig], Generic[Client, Sets]):
    """A distinct counter, its client and its protocol."""

    _protocol: CountProtocol

    def __init__(
        self,
        client: Client,
        name: str,
        mapping: str | None = "ids",
        *,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        tz: str = "UTC",
        keep_members: bool = False,
        max_members: int = MAX_MEMBERS,
        retry_for: float | None = None,
        **old: Never,
    ) -> None:
        """A counter of distinct members.

        :param client: a redis-py client, of ``redis.asyncio`` for ``AsyncDistinctCounter``; the caller closes it.
        :param name: the counter's name; clients with the same name and mapping share the counter.
        :param mapping: the name of the mapping from members to ids (``"ids"``). Only counters of one mapping can be
            combined, and they are all on one node of a cluster. None: the members are integers, 0 to 2^32 - 1, and each
            is its own id.
        :param granularity: the period of a slice, as in ``TimeBloom``; None, the default: the counter has no slices, and
            never forgets.
        :param slices: the number of slices that are kept, the current one included. Each leaves with its TTL.
        :param tz: the time zone in which slices begin (``"UTC"``).
        :param keep_members: True: the mapping keeps the members themselves, so that sets can be listed. The same for all
            counters of a mapping.
        :param max_members: the number of members that the mapping may have when this client adds one (2^32, the
            maximum); one more raises ``MappingFull``. A member takes some 30 bytes there, for ever.
        :param retry_for: how long (seconds) a failed call is retried; None, the default: as in ``TimeBloom``.
        :raises ConfigError: if an argument can't be right.
        """
        refuse_old_names(old)
        super().__init__(client, retry_for=retry_for)
        config = CounterConfig(name, mapping, granularity, slices, tz, keep_members)
        if type(max_members) is not int or not 1 <= max_members <= MAX_MEMBERS:
            raise ConfigError("max_members", max_members, "a whole number from 1 to 2^32")
        self._protocol = CountProtocol(config, max_members)
        self._begin()

    @property
    def mapping(self) -> str | None:
        """The mapping's name."""
        return self.config.mapping

    def members(self) -> Sets:
        """The set of all members, of all live slices; to be combined, counted, listed, exported."""
        return self._set(select(self.config))

    def within(self, slices: int) -> Sets:
        """The members of the newest ``slices`` slices."""
        return self._set(select(self.config, slices))

    def slice(self, at: datetime | str) -> Sets:
        """The members of the slice that contains the instant (a datetime with a time zone), or that has this label. A slice
        outside the window has none."""
        return self._set(select_at(self.config, at))

    def between(self, start: datetime | str, end: datetime | str) -> Sets:
        """The members of the live slices from that of ``start`` to that of ``end``, both included; see ``slice``."""
        return self._set(select_between(self.config, start, end))

    @abstractmethod
    def _set(self, selection: Selection) -> Sets:
        """The set of what is counted in these slices."""
