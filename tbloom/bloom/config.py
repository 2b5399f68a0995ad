"""A filter's parameters, their checks, and the text that is stored with the filter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypedDict

from tbloom.arguments import Item
from tbloom.bloom import sizing
from tbloom.bloom.hasher import HASH_NAME, SECRET_HASH_NAME, Secret, digest, digests_of
from tbloom.engine.keys import Keys, root_of
from tbloom.engine.parameters import check_format, differences, read_stored
from tbloom.errors import ConfigError
from tbloom.window import ALWAYS, Window, window_of

#: The number of the stored format (docs/format.md).
LAYOUT = 1
#: The capacity of a filter's first slice, unless one is given.
FIRST_CAPACITY = 10_000
DEFAULT_ERROR_RATE = 1e-4
_MAX_ITEMS = 10**15
_MAX_BITS = sizing.MAX_BITS_PER_KEY * sizing.MAX_SHARDS
#: The most bits of a shard. A shard may get more items than others by chance, so this is twice the limit of a key.
MAX_SHARD_BITS = 2 * sizing.MAX_BITS_PER_KEY
# The limits of an error rate. Closer to 0 or 1, floating point is not exact enough.
_MIN_RATE, _MAX_RATE = 1e-15, 1 - 1e-12
#: JavaScript writes smaller numbers with an exponent.
_LEAST_PLAIN = 1e-6
#: The rate of a size may exceed the rate that it was computed for by this factor.
_ROUNDING = 1 + 1e-6
#: The shards of a slice expire at 256 different times, 100 ms apart.
_SPREAD_MS, _SPREAD = 100, 256


def _check(argument: str, value: object, limit: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise ConfigError(argument, value, f"a whole number from 1 to {limit}")


def _check_rate(value: object) -> None:
    if not isinstance(value, float) or not _MIN_RATE <= value <= _MAX_RATE:
        raise ConfigError("error_rate", value, f"a float from {_MIN_RATE:g} to {_MAX_RATE}")


def _decimal(rate: float) -> str:
    """Return the shortest decimal of a rate, as JavaScript writes it (RFC 8785): 0.0001, 0.000001, 1.5e-7."""
    return f"{Decimal(float.__repr__(rate)):{'f' if rate >= _LEAST_PLAIN else 'e'}}"


@dataclass(frozen=True, slots=True)
class Config:
    """The parameters of one filter. ``configure`` makes them. The constructor raises ConfigError if they can't be right.

    ``capacity``, ``bits`` and ``hashes`` describe one slice. ``bits`` is a multiple of whole blocks. If ``capacity`` is None,
    ``bits`` and ``hashes`` describe the first slice; each later slice is made for as many items as the last one held.
    """

    name: str
    granularity: str | timedelta | None
    slices: int
    tz: str
    capacity: int | None
    error_rate: float
    shards: int
    grow: bool
    bits: int
    hashes: int
    #: The key of the digests. None: they are computed by mmh3, which has no key.
    secret: Secret | None = field(default=None, repr=False, compare=False)
    #: The text before the hash tag in each key. It is not stored.
    prefix: str = ""
    #: The capacity of a filter's first slice, and the capacity and the bits of one shard of it.
    first_capacity: int = field(init=False, repr=False, compare=False)
    shard_capacity: int = field(init=False, repr=False, compare=False)
    shard_bits: int = field(init=False, repr=False, compare=False)
    window: Window = field(init=False, repr=False, compare=False)
    keys: Keys = field(init=False, repr=False, compare=False)
    #: Return the digest of an item, or of each of several items. These are attributes, because every call uses them.
    digest: Callable[[Item], bytes] = field(init=False, repr=False, compare=False)
    digests_of: Callable[[Iterable[Item]], list[bytes]] = field(
        init=False, repr=False, compare=False
    )
    #: The text of the parameters that is stored with the filter. Other clients compare theirs with it.
    stored: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        window = window_of(self.granularity, self.slices, self.tz)
        _check("bits", self.bits, _MAX_BITS)
        _check("shards", self.shards, sizing.MAX_SHARDS)
        if not isinstance(self.grow, bool):
            raise ConfigError("grow", self.grow, "True or False")
        if self.capacity is None and not self.grow:
            raise ConfigError("capacity", None, "a whole number, because a full slice may not grow")
        least = sizing.least_shards(self.bits)
        if self.shards < least:
            expected = (
                f"{least} or more, because a slice of {self.bits} bits needs that number of keys"
            )
            raise ConfigError("shards", self.shards, expected)
        first = FIRST_CAPACITY if self.capacity is None else self.capacity
        capacity, bits = sizing.shard_size(first, self.bits, self.hashes, self.shards)
        if bits > MAX_SHARD_BITS:
            # Few items are spread unevenly, so one shard might get most of them.
            expected = f"{16 * self.shards} or more, because a slice of {self.bits} bits has {self.shards} shards"
            raise ConfigError("capacity", self.capacity, expected)
        derived = {
            "granularity": window.granularity,
            "tz": window.tz,
            "first_capacity": first,
            "shard_capacity": capacity,
            "shard_bits": bits,
            "window": window,
            "keys": Keys(self.name, self.shards, prefix=self.prefix),
            "digest": self.secret.digest if self.secret else digest,
            "digests_of": self.secret.digests_of if self.secret else digests_of,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        parameters = {
            "layout": LAYOUT,
            "hash": HASH_NAME,
            "bits": self.bits,
            "hashes": self.hashes,
            "capacity": self.capacity,
            "granularity": self.granularity,
            "slices": window.slices,
            "tz": self.tz,
            "shards": self.shards,
            "grow": self.grow,
        }
        if self.secret is not None:
            parameters |= {"hash": SECRET_HASH_NAME, "secret": self.secret.check}
        most = json.dumps(parameters, separators=(",", ":"))
        stored = f'{most[:-1]},"error_rate":{_decimal(self.error_rate)}}}'
        object.__setattr__(self, "stored", stored)

    def shards_over(self, masters: int) -> int:
        """Return the number of shards that tbloom makes for a cluster with so many masters."""
        return sizing.shards_for(self.first_capacity, self.bits, self.hashes, masters)

    def differences(self, stored: str) -> dict[str, tuple[Any, Any]]:
        """Return the parameters that differ from the stored text, by name, as pairs (stored, own)."""
        return differences(stored, self.stored)


class Parameters(TypedDict, total=False):
    """The parameters of a filter besides its name; ``configure`` has the defaults."""

    granularity: str | timedelta | None
    slices: int | None
    capacity: int | None
    error_rate: float | None
    tz: str
    shards: int | None
    grow: bool
    bits: int | None
    hashes: int | None
    secret: bytes | Secret | None


def configure(
    name: str,
    *,
    granularity: str | timedelta | None = "d",
    slices: int | None = None,
    capacity: int | None = None,
    error_rate: float | None = None,
    tz: str = "UTC",
    shards: int | None = None,
    grow: bool = True,
    bits: int | None = None,
    hashes: int | None = None,
    secret: bytes | Secret | None = None,
    prefix: str = "",
) -> Config:
    """Return a Config. The size of a slice is given by ``bits`` and ``hashes``, or follows from ``capacity`` and ``error_rate``.

    If ``capacity`` is None, each slice is made for as many items as the last one held. With ``bits`` and ``hashes``, None
    instead means the number of items that they hold at ``error_rate``; a larger capacity is refused. If ``shards`` is None, it
    is the smallest number that keeps each key at 8 MiB or less.
    """
    slices = window_of(granularity, slices, tz).slices
    error_rate = DEFAULT_ERROR_RATE if error_rate is None else error_rate
    _check_rate(error_rate)
    if capacity is not None:
        _check("capacity", capacity, _MAX_ITEMS)
    rate = sizing.slice_rate(error_rate, slices) * (sizing.part_share(0) if grow else 1)
    if bits is None and hashes is None:
        bits, hashes = _chosen(capacity or FIRST_CAPACITY, rate, error_rate)
    elif bits is None:
        raise ConfigError("bits", bits, "a whole number, because hashes is given")
    elif hashes is None:
        raise ConfigError("hashes", hashes, "a whole number, because bits is given")
    else:
        _check("hashes", hashes, sizing.MAX_HASHES)
        _check("bits", bits, _MAX_BITS)
        bits = sizing.whole_blocks(bits, hashes)
        most = sizing.items_at(rate, bits, hashes)
        capacity = capacity or most
        if not capacity or sizing.rate_at(capacity, bits, hashes) > rate * _ROUNDING:
            kept = f"because {bits} bits with {hashes} hashes keep error_rate {error_rate} for no"
            if most == 0:
                raise ConfigError("hashes", hashes, f"more, {kept} item")
            expected = f"{most} or less, {kept} more (without bits and hashes, the size follows)"
            raise ConfigError("capacity", capacity, expected)
    if shards is None:
        shards = sizing.shards_for(capacity or FIRST_CAPACITY, bits, hashes)
    given = granularity, slices, tz, capacity, error_rate, shards, grow, bits, hashes
    own = secret if secret is None or isinstance(secret, Secret) else Secret(secret)
    return Config(name, *given, own, prefix)


def _chosen(capacity: int, rate: float, error_rate: float) -> tuple[int, int]:
    """Return the bits and hashes of a slice. Raise ConfigError if it needs more bits than a slice may have."""
    bits, hashes = sizing.choose(capacity, rate)
    if bits <= _MAX_BITS:
        return bits, hashes
    most = sizing.items_at(rate, _MAX_BITS, hashes)
    expected = (
        f"{most} or less for error_rate {error_rate}, because a slice has at most {_MAX_BITS} bits"
    )
    raise ConfigError("capacity", capacity, expected)


def shard_expiry(config: Config, expires: int, shard: int | None) -> int:
    """Return when a shard's keys expire (ms), for a slice that leaves the window at ``expires``.

    Shards expire one after another, so that the server does not delete all of them at once. The root key (``shard`` None)
    expires last.
    """
    if config.shards == 1 or expires == ALWAYS.end:
        return expires
    return expires + (_SPREAD if shard is None else shard % _SPREAD) * _SPREAD_MS


def from_stored(name: str, stored: str, key: str = "", prefix: str = "") -> Config:
    """Return the parameters of a stored filter. Raise ConfigError if this version can't read them, ConfigMismatch if they have
    another format.

    ``key`` is the key in which they are stored, for the error. By default, it is the root key.
    """
    values, key = read_stored(stored), key or root_of(name, prefix)
    shown = re.sub(r'("secret":)"[^"]*"', r'\1"..."', stored)
    expected = (
        f"the parameters of a filter that this version of tbloom can read in {key!r} "
        "(delete the key if another program made it)"
    )
    if kind := values.get("kind"):
        expected = f"the name of a filter with slices (a store of the kind {kind!r} has it)"
        raise ConfigError("name", name, expected)
    check_format(name, stored, LAYOUT)
    layout = [values.pop(name, None) for name in ("layout", "hash")]
    if layout not in ([LAYOUT, HASH_NAME], [LAYOUT, SECRET_HASH_NAME]):
        raise ConfigError("stored", shown, expected)
    if values.get("capacity", 0) is None:  # with bits and hashes, configure would derive a capacity
        values["bits"] = values["hashes"] = None
    if "secret" in values:
        values["secret"] = Secret(None, values["secret"])
    try:
        config = configure(name, prefix=prefix, **values)
    except (TypeError, ValueError):
        raise ConfigError("stored", shown, expected) from None
    if config.stored != stored:  # the scripts compare texts
        raise ConfigError("stored", shown, expected)
    return config
