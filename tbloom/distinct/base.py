"""The base of ``DistinctCounter`` and ``AsyncDistinctCounter``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from tbloom.distinct.config import MAX_MEMBERS, CounterConfig
from tbloom.distinct.protocol import CountProtocol
from tbloom.distinct.selection import Selection, select
from tbloom.engine.client import Client, Store
from tbloom.engine.parameters import refuse_old_names
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Never


class CounterArguments(TypedDict, total=False):
    """The optional arguments of both classes."""

    granularity: str | timedelta | None
    slices: int | None
    tz: str
    max_members: int
    retry_for: float | None


class Counted:
    """An operand of a count: a counter, or some slices of one."""

    _selection: Selection

    def _with(self, others: tuple[Counted, ...]) -> list[Selection]:
        """All operands, this one first."""
        for i, other in enumerate(others):
            if not isinstance(other, Counted):
                raise ConfigError(f"others[{i}]", other, "a distinct counter, or slices of one")
        return [self._selection, *(other._selection for other in others)]  # noqa: SLF001 - one of ours


class CounterBase(Store[Client, CounterConfig], Counted):
    """A distinct counter, its client and its protocol."""

    _protocol: CountProtocol

    def __init__(
        self,
        client: Client,
        name: str,
        mapping: str = "ids",
        *,
        granularity: str | timedelta | None = None,
        slices: int | None = None,
        tz: str = "UTC",
        max_members: int = MAX_MEMBERS,
        retry_for: float | None = None,
        **old: Never,
    ) -> None:
        """A counter of distinct members.

        :param client: a redis-py client; the caller closes it.
        :param name: the counter's name; clients with the same name and mapping share the counter.
        :param mapping: the name of the mapping from members to ids (``"ids"``). Only counters of one mapping can be
            combined, and they are all on one node of a cluster.
        :param granularity: the period of a slice, as in ``TimeBloom``; None, the default: the counter has no slices, and
            never forgets.
        :param slices: the number of slices that are kept, the current one included. Each leaves with its TTL.
        :param tz: the time zone in which slices begin (``"UTC"``).
        :param max_members: the number of members that the mapping may have when this client adds one (2^32, the
            maximum); one more raises ``MappingFull``. A member takes some 30 bytes there, for ever.
        :param retry_for: see ``TimeBloom``.
        :raises ConfigError: if an argument can't be right.
        """
        refuse_old_names(old)
        super().__init__(client, retry_for=retry_for)
        config = CounterConfig(name, mapping, granularity, slices, tz)
        if type(max_members) is not int or not 1 <= max_members <= MAX_MEMBERS:
            raise ConfigError("max_members", max_members, "a whole number from 1 to 2^32")
        self._protocol = CountProtocol(config, max_members)
        self._selection = select(config)

    @property
    def mapping(self) -> str:
        """The mapping's name."""
        return self.config.mapping
