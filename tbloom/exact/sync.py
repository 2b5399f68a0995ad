"""The exact filter for threads and processes."""

from __future__ import annotations

from typing import Self, Unpack

import redis

from tbloom.arguments import Item
from tbloom.engine.sync import SyncDriver
from tbloom.engine.urls import ClientOptions
from tbloom.exact.verbs import ExactArguments, ExactVerbs


class ExactFilter(ExactVerbs["redis.Redis | redis.RedisCluster"], SyncDriver):
    """An exact set of items, shared through Redis, that lets each item expire separately.

    No item is mistaken for another one. Each item expires to the millisecond, by the server's clock. Later adds free its memory,
    so that there is at most one expired entry for ten live ones. If no adds follow, it is freed when the last item expires.

    Objects are safe to use from many threads, and after a fork. Each method may raise redis-py's errors,
    ``ConfigMismatch`` if the name is stored with other parameters, and ``ConfigError`` for an argument
    that can't be right, such as an empty item.
    """

    _OTHER = "AsyncExactFilter"

    @classmethod
    def open(
        cls,
        client: redis.Redis | redis.RedisCluster | str,
        name: str,
        *,
        client_options: ClientOptions = None,
        **own: Unpack[ExactArguments],
    ) -> Self:
        """Open a stored filter with its stored parameters. ``client`` is yours, or a URL as for ``from_url``.

        The other arguments are the arguments of ``from_url`` that are not stored.
        :raises ConfigError: if no filter has this name.
        """
        return cls._open(client, name, client_options, own)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)
