"""What ``DistinctCounter`` and ``AsyncDistinctCounter`` share."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from tbloom.distinct.config import MOST_MEMBERS, CounterConfig
from tbloom.distinct.protocol import CountProtocol
from tbloom.distinct.selection import Selection, select
from tbloom.engine.client import Caller, Client
from tbloom.errors import ConfigError


class CounterArguments(TypedDict, total=False):
    """What a class may be given beside the client, the name and the mapping."""

    granularity: str | timedelta | None
    slices: int | None
    tz: str
    max_members: int
    retry_for: float | None


class Counted:
    """What can be counted and combined: a counter, or some slices of one."""

    _selection: Selection

    def _with(self, others: tuple[Counted, ...]) -> list[Selection]:
        """What is to be counted, this first."""
        for i, other in enumerate(others):
            if not isinstance(other, Counted):
                raise ConfigError(f"others[{i}]", other, "a distinct counter, or slices of one")
        return [self._selection, *(other._selection for other in others)]  # noqa: SLF001 - one of ours


class CounterBase(Caller[Client], Counted):
    """A distinct counter, its client and its protocol."""

    def __init__(
        self,
        client: Client,
        name: str,
        mapping: str = "ids",
        *,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        tz: str = "UTC",
        max_members: int = MOST_MEMBERS,
        retry_for: float | None = None,
    ) -> None:
        """A counter of distinct members.

        :param client: a redis-py client; it stays the caller's to close.
        :param name: the counter's name: all who give the same name and mapping share it.
        :param mapping: the name of the mapping from members to ids (``"ids"``). Only counters that share one can be
            combined, and all that share one are on one node of a cluster.
        :param granularity: the period of a slice, as in ``TimeBloom``; None, the default: the counter has no slices, and
            never forgets.
        :param slices: how many slices are kept, the current one included. Each leaves with its TTL.
        :param tz: the time zone in which slices begin (``"UTC"``).
        :param max_members: how many members the mapping may have, in this client's opinion (2^32, which is the most):
            one more raises ``MappingFull``. A member takes some 30 bytes there, for ever.
        :param retry_for: see ``TimeBloom``.
        :raises ConfigError: where an argument can't be right.
        """
        super().__init__(client, name, retry_for=retry_for, on_error="raise")
        config = CounterConfig(name, mapping, granularity, slices, tz)
        if type(max_members) is not int or not 1 <= max_members <= MOST_MEMBERS:
            raise ConfigError("max_members", max_members, "a whole number from 1 to 2^32")
        self._protocol = CountProtocol(config, max_members)
        self._selection = select(config)

    @property
    def name(self) -> str:
        """The counter's name."""
        return self._protocol.config.name

    @property
    def mapping(self) -> str:
        """The mapping's name."""
        return self._protocol.config.mapping

    @property
    def config(self) -> CounterConfig:
        """The counter's parameters."""
        return self._protocol.config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"
