"""A filter of the items that a fleet of crawlers has seen in the last N hours, days or weeks.

One atomic script call on a stock Redis says whether an item is new, and remembers it.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tbloom.errors import (
    ConfigError,
    ConfigMismatch,
    FilterFull,
    ServerTooOld,
    TBloomError,
)
from tbloom.version import __version__

if TYPE_CHECKING:
    from tbloom.bloom.info import FilterInfo, SliceInfo
    from tbloom.claims.aio import AsyncTimeBloom
    from tbloom.claims.calls import Claim
    from tbloom.claims.notes import History, Note, Taken
    from tbloom.claims.sync import TimeBloom
    from tbloom.exact import AsyncExactFilter, ExactFilter, ExactInfo
    from tbloom.local.sync import LocalBloom
    from tbloom.window import Period

__all__ = [
    "AsyncExactFilter",
    "AsyncTimeBloom",
    "Claim",
    "ConfigError",
    "ConfigMismatch",
    "ExactFilter",
    "ExactInfo",
    "FilterFull",
    "FilterInfo",
    "History",
    "LocalBloom",
    "Note",
    "Period",
    "ServerTooOld",
    "SliceInfo",
    "TBloomError",
    "Taken",
    "TimeBloom",
    "__version__",
]

#: Names that are imported at their first use, so that a process pays only for the stores that it uses. For a package that
#: imports its own modules, the package itself is imported: two threads that import two of its modules at once would wait for
#: each other.
_MODULES = {
    "AsyncExactFilter": "exact",
    "AsyncTimeBloom": "claims.aio",
    "Claim": "claims.calls",
    "ExactFilter": "exact",
    "ExactInfo": "exact",
    "FilterInfo": "bloom.info",
    "History": "claims.notes",
    "LocalBloom": "local.sync",
    "Note": "claims.notes",
    "Period": "window",
    "SliceInfo": "bloom.info",
    "Taken": "claims.notes",
    "TimeBloom": "claims.sync",
}

# A library prints no log messages itself: the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
