"""Items with the digest of a chosen one: the 128-bit mmh3 has no key, and each of its steps can be undone."""

from __future__ import annotations

from mmh3 import mmh3_x64_128_digest

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_ADDED = 0x52DCE729, 0x38495AB5
_MIXED = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_BLOCK = 16


def colliding(target: bytes, prefix: bytes) -> bytes:
    """The item of 32 bytes that begins with the prefix of 16 and has the target's digest."""
    digest = mmh3_x64_128_digest(target)
    h1, h2 = _state_before_the_end(_int(digest[:8]), _int(digest[8:]), 2 * _BLOCK)
    g1, g2 = _after_block(prefix)
    # The second block that leads from (g1, g2) to (h1, h2).
    k1 = _rotated(((h1 - _ADDED[0]) * _inverse(5) - g2) & _MASK, 64 - 27) ^ g1
    k2 = _rotated(((h2 - _ADDED[1]) * _inverse(5) - h1) & _MASK, 64 - 31) ^ g2
    k1 = _rotated(k1 * _inverse(_C2) & _MASK, 64 - 31) * _inverse(_C1) & _MASK
    k2 = _rotated(k2 * _inverse(_C1) & _MASK, 64 - 33) * _inverse(_C2) & _MASK
    return prefix + k1.to_bytes(8, "little") + k2.to_bytes(8, "little")


def _state_before_the_end(h1: int, h2: int, length: int) -> tuple[int, int]:
    h2 = (h2 - h1) & _MASK
    h1 = (h1 - h2) & _MASK
    h1, h2 = _unmixed(h1), _unmixed(h2)
    h2 = (h2 - h1) & _MASK
    h1 = (h1 - h2) & _MASK
    return h1 ^ length, h2 ^ length


def _after_block(block: bytes) -> tuple[int, int]:
    """The state after a first block, with the seed 0."""
    k1, k2 = _int(block[:8]), _int(block[8:])
    h1 = _rotated(_rotated(k1 * _C1 & _MASK, 31) * _C2 & _MASK, 27)
    h1 = (h1 * 5 + _ADDED[0]) & _MASK
    h2 = _rotated(_rotated(k2 * _C2 & _MASK, 33) * _C1 & _MASK, 31)
    return h1, ((h2 + h1) * 5 + _ADDED[1]) & _MASK


def _unmixed(number: int) -> int:
    number ^= number >> 33
    for factor in reversed(_MIXED):
        number = number * _inverse(factor) & _MASK
        number ^= number >> 33
    return number


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _inverse(odd: int) -> int:
    return pow(odd, -1, 1 << 64)


def _int(data: bytes) -> int:
    return int.from_bytes(data, "little")
