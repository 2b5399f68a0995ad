"""The filters on a server, opened with their stored parameters."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.retry import Retry

from tbloom import ExactFilter, TimeBloom, exact
from tbloom.bloom.config import Parameters, from_stored
from tbloom.cli.kit.errors import VARIABLES, CommandError
from tbloom.engine.flow import text
from tbloom.engine.keys import CONFIGS, DEFAULT_MAPPING, Keys, MappingKeys, name_of
from tbloom.engine.parameters import read_stored
from tbloom.engine.urls import make_client, parse_url, without_secrets
from tbloom.errors import ConfigMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.bloom.config import Config

#: How long commands with many items retry a request (s). Commands that only read do not retry.
RETRY_FOR = 30.0
#: The kinds of stores that are no filters (docs/format.md): mappings of counters, and counters of integers.
COUNTERS = ("mapping", "integers")
#: The kind of a ``TimeBloom``, and of what no kind is known.
WITH_SLICES = ""


@contextmanager
def connect(url: str, option: str = f"--url, or {VARIABLES[0]},") -> Iterator[Server]:
    """The server, by a client without retries: if none answers, the first command raises CommandError.

    ``option``: what has the URL, for that error.
    """
    address, cluster = parse_url(url)
    # Commands expect replies in bytes.
    address = re.sub(r"(?<=[?&])(decode_responses|encoding\w*)=[^&]*&?", "", address)
    kind = redis.RedisCluster if cluster else redis.Redis
    try:
        with make_client(kind.from_url, Retry, address) as client:
            yield Server(url, client)
    except (
        redis.exceptions.RedisClusterException,
        redis.ConnectionError,
        redis.TimeoutError,
    ) as error:
        raise CommandError(f"{error} ({option} names the server)") from None


@contextmanager
def open_filter(url: str, name: str, **own: Any) -> Iterator[TimeBloom]:
    """The stored filter of this name; ``own`` are further arguments of ``TimeBloom``."""
    with connect(url) as server, server.filter(name, **own) as seen:
        yield seen


@contextmanager
def open_or_create(
    url: str, name: str, given: dict[str, Any] | None, **own: Any
) -> Iterator[TimeBloom]:
    """The filter of this name, created with the ``given`` parameters if it is missing (None: not created).

    Raises CommandError where it is stored with other parameters than those given.
    """
    with connect(url) as server:
        kind = server.kind(name)
        if given is not None and (given or kind is None) and kind in (None, WITH_SLICES):
            seen = TimeBloom(server.client, name, **given, **own)
            try:
                seen.keys()
            except ConfigMismatch as error:
                raise CommandError(
                    f"{error}. Leave --create and its parameters out, or see 'tbloom reconfigure --help'"
                ) from None
        elif kind is None:
            raise CommandError(
                f"no filter {name!r} on {server.place} (--create makes it; 'tbloom list' shows the others)"
            )
        else:
            seen = server.filter(name, **own)
        with seen:
            yield seen


class Server:
    """A server and its client, whose replies are bytes."""

    def __init__(self, url: str, client: Any) -> None:
        self.url, self.client = url, client
        #: For messages: the URL without a password.
        self.place = without_secrets(url)

    def stored(self, name: str) -> str | None:
        """The stored parameters of the store with this name."""
        keys = MappingKeys if name == DEFAULT_MAPPING else Keys
        found = self.client.get(keys(name).root)
        return None if found is None else text(found)

    def kind(self, name: str) -> str | None:
        """The kind of store that has this name; "": a ``TimeBloom``, or another program's key; None: there is none."""
        try:
            stored = self.stored(name)
        except redis.ResponseError:  # the key belongs to another program
            return ""
        return None if stored is None else str(read_stored(stored).get("kind", ""))

    def filter(self, name: str, **own: Any) -> TimeBloom:
        """The stored filter of this name; ``own`` are further arguments of ``TimeBloom``."""
        stored = self.stored(name)
        if stored is None:
            raise CommandError(
                f"no filter {name!r} on {self.place} ('tbloom list' shows the filters)"
            )
        if exact.config.from_stored(name, stored):
            raise CommandError(
                f"{name!r} on {self.place} is an exact filter; this command needs one with slices"
            )
        if self.kind(name) in COUNTERS:
            raise CommandError(
                f"{name!r} on {self.place} is a mapping of distinct counters: see 'tbloom count'"
            )
        return of_config(self.client, from_stored(name, stored), **own)

    def any_filter(self, name: str) -> TimeBloom | ExactFilter:
        """The stored filter of this name, also an exact one."""
        config = exact.config.from_stored(name, self.stored(name) or "")
        if config is None:
            return self.filter(name)
        return ExactFilter(self.client, name, shards=config.shards)

    def names(self, *kinds: str) -> list[str]:
        """The names of the stores of these kinds (all filters), found by SCAN, sorted."""
        keys = (name_of(text(key)) for key in self.client.scan_iter(CONFIGS, count=1000))
        found = sorted({name for name in keys if name is not None})
        if kinds:
            return [name for name in found if self.kind(name) in kinds]
        return [name for name in found if self.kind(name) not in COUNTERS]

    def now(self, key: str) -> int:
        """The clock (ms); of a cluster, that of the node with the key."""
        seconds, microseconds = self.client.time(**self.node_of(key))
        return int(seconds) * 1000 + int(microseconds) // 1000

    def node_of(self, key: str) -> dict[str, Any]:
        """Arguments that send a command to the cluster's node that holds the key."""
        node = getattr(self.client, "get_node_from_key", None)
        return {"target_nodes": node(key)} if node else {}


def of_config(client: Any, config: Config, **own: Any) -> TimeBloom:
    """The filter with these parameters."""
    return TimeBloom(client, config.name, **parameters_of(config), **own)


def parameters_of(config: Config) -> Parameters:
    """The parameters as arguments of ``TimeBloom``."""
    return cast("Parameters", {name: getattr(config, name) for name in Parameters.__annotations__})
