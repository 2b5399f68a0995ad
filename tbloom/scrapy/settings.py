"""The Scrapy settings that tbloom reads, and the keys of a request's meta: their names, and how values are read."""

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
    """A setting: its name, how a str is read, as from the command line, its default, and the values that it may have (none: any)."""

    name: str
    read: Callable[[str], Any] = str
    default: Any = None
    choices: tuple[Any, ...] = ()

    def value(self, settings: BaseSettings) -> Any:
        """The setting's value. What can't be read stays: the store names it, or ConfigError does."""
        value = settings.get(self.name)
        if value is None:
            return self.default
        with suppress(ValueError, KeyError, OverflowError):
            if isinstance(value, str) or (self.read is number and isinstance(value, float)):
                value = self.read(value)  # type: ignore[arg-type] # number reads a float, too
        # Only these types: to compare some values, such as Decimal("sNaN"), raises.
        if self.choices and not (isinstance(value, str | int) and value in self.choices):
            raise ConfigError(self.name, value, " or ".join(map(repr, self.choices)))
        return value


_BOOL = (True, False)
#: The arguments of the filters, and their settings.
FILTER = {
    "name": Setting("TBLOOM_KEY"),
    "granularity": Setting("TBLOOM_GRANULARITY", period),
    "slices": Setting("TBLOOM_SLICES", int),
    "capacity": Setting("TBLOOM_CAPACITY", number),
    "error_rate": Setting("TBLOOM_ERROR_RATE", float),
    "tz": Setting("TBLOOM_TIMEZONE"),
    "shards": Setting("TBLOOM_SHARDS", int),
    "grow": Setting("TBLOOM_GROW", flag, choices=_BOOL),
    "bits": Setting("BLOOMFILTER_BIT", int),
    "hashes": Setting("BLOOMFILTER_HASH_NUMBER", int),
    "secret": Setting("TBLOOM_SECRET", os.fsencode),
    "retry_for": Setting("TBLOOM_RETRY_FOR", float),
    "session_ttl": Setting("TBLOOM_SESSION_TTL", float),
    "cache_size": Setting("TBLOOM_CACHE_SIZE", int),
    "ttl": Setting("TBLOOM_TTL", float),
    "path": Setting("TBLOOM_PATH"),
}
#: The values of TBLOOM_MARK with which requests are claimed, and marked when they are done.
MARKS_DONE = ("done", "parsed")
STORE = Setting("TBLOOM_STORE", default="bloom", choices=("bloom", "exact", "local"))
MARK = Setting("TBLOOM_MARK", default="scheduled", choices=("scheduled", *MARKS_DONE))
ON_ERROR = Setting("TBLOOM_ON_ERROR", default="raise", choices=("raise", "schedule", "drop"))
TAKE_OVER = Setting("TBLOOM_TAKE_OVER", flag, default=True, choices=_BOOL)
ATTEMPTS = Setting("TBLOOM_ATTEMPTS", number, default=1)
#: True, False, or a class.
SHADOW = Setting("TBLOOM_SHADOW", flag, default=False)
#: scrapy-redis' setting.
FLUSH = Setting("SCHEDULER_FLUSH_ON_START", flag, default=False, choices=_BOOL)
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
    "readonly": Setting("TBLOOM_PAGES_READONLY", flag, choices=_BOOL),
    "codec": Setting("TBLOOM_PAGES_CODEC"),
}
_OTHERS = (STORE, MARK, SHADOW, ON_ERROR, TAKE_OVER, ATTEMPTS)
KNOWN = {s.name: s for s in (*FILTER.values(), *COUNTS.values(), *PAGES.values(), *_OTHERS)}

# Keys of a request's meta
#: Number of newest slices in which the request counts as seen.
WITHIN = "tbloom_within"
#: For how many slices the request, or the page that answers it, counts as seen; None: for the whole window.
KEEP = "tbloom_keep"
#: How long the request counts as seen in an exact store (seconds).
TTL = "tbloom_ttl"
#: The token of a request that is queued as a page (``claims/page.py``).
CLAIM = "tbloom_claim"


class UnknownSetting(ConfigError):
    """A setting that does not exist. (Its value is not shown, because it may be a secret.)"""

    def __str__(self) -> str:
        return f"unknown setting {self.argument}; {self.expected}"


def check_settings(settings: BaseSettings) -> None:
    """Raises ConfigError for a setting that begins with TBLOOM_ and does not exist, and for one that is none of its choices."""
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            close = get_close_matches(name, sorted(KNOWN), 1)
            hint = f"did you mean {close[0]}?" if close else "known are " + ", ".join(sorted(KNOWN))
            raise UnknownSetting(name, None, hint)
    for setting in (*KNOWN.values(), FLUSH):
        setting.value(settings)
    attempts = ATTEMPTS.value(settings)
    if type(attempts) is not int or attempts < 1:
        raise ConfigError(ATTEMPTS.name, attempts, "a whole number from 1 on")


def arguments(settings: BaseSettings, table: Mapping[str, Setting]) -> dict[str, Any]:
    """The arguments whose settings are set. None stands for a setting that is not, but for a period."""
    return {
        argument: setting.value(settings)
        for argument, setting in table.items()
        if setting.name in settings
        and (settings[setting.name] is not None or setting.read is period)
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
