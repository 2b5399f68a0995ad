"""A flow, driven by hand; and what a distinct counter has stored."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import redis

from tbloom.distinct import DistinctCounter
from tbloom.engine.flow import Call, ScriptCall

CHUNK = 65_536


def stored_ids(client: redis.Redis, counter: DistinctCounter, label: str = "all") -> list[int]:
    """The ids that one slice of a counter has stored, in the order of its chunks' numbers."""
    root = f"{{{counter.mapping}}}"
    directory = client.hgetall(f"{root}:chunks:{counter.name}:{label}")
    total, found = int(directory.pop(b"n", 0)), list[int]()
    directory.pop(b"of", None)
    for chunk, entry in sorted((int(field), entry) for field, entry in directory.items()):
        if entry.startswith(b":"):
            lows = [*struct.unpack(f">{len(entry) // 2}H", entry[1:])]
            assert 1 <= len(lows) <= 4096
        else:
            bits = client.get(f"{root}:bitmap:{counter.name}:{label}:{chunk}")
            assert 8192 == len(bits)
            lows = [low for low in range(CHUNK) if bits[low >> 3] & (0x80 >> (low & 7))]
            assert 4096 < len(lows) == int(entry)
        assert lows == sorted(set(lows))
        found += [chunk * CHUNK + low for low in lows]
    bitmaps = client.keys(f"{root}:bitmap:{counter.name}:{label}:*")
    assert len(bitmaps) == sum(not entry.startswith(b":") for entry in directory.values())
    assert total == len(found)
    return found


def replies_to(client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
    """What the server says to a flow's calls."""
    in_full = [
        call._replace(in_full=True) if isinstance(call, ScriptCall) else call for call in calls
    ]
    return [client.execute_command(*call.words) for call in in_full]


def run(client: redis.Redis, flow: Any, replies: Any = None) -> tuple[Any, int]:
    """What the flow answers, after these replies, and how many scripts it called."""
    scripts = 0
    while True:
        try:
            calls = flow.send(replies)
        except StopIteration as end:
            return end.value, scripts
        scripts += sum(isinstance(call, ScriptCall) for call in calls)
        replies = replies_to(client, calls)


def script_of(call: Call) -> str:
    """The name of the script that a call is one of; '' for a plain command."""
    return call.script.name if isinstance(call, ScriptCall) else ""
