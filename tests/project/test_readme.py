"""The README is true; test_docs.py runs its code blocks."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.engine import client, urls
from tbloom.scrapy import circuit

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_clock_times_of_the_table(clockwork: Any, name: str) -> None:
    """How long an item is remembered: daily slices, slices=3."""
    assert "| Wed 5 June, 23:59 |" in README
    with TimeBloom.from_url(clockwork.server.url, name, slices=3) as seen:
        clockwork.set("2019-06-03 09:00:00")
        assert seen.add("a") is True
        clockwork.set("2019-06-05 23:59:00")
        assert seen.add("a") is False
        clockwork.set("2019-06-06 00:00:01")
        with redis.Redis.from_url(clockwork.server.url) as client:
            assert client.exists(f"{{{name}}}:20190603") == 0
        assert seen.add("a") is True
        assert [0, 0, 1] == [slice.items for slice in seen.info().slices]


def test_a_key_holds_10_million_items_at_the_default_error_rate() -> None:
    assert "10 million items" in README
    assert [1, 2] == [configure("news", capacity=n).shards for n in (10_300_000, 10_500_000)]


def test_each_factor_of_ten_costs_five_to_seven_bits() -> None:
    assert "each factor of 10 costs 5 to 7 bits" in README
    bits = [configure("news", error_rate=rate).bits / 1e6 for rate in (1e-3, 1e-4, 1e-5, 1e-6)]
    assert all(5 < more - fewer < 7 for fewer, more in pairwise(bits))


def test_how_long_an_outage_is_waited_for() -> None:
    """5 s of resends, 40 s on a cluster, 2 s for a reply, and then one try every 10 s."""
    assert "each call is sent again for 5 seconds" in README
    assert "through a Sentinel, for 40 seconds" in README
    assert "The time-out of a reply is 2 seconds" in README
    assert "try Redis every 10 seconds" in README
    assert (5, 40, 2) == (
        client.RETRY_FOR,
        client.RETRY_FOR_FAILOVER,
        urls.SOCKET_TIMEOUT,
    )
    assert circuit.HOLD_OFF == 10


def test_the_first_example_is_within_the_first_30_lines() -> None:
    assert "seen.add(" in "\n".join(README.splitlines()[:30])


@pytest.mark.parametrize("command", ["demo", "test", "check"])
def test_the_readmes_commands_are_the_makefiles(command: str) -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert f"**`make {command}`**" in README
    assert re.search(rf"^{command}:", makefile, re.MULTILINE)
