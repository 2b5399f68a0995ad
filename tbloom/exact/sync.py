"""The exact filter for threads and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from tbloom.engine.sync import SyncDriver
from tbloom.engine.urls import ClientOptions
from tbloom.exact.verbs import ExactArguments, ExactVerbs
from tbloom.items import Item

if TYPE_CHECKING:
    import redis


class ExactFilter(ExactVerbs["redis.Redis | redis.RedisCluster"], SyncDriver):
    """An exact set of items, shared through Redis, that remembers each for a time of its own.

    No item is taken for another one, and each expires to the millisecond by the server's clock. Later
    adds free its memory: each sweeps some expired entries, so that there is at most one for ten live
    ones. After a long time without adds, that state is reached by one object's next 30 adds, and one
    more for each 2,000 items in the filter (a batch counts as an add for each 150 items). Without any
    adds, the items' memory is freed when the last of them expires, and the few other keys after the same
    time again, at least an hour.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the name is stored with other parameters, and ``ConfigError`` for an argument
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
        """A filter that is stored, with the parameters that it has; ``client``: yours, or a URL as for ``from_url``.

        The other arguments are those of ``from_url`` that are not stored.
        :raises ConfigError: if no filter has this name.
        """
        return cls._open(client, name, client_options, own)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)
