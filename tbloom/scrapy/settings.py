"""The Scrapy settings that tbloom reads: their names, and how their values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom.errors import ConfigError


def flag(text: str) -> bool:
    """Scrapy's spellings of a bool on the command line."""
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def period(text: str) -> str | None:
    """A granularity; ``None`` or nothing on the command line: no window."""
    return None if text in ("", "None", "none") else text


def number(value: str | float) -> int:
    """A whole number, also as ``1e6``."""
    if float(value).is_integer():
        return int(float(value))
    raise ValueError


class Setting(NamedTuple):
    """A setting's name, and how its value is read where it is a str, as from the command line."""

    name: str
    read: Callable[[str], Any] = str

    def value(self, settings: BaseSettings, default: Any = None) -> Any:
        """The setting's value, or the default where it is not set. What can't be read stays: the store names it."""
        value = settings.get(self.name, default)
        with suppress(ValueError, KeyError, OverflowError):
            if isinstance(value, str) or (self.read is number and isinstance(value, float)):
                return self.read(value)  # type: ignore[arg-type] # number reads a float, too
        return value

    def is_on(self, settings: BaseSettings, *, default: bool = False) -> bool:
        """The value of a setting that is True or False."""
        value = self.value(settings, default)
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        raise ConfigError(self.name, value, "True or False")

    def whole(self, settings: BaseSettings, *, default: int) -> int:
        """The value of a setting that is a whole number from 1 on."""
        value = self.value(settings, default)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise ConfigError(self.name, value, "a whole number from 1 on")


#: The arguments of the filters, and their settings.
FILTER = {
    "name": Setting("TBLOOM_KEY"),
    "granularity": Setting("TBLOOM_GRANULARITY", period),
    "slices": Setting("TBLOOM_SLICES", int),
    "capacity": Setting("TBLOOM_CAPACITY", number),
    "error_rate": Setting("TBLOOM_ERROR_RATE", float),
    "tz": Setting("TBLOOM_TIMEZONE"),
    "shards": Setting("TBLOOM_SHARDS", int),
    "grow": Setting("TBLOOM_GROW", flag),
    "bits": Setting("BLOOMFILTER_BIT", int),
    "hashes": Setting("BLOOMFILTER_HASH_NUMBER", int),
    "secret": Setting("TBLOOM_SECRET", os.fsencode),
    "retry_for": Setting("TBLOOM_RETRY_FOR", float),
    "replicas": Setting("TBLOOM_REPLICAS", int),
    "session_ttl": Setting("TBLOOM_SESSION_TTL", float),
    "cache_size": Setting("TBLOOM_CACHE_SIZE", int),
    "ttl": Setting("TBLOOM_TTL", float),
    "path": Setting("TBLOOM_PATH"),
}
STORE, MARK = Setting("TBLOOM_STORE"), Setting("TBLOOM_MARK")
SHADOW, ON_ERROR = Setting("TBLOOM_SHADOW", flag), Setting("TBLOOM_ON_ERROR")
TAKE_OVER, ATTEMPTS = Setting("TBLOOM_TAKE_OVER", flag), Setting("TBLOOM_ATTEMPTS", number)
#: The values of TBLOOM_MARK with which requests are claimed, and marked when they are done.
MARKS_DONE = ("done", "parsed")
#: scrapy-redis' setting.
FLUSH = Setting("SCHEDULER_FLUSH_ON_START", flag)
#: The same of the distinct counters.
COUNTS = {
    "name": Setting("TBLOOM_COUNT_KEY"),
    "mapping": Setting("TBLOOM_COUNT_MAPPING"),
    "granularity": Setting("TBLOOM_COUNT_GRANULARITY"),
    "slices": Setting("TBLOOM_COUNT_SLICES", int),
    "tz": FILTER["tz"],
    "max_members": Setting("TBLOOM_COUNT_MAX_MEMBERS", int),
    "retry_for": FILTER["retry_for"],
}
#: The same of the page store.
PAGES = {
    "path": Setting("TBLOOM_PAGES_PATH"),
    "granularity": Setting("TBLOOM_PAGES_GRANULARITY"),
    "slices": Setting("TBLOOM_PAGES_SLICES", int),
    "tz": FILTER["tz"],
    "readonly": Setting("TBLOOM_PAGES_READONLY", flag),
    "codec": Setting("TBLOOM_PAGES_CODEC"),
}
KNOWN = {
    setting.name
    for table in (FILTER, COUNTS, PAGES)
    for setting in (*table.values(), STORE, MARK, SHADOW, ON_ERROR, TAKE_OVER, ATTEMPTS)
}


def check_names(settings: BaseSettings) -> None:
    """Raises ConfigError for a setting that begins with TBLOOM_ and does not exist."""
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            close = get_close_matches(name, sorted(KNOWN), 1)
            known = close[0] if close else "one of " + ", ".join(sorted(KNOWN))
            # The value may be a secret.
            raise ConfigError(name, "an unknown setting", known)


def arguments(settings: BaseSettings, table: Mapping[str, Setting]) -> dict[str, Any]:
    """The arguments whose settings are set. None stands for a setting that is not, but for a period."""
    values = {argument: setting.value(settings) for argument, setting in table.items()}
    return {
        argument: value
        for argument, value in values.items()
        if value is not None
        or (table[argument].read is period and table[argument].name in settings)
    }


def expand(setting: Setting, text: Any, **names: object) -> str:
    """The setting's text with the value of ``spider`` for each ``%(spider)s``, and so on."""
    # No other formats: %(spider)9999999999s would take 10 GB, and %(spider).2s mix up spiders.
    known = [f"%({name})s" for name in names]
    pieces = "|".join(map(re.escape, ["%%", *known]))
    if not isinstance(text, str) or "%" in re.sub(pieces, "", text):
        only = " and ".join(known)
        expected = f"a str in which only {only} may be replaced, and any other % is %%"
        raise ConfigError(setting.name, text, expected)
    return text % names


@contextmanager
def naming_settings(table: Mapping[str, Setting]) -> Iterator[None]:
    """Within it, a ConfigError names the setting in place of the argument."""
    try:
        yield
    except ConfigError as error:
        known = table.get(error.argument)
        raise ConfigError(
            known.name if known else error.argument, error.value, error.expected
        ) from None
