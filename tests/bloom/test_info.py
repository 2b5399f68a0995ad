"""``info()`` after an earlier one."""

from __future__ import annotations

import re

import pytest
import redis

from tbloom import TimeBloom


@pytest.mark.parametrize("shards", [1, 3])
def test_info_after_an_earlier_one_is_the_same_as_a_first_one(
    url: str, name: str, shards: int
) -> None:
    """After no change, new items, growth, and clear()."""
    with TimeBloom.from_url(url, name, capacity=300, shards=shards) as seen:
        earlier = seen.info()
        for number in (0, 10, 100, 1000):
            seen.add_many(f"{number} {i}" for i in range(number))
            again, afresh = seen.info(earlier), seen.info()
            # Times may differ by a millisecond.
            assert _without_expiry(again) == _without_expiry(afresh)
            assert (again.slices[-1].expires is None) == (not again.items)
            earlier = again
        assert earlier.items > 1000
        assert earlier.slices[-1].parts > 1
        seen.clear()
        assert seen.info(earlier) == seen.info()


def _without_expiry(info: object) -> str:
    return re.sub(r"expires=(None|datetime\.datetime\(.*?\)(?=, items))", "", repr(info))


def test_info_after_an_earlier_one_counts_the_bits_of_changed_slices_only(
    own: redis.Redis, name: str
) -> None:
    """Unchanged slices are not read."""
    with TimeBloom(own, name, capacity=1000) as seen:
        seen.add_many(map(str, range(10)))
        seen.add("older", keep=3)

        def counted(earlier: object) -> int:
            own.config_resetstat()
            seen.info(earlier)
            return own.info("commandstats").get("cmdstat_bitcount", {"calls": 0})["calls"]

        info = seen.info()
        assert [counted(None), counted(info)] == [2, 0]
        seen.add("more")
        assert counted(info) == 1
