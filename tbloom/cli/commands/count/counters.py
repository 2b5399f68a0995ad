"""The distinct counters on a server, opened with their stored parameters."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis import ResponseError

from tbloom.cli.kit import filters
from tbloom.cli.kit.errors import CommandError, one_line
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import INTEGERS, PARAMETERS, CounterConfig, from_stored
from tbloom.engine.flow import text
from tbloom.engine.parameters import read_stored
from tbloom.engine.urls import without_secrets
from tbloom.errors import ConfigMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tbloom.distinct import MemberSet


def open_stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter:
    """The stored counter of this name; errors name the ``url``."""
    counter = _stored(url, client, mapping, name)
    if counter is None:
        raise _unknown(url, client, mapping, name)
    return counter


def open_or_create(
    url: str, client: Any, mapping: str, name: str, given: dict[str, Any], *, keep_members: bool
) -> DistinctCounter:
    """The counter of this name, created with the ``given`` parameters if it is missing.

    ``keep_members``: of a new mapping, too. Raises ConfigMismatch where it is stored with other parameters than those given.
    """
    config = CounterConfig(name, mapping, keep_members=keep_members, **given)
    stored = _stored(url, client, mapping, name)
    if stored is not None and not given:
        config = stored.config
    elif stored is not None and stored.config.stored != config.stored:
        theirs = stored.config.stored
        raise ConfigMismatch(name, config.differences(theirs), theirs)
    elif _mapping_exists(url, client, config) and not keep_members:
        config = dataclasses.replace(config, keep_members=_keeps_members(client, mapping))
    return of_config(client, config, retry_for=filters.RETRY_FOR)


def open_operand(url: str, client: Any, mapping: str, word: str) -> DistinctCounter | MemberSet:
    """The counter of this name, or the slice ``NAME@LABEL``."""
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


def stored_in(client: Any, mapping: str) -> dict[bytes, str]:
    """The stored parameters of a mapping's counters, by name, sorted."""
    stored = client.hgetall(CounterConfig("any", mapping).keys.counters())
    return {name: text(parameters) for name, parameters in sorted(stored.items())}


def check_mapping(url: str, client: Any, mapping: str) -> None:
    """Raises CommandError where no mapping of this name exists."""
    if not _mapping_exists(url, client, CounterConfig("any", mapping)):
        raise CommandError(
            f"no mapping {mapping!r} on {without_secrets(url)} ('tbloom count list' shows the counters)"
        )


def of_config(client: Any, config: CounterConfig, **own: Any) -> DistinctCounter:
    """The counter with these parameters."""
    more = {**parameters_of(config), "keep_members": config.keep_members, **own}
    return DistinctCounter(client, config.name, config.mapping, **more)


def config_of(client: Any, mapping: str, name: str | bytes, stored: str) -> CounterConfig:
    """The parameters of a counter that is stored with this mapping; raises ConfigError if they can't be read."""
    if filters.kind_of(client, mapping) == INTEGERS:
        return from_stored(name, None, stored)
    return from_stored(name, mapping, stored, keep_members=_keeps_members(client, mapping))


def parameters_of(config: CounterConfig) -> dict[str, Any]:
    """The parameters as arguments of ``DistinctCounter``."""
    return {name: getattr(config, name) for name in PARAMETERS}


def _stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter | None:
    """The stored counter; one of integers where the mapping has none of this name."""
    stored = _entry(url, client, CounterConfig(name, mapping))
    if stored is None and filters.kind_of(client, name) == INTEGERS:
        mapping, stored = name, _entry(url, client, CounterConfig(name, None))
    return None if stored is None else of_config(client, config_of(client, mapping, name, stored))


def _entry(url: str, client: Any, config: CounterConfig) -> str | None:
    """What is stored of the counter with this name and mapping."""
    _mapping_exists(url, client, config)
    with _reading(config.mapping or config.name, config.keys.counters()) as key:
        stored = client.hget(key, config.name)
    return None if stored is None else text(stored)


def _keeps_members(client: Any, mapping: str) -> bool:
    stored = read_stored(text(client.get(CounterConfig("any", mapping).keys.root) or b""))
    return stored.get("keep_members") is True


def _mapping_exists(url: str, client: Any, config: CounterConfig) -> bool:
    """The mapping of the counter exists; raises CommandError where a filter has its name."""
    mapping = config.mapping or config.name
    with _reading(mapping, config.keys.root) as key:
        exists = client.get(key) is not None
    if exists and not filters.is_mapping(client, mapping):
        raise CommandError(
            f"--mapping: {mapping!r} on {without_secrets(url)} is no mapping of distinct counters"
        )
    return exists


def _now(client: Any, config: CounterConfig) -> int:
    """The server's clock (ms)."""
    seconds, microseconds = client.time(**filters.node_of(client, config.keys.root))
    return int(seconds) * 1000 + int(microseconds) // 1000


def _unknown(url: str, client: Any, mapping: str, name: str) -> CommandError:
    others = [other for other in filters.mappings(client) if _has(client, other, name)]
    hint = f"; --mapping {others[0]} has one of this name" if others else ""
    return CommandError(
        f"no counter {name!r} of the mapping {mapping!r} on {without_secrets(url)} "
        f"('tbloom count list' shows the counters{hint})"
    )


def _has(client: Any, mapping: str, name: str) -> bool:
    try:
        return bool(client.hexists(CounterConfig("any", mapping).keys.counters(), name))
    except ResponseError:  # the key belongs to another program
        return False


@contextmanager
def _reading(mapping: str, key: str) -> Iterator[str]:
    """Adds the mapping and the key to an error reply, as for a key of another type."""
    try:
        yield key
    except ResponseError as error:
        raise CommandError(f"--mapping {mapping}: key {key!r}: {one_line(error)}") from None
