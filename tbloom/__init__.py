"""Remembers what a fleet of crawlers has seen in the last N hours, days or weeks.

One atomic script call on a stock Redis answers "new?" and remembers.
"""

import logging

from tbloom.bloom.aio import AsyncTimeBloom
from tbloom.bloom.claims.held import Claim
from tbloom.bloom.info import FilterInfo, SliceInfo
from tbloom.bloom.sync import TimeBloom
from tbloom.distinct import AsyncDistinctCounter, CounterInfo, DistinctCounter
from tbloom.errors import (
    ConfigError,
    ConfigMismatch,
    FilterFull,
    MappingFull,
    ServerTooOld,
    StoreLocked,
    TBloomError,
)
from tbloom.exact import AsyncExactFilter, ExactFilter, ExactInfo
from tbloom.local.aio import AsyncLocalBloom
from tbloom.local.sync import LocalBloom
from tbloom.version import __version__
from tbloom.window import Period

__all__ = [
    "AsyncDistinctCounter",
    "AsyncExactFilter",
    "AsyncLocalBloom",
    "AsyncTimeBloom",
    "Claim",
    "ConfigError",
    "ConfigMismatch",
    "CounterInfo",
    "DistinctCounter",
    "ExactFilter",
    "ExactInfo",
    "FilterFull",
    "FilterInfo",
    "LocalBloom",
    "MappingFull",
    "Period",
    "ServerTooOld",
    "SliceInfo",
    "StoreLocked",
    "TBloomError",
    "TimeBloom",
    "__version__",
]

# A library prints no log messages itself: the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
