"""The usual call of one item, prepared: one shard, the slice that is current, the expected reply.

``TimeBloom.add`` and ``contains`` make it in one go. Whatever else happens goes into the flow, with the same token.
"""

from __future__ import annotations

from typing import NamedTuple

from tbloom.bloom.exchange import FilterExchange
from tbloom.bloom.script_calls import Parts, SliceCalls
from tbloom.engine.connections import KeptConnections
from tbloom.engine.tokens import CallTemplate

#: The replies to one item, in RESP: {0, '1'} and {0, '0'}.
ONE, ZERO = EXPECTED = b"*2\r\n:0\r\n$1\r\n1\r\n", b"*2\r\n:0\r\n$1\r\n0\r\n"
ANSWERS = {ONE: "1", ZERO: "0"}


class Usual(NamedTuple):
    """What the usual calls of a slice have in common."""

    #: When the slice begins and ends (ns, by this machine's monotonic clock).
    begins: int
    ends: int
    connections: KeptConnections
    calls: SliceCalls
    adding: CallTemplate
    looking: CallTemplate
    parts: Parts


def usual_calls(exchange: FilterExchange, connections: KeptConnections | None) -> Usual | None:
    """Those of the current slice; None where a call is not usual."""
    calls = exchange.current_calls()
    if connections is None or exchange.config.shards > 1 or calls.shard(0).begins_after:
        return None
    begins, ends = (
        exchange.clock.monotonic_ns(calls.begins),
        exchange.clock.monotonic_ns(calls.ends),
    )
    adding, looking, parts = calls.usual()
    return Usual(begins, ends, connections, calls, adding, looking, parts)
