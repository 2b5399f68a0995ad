"""What links cost a Redis: processor time, and bytes to the append-only file.

The figures are measured: docs/benchmarks.md, on Redis 7.0, with which a test compares them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from tbloom.bloom.config import Config
from tbloom.bloom.view import View

#: Processor time of the server (us): for a round trip, a script call, a script call that finds a new link, and a link. A link that
#: is in the current slice takes SEEN; each older slice that has to be asked takes another PROBE.
ROUND_TRIP, CALL, WRITING, NEW, SEEN, PROBE = 30.0, 6.0, 4.0, 4.0, 2.2, 1.0
#: The script calls that a client sends in one round trip (to one server).
_CALLS_A_TRIP = 4
#: Bytes to the log: of a new link, beside the 8 of each hash, and of a call with a new link, which has an answer of one byte for
#: each of its links.
_LINK_BYTES, _HASH_BYTES, _CALL_BYTES = 48, 8, 120


@dataclass(frozen=True, slots=True)
class Costs:
    """What a link costs, if an application asks about several links at once."""

    #: Script calls per link. Each has links of one shard only, and a limited number of them.
    calls: float
    #: Processor time of the server (us) per link.
    server_us: float
    #: Bytes to the log, and to each replica, per new link.
    log_bytes: float


def costs(config: Config, links: int, new: float, masters: int = 1) -> Costs:
    """Return the costs of a link, if so many are asked about at once. ``new`` is the share of new ones, more than 0.

    Links that were seen before are spread evenly over the slices, and shards over the ``masters`` of a cluster.
    """
    slices, shards = config.slices, config.shards
    most = View(config, time.time_ns() // 1_000_000, {}).header(0, slices).most_items
    asked = _hit(shards, links)
    calls = asked + (links - asked) / most
    writing = calls * (1 - (1 - new) ** (links / calls))
    probes = PROBE * (slices - 1)
    own = links * (new * (NEW + probes) + (1 - new) * (SEEN + probes / 2))
    trips = max(_hit(masters, calls), calls / _CALLS_A_TRIP)
    framing = ROUND_TRIP * trips + CALL * calls + WRITING * writing
    of_calls = (_CALL_BYTES + links / calls) * writing / (links * new)
    return Costs(
        calls / links, (framing + own) / links, _LINK_BYTES + _HASH_BYTES * config.hashes + of_calls
    )


def _hit(boxes: int, balls: float) -> float:
    """Return how many of the boxes have some of the balls, on average."""
    return boxes * (1 - math.pow(1 - 1 / boxes, balls))
