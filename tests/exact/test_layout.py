"""The buckets of an exact filter: the tree that they make, and who finds what in it."""

from __future__ import annotations

import pytest
import redis

from tbloom import DistinctCounter
from tbloom.engine.tree import BITS, read_tree
from tbloom.exact import ExactFilter
from tbloom.items import encode, fingerprint
from tests.helpers.flows import flow_of, lose, replies_to, run


def _check_layout(seen: ExactFilter, url: str, items: list[str]) -> None:
    """Each item is in its bucket; there are no others, and each is in its compact form."""
    tree, _ = run(seen.client, read_tree(seen.config.name, seen.config.keys.layout(0)))
    found = {}
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{{{seen.name}}}:exact:*"):
            bucket = int(key.split(b":")[-1])
            for entry in client.zrange(key, 0, -1):
                found[entry] = bucket
            assert client.object("encoding", key) in (b"listpack", b"ziplist")
            assert client.zcard(key) <= 128
    keys = map(fingerprint, map(encode, items))
    assert found == {key.to_bytes(16, "big"): tree.half_of(key) >> 1 for key in keys}


@pytest.mark.parametrize("size", [1, 7, 150, 20_000])
def test_each_item_is_in_its_bucket_and_no_bucket_is_large(
    client: redis.Redis, url: str, name: str, size: int
) -> None:
    seen, items = ExactFilter(client, name), [*map(str, range(min(20_000, 1000 * size)))]
    for start in range(0, len(items), size):
        assert all(seen.add_many(items[start : start + size]))
    _check_layout(seen, url, items)


def test_items_that_were_made_for_one_bucket_are_added_too(
    client: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round of calls splits one bucket, and has room for one item more."""
    monkeypatch.setattr("tbloom.engine.exchange.MAX_CORRECTIONS", 3)
    items = [
        item
        for item in map(str, range(60_000))
        if fingerprint(encode(item)) >> (BITS - 8) & 0xFF == 0
    ]
    seen = ExactFilter(client, name)
    assert len(items) > 150
    assert all(seen.add_many(items))
    assert len(items) == seen.info().items


@pytest.mark.parametrize("store", ["exact", "distinct"])
def test_a_lost_answer_stays_pending_while_its_items_move(
    client: redis.Redis, name: str, store: str
) -> None:
    """One call learns that they have moved, and before it asks there a copy of the lost one is executed, and lost too."""
    seen, other = (
        ExactFilter(client, name) if store == "exact" else DistinctCounter(client, "one", name)
        for _ in range(2)
    )
    items = [f"lost {i}" for i in range(20)]
    seen.add("before")
    first = flow_of(seen, "add_many", items)
    next(first)
    first.close()
    other.add_many(map(str, range(1000)))
    one = flow_of(seen, "add_many", items)
    layout = one.send(replies_to(client, next(one)))
    calls = one.send(replies_to(client, layout))
    lose(client, flow_of(seen, "add_many", items))
    answers, _ = run(client, one, replies_to(client, calls))
    assert sum(answers) < 20
    assert sum(answers) + sum(seen.add_many(items)) == 20
    assert not any(seen.add_many(items) + other.add_many(items))
