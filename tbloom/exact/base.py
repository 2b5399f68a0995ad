"""The base of ``ExactFilter`` and ``AsyncExactFilter``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from tbloom.engine.client import Client, Store
from tbloom.engine.parameters import refuse_old_names
from tbloom.exact.config import ExactConfig
from tbloom.exact.protocol import ExactProtocol
from tbloom.items import Item, check_ttl

if TYPE_CHECKING:
    from typing_extensions import Never

#: How long an item is remembered by default (s).
DEFAULT_TTL = 3600


class ExactArguments(TypedDict, total=False):
    """The optional arguments of both classes."""

    ttl: float | timedelta
    shards: int
    retry_for: float | None


class ExactBase(Store[Client, ExactConfig]):
    """An exact filter, its client and its protocol."""

    _protocol: ExactProtocol

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        shards: int = 1,
        retry_for: float | None = None,
        **old: Never,
    ) -> None:
        """A filter that remembers each item for a time of its own.

        :param client: a redis-py client, of ``redis.asyncio`` for ``AsyncExactFilter``; the caller closes it.
        :param name: the filter's name; clients with the same name share the filter.
        :param ttl: how long an item is remembered from its first add on, in seconds or as a ``timedelta``
            (3600). Clients may differ in it.
        :param shards: independent parts of the filter; on a cluster they spread over its nodes (1).
        :param retry_for: how long (seconds) a failed call is retried; None, the default: as in ``TimeBloom``.
        :raises ConfigError: if an argument can't be right.
        """
        refuse_old_names(old)
        super().__init__(client, retry_for=retry_for)
        self._protocol = ExactProtocol(ExactConfig(name, shards), check_ttl(ttl))
        self._begin()

    def assume_new(self, items: Iterable[Item]) -> None:
        """Takes the items for new, after a call with them has raised one of redis-py's errors: drops its lost
        answers, which the next call would get."""
        self._protocol.assume_new(items)
