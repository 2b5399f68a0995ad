"""The memory of a window of up to 10^12 items, computed by tbloom's own functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench import results
from bench.contest import SADD, SET
from bench.serving import Server
from bench.tables import Table, amount
from tbloom.bloom.config import configure
from tbloom.bloom.sizing import key_bytes

#: Items, and the masters of the cluster.
SIZES = {
    **{f"10^{power}": (10**power, 1) for power in (6, 7, 8)},
    "10^8, three masters": (10**8, 3),
    "6 * 10^8": (6 * 10**8, 1),
    **{f"10^{power}": (10**power, 1) for power in (9, 10, 12)},
}
SLICES = 7
#: The bytes that filters may take of a server with 64 GB.
SERVER_BYTES = 48e9


def measure(_server: Server) -> list[Table]:
    """Return the memory of 7 slices, and of the same items in sets and keys. What an allocator adds to a key is left out."""
    measured = results.read()["footprint"].table
    per_item = [measured.row(name)["bytes per item"] for name in (SADD, SET)]
    rows: list[list[Any]] = []
    for name, (items, masters) in SIZES.items():
        config = configure("plan", slices=SLICES, capacity=-(-items // SLICES))
        config = replace(config, shards=config.shards_over(masters))
        key = key_bytes(config.shard_bits)
        used = SLICES * config.shards * key
        row = [name, config.shards, key / 2**20, amount(used), used / items]
        others = [amount(items * size) for size in per_item]
        rows.append([*row, *others, max(masters, -(-used // int(SERVER_BYTES)))])
    columns = {"items in the window": "", "shards": ",d", "MiB of a key": ".1f", "memory": ""}
    columns |= {"bytes per item": ".1f", "`SADD`": "", "`SET NX EX`": "", "servers of 64 GB": "d"}
    return [Table("scaling", columns, rows)]
