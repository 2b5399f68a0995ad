"""The distinct counters that are on a server, by their stored parameters."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis import ResponseError

from tbloom.cli.kit import filters
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import PARAMETERS, CounterConfig, from_stored
from tbloom.engine.flow import text
from tbloom.engine.urls import without_secrets
from tbloom.errors import ConfigMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.distinct.base import Counted


def open_stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter:
    """The stored counter of this name; ``url`` is for the message."""
    counter = _stored(url, client, mapping, name)
    if counter is None:
        raise _unknown(url, client, mapping, name)
    return counter


def open_or_create(
    url: str, client: Any, mapping: str, name: str, given: dict[str, Any]
) -> DistinctCounter:
    """The same; one that is not there is made with what is ``given``.

    One that is there must be the one that they would make, if there are any.
    """
    config = CounterConfig(name, mapping, **given)
    stored = _parameters(url, client, config)
    if stored is not None and not given:
        config = from_stored(name, mapping, stored)
    elif stored is not None and stored != config.stored:
        raise ConfigMismatch(name, config.differences(stored), stored)
    return of_config(client, config, retry_for=filters.RETRY_FOR)


def open_operand(url: str, client: Any, mapping: str, word: str) -> Counted:
    """The counter of this name, or the slice that ``NAME@LABEL`` is."""
    counter = _stored(url, client, mapping, word)
    if counter is not None:
        return counter
    name, _, label = word.rpartition("@")
    counter = _stored(url, client, mapping, name) if name else None
    if counter is None:
        raise _unknown(url, client, mapping, word)
    window = counter.config.window
    if window is None:
        raise CommandError(f"{word!r}: the counter {name!r} has no slices")
    live = [slice.label for slice in window.live(_now(client, counter.config))]
    if label not in live:
        raise CommandError(f"{word!r}: expected a slice from {live[0]} to {live[-1]}")
    return counter.slice(label)


def stored_in(client: Any, mapping: str) -> dict[str, str]:
    """The parameters of the counters that share a mapping, by name, in order."""
    stored = client.hgetall(CounterConfig("any", mapping).keys.counters())
    return dict(sorted((text(name), text(parameters)) for name, parameters in stored.items()))


def check_mapping(url: str, client: Any, mapping: str) -> None:
    """Raises CommandError where there is no mapping of this name."""
    if not _is_there(url, client, CounterConfig("any", mapping)):
        raise CommandError(
            f"no mapping {mapping!r} on {without_secrets(url)} ('tbloom count list URL' shows those that are there)"
        )


def of_config(client: Any, config: CounterConfig, **own: Any) -> DistinctCounter:
    """The counter with these parameters."""
    return DistinctCounter(client, config.name, config.mapping, **parameters_of(config), **own)


def parameters_of(config: CounterConfig) -> dict[str, Any]:
    """The same, as ``DistinctCounter`` takes them."""
    return {name: getattr(config, name) for name in PARAMETERS}


def _stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter | None:
    stored = _parameters(url, client, CounterConfig(name, mapping))
    return None if stored is None else of_config(client, from_stored(name, mapping, stored))


def _parameters(url: str, client: Any, config: CounterConfig) -> str | None:
    """What is stored of the counter with this name and mapping."""
    _is_there(url, client, config)
    with _reading(config.mapping, config.keys.counters()) as key:
        stored = client.hget(key, config.name)
    return None if stored is None else text(stored)


def _is_there(url: str, client: Any, config: CounterConfig) -> bool:
    """Whether its mapping is; raises CommandError where that name is a filter's."""
    mapping = config.mapping
    with _reading(mapping, config.keys.root) as key:
        is_there = client.get(key) is not None
    if is_there and not filters.is_mapping(client, mapping):
        raise CommandError(
            f"--mapping: {mapping!r} on {without_secrets(url)} is no mapping of distinct counters"
        )
    return is_there


def _now(client: Any, config: CounterConfig) -> int:
    """The server's clock (ms)."""
    seconds, microseconds = client.time(**filters.node_of(client, config.keys.root))
    return int(seconds) * 1000 + int(microseconds) // 1000


def _unknown(url: str, client: Any, mapping: str, name: str) -> CommandError:
    with_one = [other for other in filters.mappings(client) if _has(client, other, name)]
    hint = f"; --mapping {with_one[0]} has one of this name" if with_one else ""
    return CommandError(
        f"no counter {name!r} of the mapping {mapping!r} on {without_secrets(url)} "
        f"('tbloom count list URL' shows those that are there{hint})"
    )


def _has(client: Any, mapping: str, name: str) -> bool:
    try:
        return bool(client.hexists(CounterConfig("any", mapping).keys.counters(), name))
    except ResponseError:  # somebody else's key, of another type
        return False


@contextmanager
def _reading(mapping: str, key: str) -> Iterator[str]:
    """An error reply, as to somebody else's key of another type, names the mapping and the key."""
    try:
        yield key
    except ResponseError as error:
        raise CommandError(f"--mapping {mapping}: key {key!r}: {one_line(error)}") from None
