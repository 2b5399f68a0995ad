"""A window after a week of crawling: every slice exists, and the old ones are full.

Only this module knows what a slice looks like. Adding the items would take minutes, so random
bits are written, with the density of a full slice.
"""

from __future__ import annotations

import random

import redis

from tbloom import TimeBloom
from tbloom.bloom.sizing import COLUMNS, HEADER_BITS

_BLOCK = 1 << 22


def _random_bits(size: int, density: float, chance: random.Random) -> bytes:
    """``size`` bytes; each bit is set with this probability, to 8 binary digits."""
    digits = round(density * 256)
    bits = 0
    for digit in range(8):  # the lowest first
        random_bits = int.from_bytes(chance.randbytes(size), "big")
        bits = bits | random_bits if digits >> digit & 1 else bits & random_bits
    return bits.to_bytes(size, "big")


def fill(client: redis.Redis, seen: TimeBloom, current: float = 0.25) -> None:
    """Fills the older slices up to their capacity, the current one to this share of it."""
    config = seen.config
    header = HEADER_BITS // 8
    size = config.shard_bits // 8
    chance = random.Random(config.name)
    keys = seen.keys()  # oldest first, the shards of a slice together
    older = len(keys) - config.shards
    densities = []
    for group, share in ((keys[:older], 1.0), (keys[older:], current)):
        load = share * config.hashes * COLUMNS * config.capacity / config.bits
        density = 1 - (1 - 1 / COLUMNS) ** load
        densities.append(density)
        block = _random_bits(min(size, _BLOCK), density, chance)
        with client.pipeline(transaction=False) as pipeline:
            for key in group:
                # The last byte first, so that the key gets its full size at once.
                pipeline.setrange(key, header + size - 1, b"\0")
                items = max(1, round(share * config.shard_capacity))
                pipeline.execute_command("BITFIELD", key, "SET", "u48", 0, items)
                for start in range(0, size, len(block)):
                    pipeline.setrange(key, header + start, block[: size - start])
                pipeline.execute()
    ratios = [slice.fill_ratio for slice in seen.info().slices]
    differences = [abs(ratios[0] - densities[0]), abs(ratios[-1] - densities[-1])]
    assert max(differences) < 0.02, (ratios, densities)
