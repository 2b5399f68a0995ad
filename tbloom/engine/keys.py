"""Every key name that tbloom uses.

All keys of a shard share one hash tag, so they are on one node of a cluster: ``{news}:20190508`` with one shard,
``{news:3}:20190508`` with several. A prefix precedes the hash tag: ``app1:{news}:20190508``.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from tbloom.errors import ConfigError

T = TypeVar("T")
#: The hash slots of a Redis Cluster.
SLOTS = 1 << 14
# More shards than this are spread evenly enough by chance.
_SEGMENTS = 256
# A name may end in any number of colons, so that no two names get the same stem.
_LIKE_A_SHARD = re.compile(r":[0-9]+(\.[0-9]+)?:*\Z")
#: The mapping of counters that name none. No name has braces.
DEFAULT_MAPPING = "{ids}"
#: The text after the hash tag in that mapping's keys. No other store's keys have it.
DEFAULT_INNER = ":_"
_CONFIG = re.compile("{([^{}]+)}:config")
_DEFAULT_ROOT = f"{DEFAULT_MAPPING}{DEFAULT_INNER}:config"


def check_name(name: str, argument: str = "name") -> str:
    """Return the name. Raise ConfigError for ``argument`` if it is not valid."""
    _check_encodable(name, argument)
    if not isinstance(name, str) or not name or re.search("[{}]", name):
        raise ConfigError(argument, name, "a str that is not empty and has no braces")
    return name


def check_prefix(prefix: str, argument: str = "prefix") -> str:
    """Return the prefix. Raise ConfigError for ``argument`` if it is not valid."""
    _check_encodable(prefix, argument)
    # A brace would change the hash tag.
    if not isinstance(prefix, str) or not prefix.isprintable() or re.search("[{} ]", prefix):
        expected = "a str of printable characters without braces and spaces, such as 'app1:'"
        raise ConfigError(argument, prefix, expected)
    return prefix


def _check_encodable(text: object, argument: str) -> None:
    # UTF-8 has no lone surrogates, which stand for bytes of the environment and the command line that are no UTF-8.
    if isinstance(text, str) and re.search("[\ud800-\udfff]", text):
        raise ConfigError(argument, text, "a str that UTF-8 can encode")


class Keys:
    """The keys of the store ``name``, spread over ``shards`` hash tags."""

    __slots__ = ("_prefix", "_shards", "_stem", "_tag", "_tags", "root")

    def __init__(self, name: str, shards: int = 1, *, prefix: str = "", inner: str = "") -> None:
        """Raise ConfigError if the name or the prefix is not valid.

        ``prefix`` and ``inner`` are the texts before and after the hash tag in each key.
        """
        self._prefix = check_prefix(prefix)
        # The filter "news:3" gets other keys than the shard 3 of "news".
        self._stem = f"{name}:" if _LIKE_A_SHARD.search(check_name(name)) else name
        self._shards = shards
        self._tag = f"{prefix}{{{self._stem}}}{inner}"
        self._tags: dict[int, str] = {0: self._tag} if shards == 1 else {}
        #: The store's parameters. This key follows from the name alone.
        self.root: str = f"{self._tag}:config"

    def slice(self, label: str, shard: int = 0, part: int = 0) -> str:
        """Return the key of a part of a slice."""
        return f"{self.tag_of(shard)}:{self.field(label, part)}"

    def incoming(self, label: str, shard: int, part: int, token: str) -> str:
        """Return the key of a part while a copy is restored; ``token`` is the restoring client's."""
        return f"{self.slice(label, shard, part)}:incoming:{token}"

    def buckets(self, generation: str, shard: int = 0) -> str:
        """Return the prefix of an exact filter's bucket keys; a bucket's number follows."""
        return f"{self.tag_of(shard)}:exact:{generation}:"

    def layout(self, shard: int = 0) -> str:
        """Return the key of the bucket directory of an exact filter or a mapping."""
        return f"{self.tag_of(shard)}:layout"

    def state(self, shard: int = 0) -> str:
        """Return the key of a filter's state: its layout, the number of items in each part, and its lanes."""
        return f"{self.tag_of(shard)}:state"

    @staticmethod
    def field(label: str, part: int = 0) -> str:
        """Return the state's field with the number of items in a part."""
        return f"{label}:{part}" if part else label

    def claims(self, shard: int = 0) -> str:
        """Return the key of a shard's claims."""
        return f"{self.tag_of(shard)}:claims"

    def sessions(self, shard: int = 0) -> str:
        """Return the key of the sessions that hold a shard's claims."""
        return f"{self.tag_of(shard)}:sessions"

    def left(self, shard: int = 0) -> str:
        """Return the key of the index of a shard's left items."""
        return f"{self.tag_of(shard)}:left"

    def crawlers(self, shard: int = 0) -> str:
        """Return the key of what sessions tell of themselves. Only that of the first shard is used."""
        return f"{self.tag_of(shard)}:crawlers"

    def config(self, shard: int = 0) -> str:
        """Return the key of the shard's copy of the parameters, for its scripts."""
        return f"{self.tag_of(shard)}:config"

    def fingerprinter(self) -> str:
        """Return the key with the class that made the fingerprints (Scrapy only)."""
        return f"{self._tag}:fingerprinter"

    def lane(self, lane: str, shard: int = 0) -> str:
        """Return the key of a lane of an exact filter or a mapping: the number and the answer of its last call."""
        return f"{self.tag_of(shard)}:lane:{lane}"

    def tag_of(self, shard: int) -> str:
        """Return the prefix of a shard's keys."""
        tag = self._tags.get(shard)
        if tag is None:
            tag = self._tags[shard] = self._even_tag(shard)
        return tag

    def _even_tag(self, shard: int) -> str:
        """Return the prefix and ``{news:3}``, or the first of ``{news:3.1}``, ``{news:3.2}``, ... in the shard's share of the hash slots.

        With random slots, some nodes of a cluster would get twice as many shards as others. A master usually has one range
        of slots, so shards that are ordered by slot are spread evenly over the masters.
        """
        segments = min(self._shards, _SEGMENTS)
        segment = shard % segments
        salt = 0
        while True:
            tag = f"{self._stem}:{shard}{f'.{salt}' if salt else ''}"
            if slot(tag) * segments // SLOTS == segment:
                return f"{self._prefix}{{{tag}}}"
            salt += 1


def slot(tag: str) -> int:
    """Return the hash slot of a hash tag: CRC16 (XMODEM), as in the Redis Cluster specification."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def by_shard(
    digests: Iterable[T], shards: int, shard_of: Callable[[T, int], int]
) -> dict[int, list[T]]:
    """Return the distinct digests by shard, in order; ``shard_of`` returns the shard of a digest."""
    if shards == 1:
        return {0: [*dict.fromkeys(digests)]}
    shares: dict[int, list[T]] = {}
    for digest in dict.fromkeys(digests):
        shares.setdefault(shard_of(digest, shards), []).append(digest)
    return shares


def root_of(name: str, prefix: str = "") -> str:
    """Return the key with the parameters of the store of this name."""
    return f"{prefix}{_DEFAULT_ROOT if name == DEFAULT_MAPPING else Keys(name).root}"


def roots(prefix: str) -> str:
    """Return a pattern for SCAN: the keys of the parameters of all stores with this prefix, and of the shards' copies."""
    literal = re.sub(r"[\\*?\[\]]", r"\\\g<0>", prefix)
    return f"{literal}{{*}}*:config"


def name_of(key: str, prefix: str = "") -> str | None:
    """Return the name of the store with this prefix whose parameters are in this key.

    Return None for a shard's copy, or any other key.
    """
    if not key.startswith(prefix):
        return None
    key = key.removeprefix(prefix)
    if key == _DEFAULT_ROOT:
        return DEFAULT_MAPPING
    if match := _CONFIG.fullmatch(key):
        for name in (match[1], match[1][:-1]):
            with suppress(ConfigError):
                if Keys(name).root == key:
                    return name
    return None
