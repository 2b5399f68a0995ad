"""What ``ExactFilter`` and ``AsyncExactFilter`` share."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from tbloom.engine.client import Caller, Client
from tbloom.exact.config import ExactConfig
from tbloom.exact.protocol import ExactProtocol
from tbloom.items import check_ttl

#: For how long (s) an item is remembered, if nothing else is said.
DEFAULT_TTL = 3600


class ExactArguments(TypedDict, total=False):
    """What a class may be given beside the client and the name."""

    ttl: float | timedelta
    shards: int
    retry_for: float | None
    on_error: str


class ExactBase(Caller[Client]):
    """An exact filter, its client and its protocol."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        shards: int = 1,
        retry_for: float | None = None,
        on_error: str = "raise",
    ) -> None:
        """A filter that remembers each item for as long as is said when it is added.

        :param client: a redis-py client; it stays the caller's to close.
        :param name: the filter's name: all who give the same name share it.
        :param ttl: for how long an item is remembered, in seconds or as a ``timedelta``, from the moment
            that it was new (3600). Clients may differ in it.
        :param shards: independent parts of the filter; on a cluster they spread over its nodes (1).
        :param retry_for: see ``TimeBloom``.
        :param on_error: see ``TimeBloom``.
        :raises ConfigError: where an argument can't be right.
        """
        super().__init__(client, name, retry_for=retry_for, on_error=on_error)
        self._protocol = ExactProtocol(ExactConfig(name, shards), check_ttl(ttl))

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._protocol.config.name

    @property
    def config(self) -> ExactConfig:
        """The filter's parameters."""
        return self._protocol.config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"
