"""Buckets of an exact filter that another program has planted, or that the server has dropped."""

from __future__ import annotations

import pytest
import redis

from tbloom.exact import ExactFilter
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.stores import EXACT

EXACT_FILTER = PLANTED[EXACT]


@pytest.mark.parametrize("kind", ["config", "layout", "bucket"])
def test_what_the_server_has_dropped_is_new_again(own: redis.Redis, kind: str) -> None:
    """Without its parameters or its buckets; what else there is stays seen, if it can be found."""
    for shards in (1, 3):
        seen = EXACT_FILTER.filled(own, shards)
        own.delete(*EXACT_FILTER.keys(own, kind))
        told = seen.add_many(ITEMS)
        assert told == [kind != "config"] * len(ITEMS)
        assert not any(seen.add_many(ITEMS))
        assert not any(ExactFilter(own, "planted", shards=shards).add_many(ITEMS))
        assert len(ITEMS) == seen.info().items
