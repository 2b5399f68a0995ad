"""The distinct counters that are on a server, by their stored parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbloom.calls import ScriptCall, text
from tbloom.cli import filters
from tbloom.cli.errors import CommandError
from tbloom.clients import without_secrets
from tbloom.distinct import DistinctCounter
from tbloom.distinct.config import WHOLE, CounterConfig, from_stored
from tbloom.errors import ConfigMismatch
from tbloom.scripts import DISTINCT_LOOK

if TYPE_CHECKING:
    from tbloom.distinct.base import Counted


def open_stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter:
    """The stored counter of this name; ``url`` is for the message."""
    counter = _stored(url, client, mapping, name)
    if counter is None:
        raise _unknown(url, mapping, name)
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
    return of_config(client, config, patience=filters.PATIENCE)


def open_operand(url: str, client: Any, mapping: str, word: str) -> Counted:
    """The counter of this name, or the slice that ``NAME@LABEL`` is."""
    counter = _stored(url, client, mapping, word)
    if counter is not None:
        return counter
    name, _, label = word.rpartition("@")
    counter = _stored(url, client, mapping, name) if name else None
    if counter is None:
        raise _unknown(url, mapping, word)
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
    if client.get(_checked(url, client, CounterConfig("any", mapping)).keys.root) is None:
        raise CommandError(
            f"no mapping {mapping!r} on {without_secrets(url)} ('tbloom count list URL' shows those that are there)"
        )


def of_config(client: Any, config: CounterConfig, **own: Any) -> DistinctCounter:
    """The counter with these parameters."""
    like: dict[str, Any] = {"granularity": config.granularity, "slices": config.slices}
    return DistinctCounter(client, config.name, config.mapping, **like, tz=config.tz, **own)


def _stored(url: str, client: Any, mapping: str, name: str) -> DistinctCounter | None:
    stored = _parameters(url, client, CounterConfig(name, mapping))
    return None if stored is None else of_config(client, from_stored(name, mapping, stored))


def _parameters(url: str, client: Any, config: CounterConfig) -> str | None:
    """What is stored of the counter with this name and mapping."""
    stored = client.hget(_checked(url, client, config).keys.counters(), config.name)
    return None if stored is None else text(stored)


def _checked(url: str, client: Any, config: CounterConfig) -> CounterConfig:
    """The same; raises CommandError where the mapping's name is that of a filter."""
    mapping = config.mapping
    if client.get(config.keys.root) is not None and not filters.is_mapping(client, mapping):
        raise CommandError(
            f"--mapping: {mapping!r} on {without_secrets(url)} is no mapping of distinct counters"
        )
    return config


def _now(client: Any, config: CounterConfig) -> int:
    """The server's clock (ms)."""
    call = ScriptCall(DISTINCT_LOOK, (config.keys.directory(config.name, WHOLE),), (), in_full=True)
    now: int = client.execute_command(*call.words)[0]
    return now


def _unknown(url: str, mapping: str, name: str) -> CommandError:
    return CommandError(
        f"no counter {name!r} of the mapping {mapping!r} on {without_secrets(url)} "
        "('tbloom count list URL' shows those that are there)"
    )
