"""The distinct counters that the settings describe."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tbloom import DistinctCounter
from tbloom.distinct.config import CounterConfig
from tbloom.engine.keys import check_name
from tbloom.scrapy.connection import make_client
from tbloom.scrapy.settings import COUNTS, arguments, check_names, expand, naming_settings

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

KINDS = ("urls", "hosts")
_DEFAULTS = {"name": "%(spider)s", "granularity": "d", "slices": 30, "tz": "UTC"}
#: The arguments in which clients of the same counter may differ.
_OWN = {"max_members", "retry_for"}


class Counters:
    """A counter for each kind."""

    def __init__(self, settings: BaseSettings, spider: str) -> None:
        """Raises ConfigError that names the setting, if one can't be right."""
        self._settings = settings
        check_names(settings)
        with naming_settings(COUNTS):
            found: dict[str, Any] = {**_DEFAULTS, **arguments(settings, COUNTS)}
            name = found.pop("name")
            self._key = check_name(expand(COUNTS["name"], name, spider))
            mapping = found.get("mapping", f"{name}:ids")
            found["mapping"] = expand(COUNTS["mapping"], mapping, spider)
            CounterConfig(self._key, **{k: v for k, v in found.items() if k not in _OWN})
        self._arguments = found

    def __str__(self) -> str:
        mapping = self._arguments["mapping"]
        names = " and ".join(repr(f"{self._key}:{kind}") for kind in KINDS)
        return f"the counters {names} of the mapping {mapping!r}"

    @cached_property
    def by_kind(self) -> dict[str, DistinctCounter]:
        """The counters, made at their first use: the client of a cluster connects at once."""
        client, retry_for = make_client(self._settings)
        given: dict[str, Any] = {**retry_for, **self._arguments}
        with naming_settings(COUNTS):
            return {kind: DistinctCounter(client, f"{self._key}:{kind}", **given) for kind in KINDS}

    def counts(self, within: int | None = None) -> dict[str, int]:
        """The distinct members of each kind in the newest slices."""
        return {kind: counter.count(within) for kind, counter in self.by_kind.items()}

    def close(self) -> None:
        """Closes the counters' client, if there is one."""
        if "by_kind" in self.__dict__:
            self.by_kind[KINDS[0]].client.close()
