"""The filters on a server, opened with their stored parameters."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.retry import Retry

from tbloom import TimeBloom, exact
from tbloom.bloom.config import Parameters, from_stored
from tbloom.cli.kit.errors import VARIABLES, CommandError
from tbloom.distinct.config import INTEGERS
from tbloom.distinct.config import KIND as MAPPING
from tbloom.engine.flow import text
from tbloom.engine.keys import CONFIGS, Keys, name_of
from tbloom.engine.parameters import read_stored
from tbloom.engine.urls import make_client, parse_url, without_secrets
from tbloom.errors import ConfigMismatch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom.bloom.config import Config

_LOCAL = "redis://localhost:6379/0"
#: How long commands with many items retry a request (s). Commands that only read do not retry.
RETRY_FOR = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME and --url."""
    parser.add_argument("name", metavar="NAME", help="the filter's name (tbloom list)")
    add_url(parser)


def add_url(parser: argparse.ArgumentParser) -> None:
    """--url."""
    parser.add_argument(
        "--url",
        default=next(filter(None, map(os.environ.get, VARIABLES)), _LOCAL),
        help=f"the server, such as redis://host:6379/0 or redis+cluster://host:6379 ({', else '.join([*VARIABLES, _LOCAL])})",
    )


@contextmanager
def connect(url: str) -> Iterator[Any]:
    """redis-py's client, without retries: if no server answers, the first command raises redis-py's error."""
    address, cluster = parse_url(url)
    # Commands expect replies in bytes.
    address = re.sub(r"(?<=[?&])(decode_responses|encoding\w*)=[^&]*&?", "", address)
    kind = redis.RedisCluster if cluster else redis.Redis
    try:
        with make_client(kind.from_url, Retry, address) as client:
            yield client
    except (
        redis.exceptions.RedisClusterException,
        redis.ConnectionError,
        redis.TimeoutError,
    ) as error:
        raise CommandError(f"{error} (--url, or {VARIABLES[0]}, names the server)") from None


@contextmanager
def open_filter(url: str, name: str, **own: Any) -> Iterator[TimeBloom]:
    """The stored filter of this name; ``own`` are further arguments of ``TimeBloom``."""
    with connect(url) as client, open_stored(url, client, name, **own) as seen:
        yield seen


@contextmanager
def open_or_create(
    url: str, name: str, given: dict[str, Any] | None, **own: Any
) -> Iterator[TimeBloom]:
    """The filter of this name, created with the ``given`` parameters if it is missing (None: not created).

    Raises CommandError where it is stored with other parameters than those given.
    """
    with connect(url) as client:
        stored = client.get(Keys(name).root)
        is_ours = not stored_exact(client, name) and not is_mapping(client, name)
        if given is not None and (given or stored is None) and is_ours:
            seen = TimeBloom(client, name, **given, **own)
            try:
                seen.keys()
            except ConfigMismatch as error:
                raise CommandError(
                    f"{error}. Leave --create and its parameters out, or see 'tbloom reconfigure --help'"
                ) from None
        elif stored is None:
            raise CommandError(
                f"no filter {name!r} on {without_secrets(url)} (--create makes it; 'tbloom list' shows the others)"
            )
        else:
            seen = open_stored(url, client, name, **own)
        with seen:
            yield seen


def open_stored(url: str, client: Any, name: str, **own: Any) -> TimeBloom:
    """The stored filter of this name, on an open client; errors name the ``url``."""
    stored = client.get(Keys(name).root)
    if stored is None:
        raise CommandError(
            f"no filter {name!r} on {without_secrets(url)} ('tbloom list' shows the filters)"
        )
    if exact.config.from_stored(name, text(stored)):
        raise CommandError(
            f"{name!r} on {without_secrets(url)} is an exact filter; this command needs one with slices"
        )
    if is_mapping(client, name):
        raise CommandError(
            f"{name!r} on {without_secrets(url)} is a mapping of distinct counters: see 'tbloom count'"
        )
    return of_config(client, from_stored(name, text(stored)), **own)


def is_mapping(client: Any, name: str) -> bool:
    """The name belongs to a mapping of distinct counters, or to a counter of integers, which has none."""
    return kind_of(client, name) in (MAPPING, INTEGERS)


def kind_of(client: Any, name: str) -> Any:
    """The kind of store that has this name, if it is not the first kind, ``TimeBloom``."""
    try:
        stored = text(client.get(Keys(name).root) or b"")
    except redis.ResponseError:  # the key belongs to another program
        return None
    return read_stored(stored).get("kind")


def stored_exact(client: Any, name: str) -> exact.ExactFilter | None:
    """The exact filter of this name; None where there is none."""
    try:
        config = exact.config.from_stored(name, text(client.get(Keys(name).root) or b""))
    except redis.ResponseError:  # the key belongs to another program
        return None
    return exact.ExactFilter(client, name, shards=config.shards) if config else None


def of_config(client: Any, config: Config, **own: Any) -> TimeBloom:
    """The filter with these parameters."""
    return TimeBloom(client, config.name, **parameters_of(config), **own)


def parameters_of(config: Config) -> Parameters:
    """The parameters as arguments of ``TimeBloom``."""
    return cast("Parameters", {name: getattr(config, name) for name in Parameters.__annotations__})


def node_of(client: Any, key: str) -> dict[str, Any]:
    """Arguments that send a command to the cluster's node that holds the key."""
    node = getattr(client, "get_node_from_key", None)
    return {"target_nodes": node(key)} if node else {}


def names(client: Any) -> list[str]:
    """The names of the filters on the server, sorted."""
    return [name for name in _stored_names(client) if not is_mapping(client, name)]


def mappings(client: Any) -> list[str]:
    """The names of the mappings of distinct counters on the server, sorted."""
    return [name for name in _stored_names(client) if is_mapping(client, name)]


def _stored_names(client: Any) -> list[str]:
    """All names with stored parameters, found by SCAN, sorted."""
    found = (name_of(text(key)) for key in client.scan_iter(CONFIGS, count=1000))
    return sorted({name for name in found if name is not None})
