"""The version of a page that a request asks for: ``meta={"tbloom_version": ...}``.

The item of a request is its fingerprint: the page in whatever version, which one crawler claims. What the filter is searched for is the
item, followed by a hash of the version, if the request has one. A page that is done is remembered as both.
"""

from __future__ import annotations

import time
from calendar import timegm
from contextlib import suppress
from datetime import UTC, date, datetime
from hashlib import blake2b
from itertools import count
from typing import Any

from scrapy import Request

from tbloom.arguments import encode
from tbloom.bloom.hasher import shard_of
from tbloom.errors import ConfigError
from tbloom.scrapy.settings import VERSION

#: The length of a version's hash: two versions of one URL have the same hash once in 2**64 times.
_BYTES = 8
#: The text of a version's hash.
HASH = rf"[0-9a-f]{{{2 * _BYTES}}}"


def version_of(request: Request) -> bytes:
    """Return the hash of the version that the request's meta names; b"" if it names none. Raise ConfigError that names a wrong one."""
    version = request.meta.get(VERSION)
    if version is None or (isinstance(version, str | bytes) and not version):  # a feed has none
        return b""
    name = f"meta[{VERSION!r}] of {request}"
    return blake2b(_text(version, name), digest_size=_BYTES).digest()


def item_of(request: Request, fingerprinter: Any) -> tuple[bytes, bytes]:
    """Return the item of a request, and the hash of its version. Raise ConfigError as ``version_of``."""
    return fingerprinter.fingerprint(request), version_of(request)


def look_of(item: bytes, version: bytes, config: Any) -> bytes:
    """Return what a filter is searched for: the item in this version, which has to be in the shard of the item, where its claim is."""
    if not version or config.shards == 1:
        return item + version
    shard = shard_of(config.digest(item), config.shards)
    looks = (item + version + b"\0" * more for more in count())
    return next(look for look in looks if shard_of(config.digest(look), config.shards) == shard)


def _text(version: Any, name: str) -> bytes:
    """Return the version as bytes: dates and times in ISO format, times in UTC, which is also the zone of those without one."""
    # The latter two: of what no datetime knows, such as the last hours of the year 9999.
    with suppress(ConfigError, OverflowError, ValueError):
        if isinstance(version, time.struct_time):  # without a zone, as of feedparser, it is in UTC
            version = datetime.fromtimestamp(timegm(version) - (version.tm_gmtoff or 0), UTC)
        if isinstance(version, datetime):
            zoned = version if version.utcoffset() is not None else version.replace(tzinfo=UTC)
            return zoned.astimezone(UTC).isoformat().encode()
        if isinstance(version, date):
            return version.isoformat().encode()
        if isinstance(version, str | bytes | int):
            return encode(version, name)
    raise ConfigError(name, version, "a str, bytes, int, date, datetime or struct_time")
