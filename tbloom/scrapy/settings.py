"""The Scrapy settings that tbloom reads: their names, and how their values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom.errors import ConfigError


def flag(text: str) -> bool:
    """Scrapy's spellings of a bool on the command line."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


def period(text: str) -> str | None:
    """A granularity; ``None`` or nothing on the command line: no window."""
    return None if text in ("", "None", "none") else text


def number(text: str) -> int:
    """A whole number, also as ``1e6``."""
    value = float(text)
    if not value.is_integer():
        raise ValueError
    return int(value)


def secret(text: str) -> bytes:
    """A secret in a setting or an environment variable."""
    return os.fsencode(text)


_EXPECTED = {
    int: "a whole number",
    number: "a whole number",
    float: "a number",
    flag: "True or False",
}


class Setting(NamedTuple):
    """A setting's name, and how its value is read where it is a str, as from the command line."""

    name: str
    read: Callable[[str], Any] = str

    def value(self, settings: BaseSettings, default: Any = None) -> Any:
        """The setting's value, or the default where it is not set."""
        value = settings.get(self.name, default)
        try:
            if self.read is number and isinstance(value, float):
                return number(str(value))
            return self.read(value) if isinstance(value, str) else value
        except (ValueError, OverflowError):
            raise ConfigError(self.name, value, _EXPECTED[self.read]) from None

    def is_on(self, settings: BaseSettings, *, default: bool) -> bool:
        """The value of a setting that is True or False."""
        value = self.value(settings, default)
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        raise ConfigError(self.name, value, _EXPECTED[flag])


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
    "secret": Setting("TBLOOM_SECRET", secret),
    "retry_for": Setting("TBLOOM_RETRY_FOR", float),
    "replicas": Setting("TBLOOM_REPLICAS", int),
    "on_error": Setting("TBLOOM_ON_ERROR"),
    "session_ttl": Setting("TBLOOM_SESSION_TTL", float),
    "cache_size": Setting("TBLOOM_CACHE_SIZE", int),
    "cache_ttl": Setting("TBLOOM_CACHE_TTL", float),
    "ttl": Setting("TBLOOM_TTL", float),
    "path": Setting("TBLOOM_PATH"),
}
STORE, MARK = Setting("TBLOOM_STORE"), Setting("TBLOOM_MARK")
#: The values of TBLOOM_MARK with which requests are claimed, and marked when they are done.
MARKS_DONE = ("done", "parsed")
TAKE_OVER, SHADOW = Setting("TBLOOM_TAKE_OVER", flag), Setting("TBLOOM_SHADOW")
#: Settings of Scrapy's and scrapy-redis'.
DEBUG, FLUSH = Setting("DUPEFILTER_DEBUG", flag), Setting("SCHEDULER_FLUSH_ON_START", flag)
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
    "segment_bytes": Setting("TBLOOM_PAGES_SEGMENT_BYTES", int),
}
KNOWN = {
    setting.name
    for table in (FILTER, COUNTS, PAGES)
    for setting in (*table.values(), STORE, MARK, TAKE_OVER, SHADOW)
}


def check_names(settings: BaseSettings) -> None:
    """Raises ConfigError for a setting that begins with TBLOOM_ and does not exist."""
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            close = get_close_matches(name, sorted(KNOWN), 1)
            known = close[0] if close else "one of " + ", ".join(sorted(KNOWN))
            value = shown(settings, name, known)
            raise ConfigError(name, value, f"{known} (there is no {name})")


def shown(settings: BaseSettings, name: str, meant: str = "") -> Any:
    """The setting's value, for an error; not that of a secret, or of what is ``meant`` to be it."""
    hidden = FILTER["secret"].name in (name, meant)
    return "a value that is not shown" if hidden else settings.get(name)


def arguments(settings: BaseSettings, table: Mapping[str, Setting]) -> dict[str, Any]:
    """The arguments whose settings are set. None stands for a setting that is not, but for a period."""
    values = {argument: setting.value(settings) for argument, setting in table.items()}
    return {
        argument: value
        for argument, value in values.items()
        if value is not None
        or (table[argument].read is period and table[argument].name in settings)
    }


def expand(setting: Setting, text: Any, spider: str | None, **more: object) -> str:
    """The setting's text with the spider's name for each ``%(spider)s``; ``more`` names are replaced like it."""
    if spider is None and isinstance(text, str) and "%(spider)s" in text:
        raise ConfigError(setting.name, text, "one without %(spider)s where no spider is known")
    # No other formats: %(spider)9999999999s would take 10 GB, and %(spider).2s mix up spiders.
    known = [f"%({name})s" for name in ("spider", *more)]
    if not isinstance(text, str) or "%" in re.sub(
        "|".join(map(re.escape, ["%%", *known])), "", text
    ):
        expected = (
            f"a str in which only {' and '.join(known)} may be replaced, and any other % is %%"
        )
        raise ConfigError(setting.name, text, expected)
    return text % {"spider": spider, **more}


@contextmanager
def naming_settings(table: Mapping[str, Setting]) -> Iterator[None]:
    """Within it, a ConfigError names the setting in place of the argument."""

    def name(argument: str) -> str:
        return table[argument].name if argument in table else argument

    try:
        yield
    except ConfigError as error:
        # The page store's error has a second argument: "because slices is given".
        expected = re.sub(r"(?<=because )\w+", lambda match: name(match[0]), error.expected)
        raise ConfigError(name(error.argument), error.value, expected) from None
