"""What an exact filter has of its own: TTLs, shards, buckets, ``discard``, and its name on the command line.

(What all stores do alike: contract/test_stores.py; what ``discard`` answers: test_model.py.)
"""

from __future__ import annotations

import json
from functools import partial

import pytest
import redis

from tbloom import ConfigMismatch
from tbloom.exact import ExactFilter
from tests.helpers import commands
from tests.helpers.account import names
from tests.helpers.contents import keys_of
from tests.helpers.flows import flow_of, replies_to
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


@pytest.mark.parametrize(
    "words",
    ["metrics", "report", "check -", "add -", "export /dev/null", "reconfigure --slices 3"],
)
def test_commands_of_other_filters_say_that_it_is_an_exact_one(own_url: str, words: str) -> None:
    """``list`` shows it as what it is."""
    verb, *more = words.split()
    with ExactFilter.from_url(own_url, "pages", shards=2) as seen:
        seen.add_many(ITEMS)
        done = commands.tbloom(verb, "--url", own_url, "pages", *more, stdin="a\n")
        commands.refused(done, "pages", "is an exact filter")
        table = commands.tbloom("list", "--url", own_url).stdout
        assert ["pages", "exact", "2", "50"] == table.splitlines()[-1].split()[:4]
        [shown] = json.loads(commands.tbloom("list", "--url", own_url, "--json").stdout)
        known = {"name": "pages", "kind": "exact", "items": 50, "shards": 2}
        assert shown | known | {"bytes": seen.info().bytes} == shown
