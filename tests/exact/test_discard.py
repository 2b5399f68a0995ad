"""``discard``: what an exact filter forgets because a client says so."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tbloom.exact import ExactFilter
from tests.helpers.account import names
from tests.helpers.flows import flow_of, replies_to
from tests.helpers.making import Make

each_number_of_shards = pytest.mark.parametrize("shards", [1, 3])


@each_number_of_shards
async def test_a_discarded_item_is_new_again(make_exact: Make, shards: int) -> None:
    """For all clients; the others stay. One client knows nothing of the buckets that were split."""
    seen, other = (make_exact(shards=shards) for _ in range(2))
    assert [False, True] == [await seen.discard("a"), await seen.add("a")]
    assert [True, True] == [await other.contains("a"), await other.discard("a")]
    assert all(await seen.add_many(names(2000)))
    answered = await other.discard_many(["none", "item 7", "item 8", "item 7"])
    assert [False, True, True, False] == answered
    assert [True, False] == [await other.discard("item 9"), await seen.discard("item 9")]
    assert [False, True] == await seen.contains_many(["item 8", "item 10"])
    assert 1997 == (await seen.info()).items
    assert [True, False] == await seen.add_many(["item 8", "item 10"])
    assert 1998 == sum(await other.discard_many(names(2000)))
    assert 0 == (await seen.info()).items


def test_an_expired_item_was_not_remembered(clockwork: Any, name: str) -> None:
    """By the server's clock."""
    with ExactFilter.from_url(clockwork.server.url, name, ttl=86_400) as seen:
        seen.add_many(["hour", "other hour"], ttl=3600)
        seen.add_many(["day", "other day"])
        clockwork.set("2019-06-03 00:59:59")
        assert [True, True] == [seen.discard("other hour"), seen.discard("other day")]
        clockwork.set("2019-06-03 01:00:00")
        assert [False, True] == seen.discard_many(["hour", "day"])


@pytest.mark.parametrize("kind", [ExactFilter, DistinctCounter])
def test_an_add_that_is_still_on_its_way_comes_before_the_discard(
    client: redis.Redis, url: str, name: str, kind: type[ExactFilter | DistinctCounter]
) -> None:
    """Else it would come later, and its answer would reach nobody."""
    with kind.from_url(url, name) as seen:
        seen.add("before")
        flow = flow_of(seen, "add", "a")
        calls = next(flow)
        flow.close()  # as after an error
        assert seen.discard("a")
        replies_to(client, calls)
        assert "a" not in seen
        assert [True, False] == [seen.add("a"), seen.add("a")]


@pytest.mark.parametrize("found", [True, False])
def test_a_late_copy_discards_nothing(
    client: redis.Redis, url: str, name: str, *, found: bool
) -> None:
    """Of a call that has found the item, or not; and of one from before a clear()."""
    with ExactFilter.from_url(url, name) as seen, ExactFilter.from_url(url, name) as other:
        other.add_many(names(20))
        seen.contains("item 0")  # knows the layout
        if not found:
            other.discard("item 0")
        early = next(flow_of(seen, "discard", "item 0"))
        flow = flow_of(seen, "discard", "item 0")
        calls = next(flow)
        with pytest.raises(StopIteration) as answer:
            flow.send(replies_to(client, calls))
        assert found is answer.value.value
        assert other.add("item 0")
        assert [[0, str(int(found)).encode(), []]] == replies_to(client, calls)
        assert seen.discard("item 1")  # the lane's next call
        assert [3] == [status for status, *_ in replies_to(client, calls)]
        assert "item 0" in other
        other.clear()
        other.add("item 0")
        assert [5] == [status for status, *_ in replies_to(client, early)]
        assert "item 0" in other
