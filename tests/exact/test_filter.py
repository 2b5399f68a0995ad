"""What an exact filter has of its own: TTLs, shards, buckets, ``discard``, and its name on the command line.

(What all stores do alike: contract/test_stores.py; what ``discard`` answers: test_model.py.)
"""

from __future__ import annotations

from functools import partial

import pytest
import redis

from tbloom import ConfigMismatch, TBloomError
from tbloom.distinct import DistinctCounter
from tbloom.engine.batches import MOVED
from tbloom.engine.directory import BITS, read_directory
from tbloom.exact import ExactFilter
from tbloom.items import encode, fingerprint
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of, lose, replies_to, run, script_of
from tests.helpers.hostile import ITEMS, PLANTED
from tests.helpers.making import Make
from tests.helpers.stores import EXACT


async def test_clear_works_whatever_number_of_shards_is_stored(
    make_exact: Make, client: redis.Redis, name: str
) -> None:
    items = [*map(str, range(500))]
    for stored, ours in ((3, 1), (1, 3), (2, 5)):
        await make_exact(shards=stored).add_many(items)
        seen = make_exact(shards=ours)
        for refused in (partial(seen.add, "x"), partial(seen.contains, "x"), seen.info):
            with pytest.raises(ConfigMismatch, match=f"shards is {stored} there and {ours} here"):
                await refused()
        await seen.clear()
        assert [] == keys_of(client, name)
        assert all(await seen.add_many(items))
        await seen.clear()


async def test_a_shard_without_parameters_asks_for_them(make_exact: Make) -> None:
    """The filter was cleared and made anew, by an add to another of its shards."""
    old, new = make_exact(shards=2), make_exact(shards=3)
    await old.add_many(ITEMS)
    await new.clear()
    await new.add(ITEMS[0])
    for item in ITEMS:
        for verb in (old.add, old.contains, old.discard):
            with pytest.raises(ConfigMismatch, match="shards is 3 there and 2 here"):
                await verb(item)


async def test_an_item_costs_less_than_40_bytes_in_redis(make_exact: Make) -> None:
    """16 of them are its fingerprint; expiry, listpack and key take the others."""
    seen = make_exact()
    await seen.add_many(map(str, range(50_000)))
    assert (await seen.info()).bytes < 50_000 * 40


@pytest.mark.parametrize("kind", ["config", "layout", "bucket"])
def test_what_the_server_has_dropped_is_new_again(own: redis.Redis, kind: str) -> None:
    """Without its parameters or its buckets; what else there is stays seen, if it can be found."""
    for shards in (1, 3):
        seen = PLANTED[EXACT].filled(own, shards)
        own.delete(*PLANTED[EXACT].keys(own, kind))
        told = seen.add_many(ITEMS)
        assert told == [kind != "config"] * len(ITEMS)
        assert not any(seen.add_many(ITEMS))
        assert not any(ExactFilter(own, "planted", shards=shards).add_many(ITEMS))
        assert len(ITEMS) == seen.info().items


def _check_layout(seen: ExactFilter, url: str, items: list[str]) -> None:
    """Each item is in its bucket; there are no others, and each is in its compact form."""
    directory, _ = run(seen.client, read_directory(seen.config.name, seen.config.keys.layout(0)))
    found = {}
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{{{seen.name}}}:exact:*"):
            bucket = int(key.split(b":")[-1])
            for entry in client.zrange(key, 0, -1):
                found[entry] = bucket
            assert client.object("encoding", key) in (b"listpack", b"ziplist")
            assert client.zcard(key) <= 128
    keys = map(fingerprint, map(encode, items))
    assert found == {key.to_bytes(16, "big"): directory.half_of(key) >> 1 for key in keys}


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
    monkeypatch.setattr("tbloom.engine.dispatcher.MAX_CORRECTIONS", 3)
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


def test_items_that_are_always_in_another_bucket_end_in_an_error(
    client: redis.Redis, name: str
) -> None:
    """A layout that never agrees with its buckets, as another program may have left it."""
    seen = ExactFilter(client, name)
    seen.add("before")
    flow = flow_of(seen, "add_many", ["a", "b"])

    def play() -> None:
        calls = next(flow)
        for _ in range(200):
            replies = replies_to(client, calls)
            for call, reply in zip(calls, replies, strict=True):
                if script_of(call) == "exact/add":
                    reply[1] = MOVED.encode() * len(reply[1])
            calls = flow.send(replies)

    with pytest.raises(TBloomError, match="64 times in a row"):
        play()
