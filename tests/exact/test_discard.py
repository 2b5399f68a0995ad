"""``discard`` and copies that come late. (What it answers: test_model.py.)"""

from __future__ import annotations

import pytest
import redis

from tbloom.distinct import DistinctCounter
from tbloom.exact import ExactFilter
from tests.helpers.account import names
from tests.helpers.flows import flow_of, replies_to


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
