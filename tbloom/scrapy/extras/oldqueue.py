"""scrapy-redis' queue, whose requests ``tbloom push --from-scrapy-redis`` moves to the left pages of a spider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom.engine.flow import text
from tbloom.errors import ConfigError, TBloomError
from tbloom.scrapy.options import make_client, server_settings

_KEY, _SERIALIZER = "SCHEDULER_QUEUE_KEY", "SCHEDULER_SERIALIZER"


class OldQueue(NamedTuple):
    """A key with requests, of any of scrapy-redis' classes of queues."""

    client: Any
    key: str
    #: It is a sorted set (PriorityQueue), not a list (FifoQueue, LifoQueue).
    is_sorted: bool
    #: Returns the fields of a request. With pickles, it runs code that is in them.
    loads: Callable[[Any], Any]

    def size(self) -> int:
        """Return the number of requests."""
        client, key = self.client, self.key
        return int(client.zcard(key) if self.is_sorted else client.llen(key))

    def read(self, skip: int, count: int) -> list[Any]:
        """Return up to ``count`` requests as they are stored, without the first ``skip`` ones."""
        if self.is_sorted:
            return [*self.client.zrange(self.key, skip, skip + count - 1)]
        # From its end, at which nothing is pushed.
        return [*reversed(self.client.lrange(self.key, -skip - count, -skip - 1))]

    def remove(self, requests: Sequence[Any]) -> None:
        """Remove requests that were read."""
        with self.client.pipeline(transaction=False) as pipe:
            for request in requests:
                if self.is_sorted:
                    pipe.zrem(self.key, request)
                else:
                    pipe.lrem(self.key, -1, request)
            pipe.execute()


@contextmanager
def open_old_queue(settings: BaseSettings, spider: str, key: str) -> Iterator[OldQueue]:
    """Yield the queue at the key; "": at the one that the settings name. Raise TBloomError if there is none."""
    from scrapy_redis import defaults, picklecompat  # noqa: PLC0415 - only a move needs them

    if not key:
        form = settings.get(_KEY) or defaults.SCHEDULER_QUEUE_KEY
        try:
            key = form % {"spider": spider}
        except (LookupError, TypeError, ValueError):
            raise ConfigError(
                _KEY, form, "a key, in which %(spider)s is the spider's name"
            ) from None
    serializer = settings.get(_SERIALIZER) or picklecompat
    try:
        loads = (import_module(serializer) if isinstance(serializer, str) else serializer).loads
    except (ImportError, AttributeError):
        raise ConfigError(_SERIALIZER, serializer, "a module with loads()") from None
    client, _ = make_client(settings)
    with closing(client):
        kind, place = text(client.type(key)), server_settings(settings)
        if kind == "none":
            hint = "it is empty, or has another key, or scrapy-redis has deleted it (SCHEDULER_PERSIST)"
            raise TBloomError(f"there is no queue {key!r} ({place}): {hint}")
        if kind not in ("zset", "list"):
            raise TBloomError(f"{key!r} ({place}) holds a {kind}, no queue of scrapy-redis")
        yield OldQueue(client, key, kind == "zset", loads)
