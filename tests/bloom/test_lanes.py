"""The lanes of clients that come and go."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import digest
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import SliceCalls
from tbloom.engine.batches import Batch
from tbloom.engine.tokens import LanePool

PARAMETERS: dict[str, Any] = {"slices": 7, "capacity": 20_000}


def test_the_lanes_of_10_000_clients_that_come_and_go_stay_few(clockwork: Any, name: str) -> None:
    """Of a hundred an hour, those of the last hour are left, and at most half as many idle ones."""
    config, began = configure(name, **PARAMETERS), datetime(2019, 6, 3, tzinfo=timezone.utc)
    state = config.keys.state(0)
    with redis.Redis.from_url(clockwork.server.url, decode_responses=True) as server:
        TimeBloom(server, name, **PARAMETERS).add("first")
        for hour in range(100):
            now = began + hour * timedelta(minutes=62)
            clockwork.set(f"{now:%Y-%m-%d %H:%M:%S}")
            layout = Layout(config, server.hget(state, "layout") or "")
            calls = SliceCalls(config, round(now.timestamp() * 1000), {0: layout})
            with server.pipeline(transaction=False) as pipeline:
                for number in range(100):
                    item = Batch([digest(f"{hour} {number}")], token=LanePool().take())
                    pipeline.execute_command(*calls.add(config.slices, item).words)
                assert {0} == {status for status, _ in pipeline.execute()}
            lanes = sum(field.startswith("L") for field in server.hkeys(state))
            assert 90 < lanes <= 150  # (An item that is wrongly called seen leaves none.)
