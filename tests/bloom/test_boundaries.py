"""What begins and ends with a slice, on a server whose clock stands still where the test sets it.

(Which items are remembered then, and when keys leave: ``tests/simulation``.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.layout import Layout
from tests.helpers.flows import flow_of, replies_to, run, script_of

MIDNIGHT = "2019-06-{:02} 00:00:00"
NOON = "2019-06-{:02} 12:00:00"


@pytest.fixture
def open_one(open_one: Callable[..., TimeBloom]) -> Callable[..., TimeBloom]:
    """Opens one more client of the filter, which remembers two days by default."""
    return partial(open_one, slices=2)


@pytest.fixture
def server(clockwork: Any) -> Any:
    with redis.Redis.from_url(clockwork.server.url, decode_responses=True) as client:
        yield client


#: The verbs that put an item into the current slice.
WRITES: dict[str, Callable[[TimeBloom, str], Any]] = {
    "add": TimeBloom.add,
    "add_many": lambda seen, item: seen.add_many([item]),
    "commit": TimeBloom.commit,
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    ("before", "now"), [("03 00:00", "04 00:00"), ("04 12:00", "03 12:00")], ids=["behind", "ahead"]
)
def test_an_item_goes_into_the_slice_that_is_current_on_the_server(
    clockwork: Any, open_one: Callable[..., TimeBloom], verb: str, before: str, now: str
) -> None:
    """The client believes that another one is: a slice begins at this moment, or the clock was set back."""
    seen = open_one()
    clockwork.set(f"2019-06-{before}:00")
    seen.add("shows the client the time")
    clockwork.set(f"2019-06-{now}:00")
    WRITES[verb](seen, "a")
    found = seen.last_seen("a")
    assert found is not None
    assert f"201906{now[:2]}" == found.label


def test_the_state_counts_few_parts_that_have_left(
    clockwork: Any, open_one: Callable[..., TimeBloom], server: redis.Redis, name: str
) -> None:
    seen = open_one()
    for day in range(3, 20):
        clockwork.set(NOON.format(day))
        seen.add(f"item of {day}")
    counted = {field for field in server.hkeys(f"{{{name}}}:state") if field.startswith("2019")}
    assert {"20190618", "20190619"} <= counted
    assert len(counted) <= 10


def test_a_layout_that_a_client_makes_has_the_live_slices_only(name: str) -> None:
    """That of a filter in a file, for example."""
    config = configure(name, capacity=10, slices=2)
    layout = Layout(config, Layout(config).grown("20190608", ["20190608", "20190607"]))
    grown = layout.grown("20190610", ["20190610", "20190609"])
    assert ["20190610"] == [entry.partition("=")[0] for entry in grown.split(";")]


def test_a_slice_that_begins_during_a_clear_is_cleared(
    clockwork: Any, open_one: Callable[..., TimeBloom], server: redis.Redis
) -> None:
    """The client has looked which parts there are, another one adds to the slice that begins, and then it clears."""
    seen, other = open_one(), open_one()
    seen.add("a")
    flow = flow_of(seen, "clear")
    calls = next(flow)
    while script_of(calls[0]) != "bloom/clear":
        calls = flow.send(replies_to(server, calls))
    clockwork.set(MIDNIGHT.format(4))
    other.add("b")
    run(server, flow, replies_to(server, calls))
    assert not other.contains("b")


def test_shards_of_a_slice_leave_one_after_another(
    open_one: Callable[..., TimeBloom], server: redis.Redis, name: str
) -> None:
    """So that the server never has all of them to drop at once; what they agree on comes last."""
    open_one(shards=20).add_many(map(str, range(1000)))
    [*shards, agreement] = sorted(
        server.pttl(key) for key in [*server.keys("*:201906*"), f"{{{name}}}:config"]
    )
    assert 20 == len(set(shards))
    assert shards[-1] < agreement


def test_parameters_are_kept_where_a_slice_begins_with_seen_items(
    clockwork: Any, open_one: Callable[..., TimeBloom]
) -> None:
    """They begin its layout, and no part of it."""
    seen, other = (open_one(capacity=None) for _ in range(2))
    assert [True, False] == [seen.add("a"), other.add("a")]
    clockwork.set(NOON.format(4))
    assert not seen.add("a")
    clockwork.set(NOON.format(5))
    assert other.add("a")
