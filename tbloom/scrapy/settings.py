"""The Scrapy settings that tbloom reads, and the keys of a request's meta: their names, and how values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

from scrapy.settings import BaseSettings

from tbloom.claims.record import clean
from tbloom.errors import ConfigError


def flag(text: str) -> bool:
    """Read a bool as Scrapy spells it on the command line."""
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def period(text: str) -> str | None:
    """Read a granularity; ``None`` or nothing on the command line: no window."""
    return None if text in ("", "None", "none") else text


def statuses(text: str) -> tuple[int, ...]:
    """Read a list of statuses, as Scrapy reads a list on the command line."""
    return (*map(int, text.strip("[]").split(",")),) if text.strip("[] ") else ()


def number(value: str | float) -> int:
    """Read a whole number, also as ``1e6``."""
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
        """Return the setting's value. An unparsable value is returned unchanged, and rejected later."""
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
    "prefix": Setting("TBLOOM_KEY_PREFIX"),
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
#: scrapy-redis-bloomfilter's settings; a crawl that has one counts that package's stat, too.
OLD_SIZE = FILTER["bits"].name, FILTER["hashes"].name
STORE = Setting("TBLOOM_STORE", default="bloom", choices=("bloom", "exact", "local"))
#: The add-on sets "done" where the project has not set it.
MARK = Setting("TBLOOM_MARK", default="scheduled", choices=("scheduled", "done"))
TAKE_OVER = Setting("TBLOOM_TAKE_OVER", flag, default=True, choices=_BOOL)
#: Whether a crawler gives queued pages to crawlers of its spider that wait; "hosts": it gives whole hosts, and each has one owner.
SHARE = Setting("TBLOOM_SHARE", flag, default=True, choices=(*_BOOL, "hosts"))
#: What a crawl does when it is idle, and no crawler of its spider has work: it ends, or waits for pages that programs push.
WHEN_IDLE = Setting("TBLOOM_WHEN_IDLE", default="end", choices=("end", "wait"))
#: The statuses of responses with which a page is done although no callback got them.
DONE_STATUSES = Setting("TBLOOM_DONE_STATUSES", statuses, default=(404, 410))
#: scrapy-redis' setting.
FLUSH = Setting("SCHEDULER_FLUSH_ON_START", flag, default=False, choices=_BOOL)
#: The arguments of the distinct counters, and their settings.
COUNTS = {
    "name": Setting("TBLOOM_COUNT_KEY"),
    "prefix": FILTER["prefix"],
    "tz": FILTER["tz"],
    "max_members": Setting("TBLOOM_COUNT_MAX_MEMBERS", int),
    "retry_for": FILTER["retry_for"],
}
#: The arguments of the page store, and their settings.
PAGES = {
    "path": Setting("TBLOOM_PAGES_PATH"),
    "granularity": Setting("TBLOOM_PAGES_GRANULARITY"),
    "slices": Setting("TBLOOM_PAGES_SLICES", int),
    "tz": FILTER["tz"],
    "readonly": Setting("TBLOOM_PAGES_READONLY", flag, choices=_BOOL),
    "codec": Setting("TBLOOM_PAGES_CODEC"),
}
_OTHERS = (STORE, MARK, TAKE_OVER, SHARE, WHEN_IDLE, DONE_STATUSES)
KNOWN = {s.name: s for s in (*FILTER.values(), *COUNTS.values(), *PAGES.values(), *_OTHERS)}

# Keys of a request's meta
#: Number of newest slices in which the request counts as seen.
WITHIN = "tbloom_within"
#: For how many slices the request, or the page that answers it, counts as seen; None: for the whole window.
KEEP = "tbloom_keep"
#: How long the request counts as seen in an exact store (seconds).
TTL = "tbloom_ttl"
#: The version of the page: the request counts as seen only if the page was seen in this version.
VERSION = "tbloom_version"
#: The token of a claimed request in a queue (``done/page.py``).
TOKEN = "tbloom_page"  # noqa: S105 - no password
#: Set by a callback or an errback: whether the page is done.
DONE = "tbloom_done"


class UnknownSetting(ConfigError):
    """A setting that does not exist. Its value is not shown, because it may be a secret."""

    def __str__(self) -> str:
        return f"unknown setting {self.argument}; {self.expected}"


def check_settings(settings: BaseSettings) -> None:
    """Raise ConfigError for a setting that begins with TBLOOM_ and does not exist, or whose value is not one of its choices."""
    for name in settings:
        if name.startswith("TBLOOM_") and name not in KNOWN:
            close = get_close_matches(name, sorted(KNOWN), 1)
            hint = f"did you mean {close[0]}?" if close else "known are " + ", ".join(sorted(KNOWN))
            raise UnknownSetting(name, None, hint)
    for setting in (*KNOWN.values(), FLUSH):
        setting.value(settings)
    done_statuses(settings)
    if SHARE.value(settings) == "hosts":
        needed = ((FILTER["shards"], (None, 1)), (TAKE_OVER, (True,)))
        for setting, values in needed:
            if (value := setting.value(settings)) not in values:
                expected = f"{values[-1]!r} with {SHARE.name} = 'hosts'"
                raise ConfigError(setting.name, value, expected)


def done_statuses(settings: BaseSettings) -> frozenset[int]:
    """Return the statuses with which a page is done without a callback. Raise ConfigError if they can't be right."""
    statuses = DONE_STATUSES.value(settings)
    is_list = isinstance(statuses, list | tuple | set | frozenset)
    if not is_list or not all(type(status) is int for status in statuses):
        raise ConfigError(DONE_STATUSES.name, statuses, "a list of statuses, such as [404, 410]")
    return frozenset(statuses)


def arguments(settings: BaseSettings, table: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the arguments whose settings are set. None means unset, except for a granularity (no window)."""
    return {
        argument: setting.value(settings)
        for argument, setting in table.items()
        if setting.name in settings
        and (settings[setting.name] is not None or setting.read is period)
    }


def project_in(settings: BaseSettings) -> str:
    """Return the name of the project. It may come from the environment."""
    return clean(str(settings["BOT_NAME"]))


def expand(setting: Setting, text: Any, **names: object) -> str:
    """Return the setting's text with the value of ``spider`` for each ``%(spider)s``, and so on."""
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
    """Name the setting in place of the argument in a ConfigError."""
    try:
        yield
    except ConfigError as error:
        if error.argument not in table:
            raise
        raise ConfigError(table[error.argument].name, error.value, error.expected) from None
