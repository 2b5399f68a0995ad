"""fakeredis: whoever tests a crawler without a server can hand its clients to tbloom (docs/recipes.md)."""

from __future__ import annotations

import fakeredis

from tbloom import AsyncExactFilter, AsyncTimeBloom, Claim, ExactFilter, TimeBloom

#: More than the first part of a filter without a capacity holds.
MANY = [f"item {i}" for i in range(12_000)]


def test_a_filter_works_on_fakeredis() -> None:
    seen = TimeBloom(fakeredis.FakeRedis(), "news")
    assert seen.add("a")
    assert not seen.add("a")
    assert ["a" in seen, "b" in seen] == [True, False]
    assert len(MANY) - sum(seen.add_many(MANY)) < 5
    assert not any(seen.add_many(MANY))
    assert (seen.last_seen("a"), seen.last_seen("b")) == (seen.last_seen("item 1"), None)
    assert [Claim.NEW, Claim.BUSY] == [seen.claim("b"), seen.claim("b")]
    seen.commit("b")
    assert seen.claim("b") is Claim.SEEN
    seen.clear()
    assert seen.add("a")


async def test_a_filter_for_asyncio_works_on_fakeredis() -> None:
    seen = AsyncTimeBloom(fakeredis.FakeAsyncRedis(), "news")
    assert await seen.add("a")
    assert not await seen.add("a")
    assert len(MANY) - sum(await seen.add_many(MANY)) < 5


def test_an_exact_filter_works_on_fakeredis() -> None:
    seen = ExactFilter(fakeredis.FakeRedis(), "news")
    assert [True, False] == [seen.add("a"), seen.add("a")]
    assert all(seen.add_many(MANY[:3000]))
    assert seen.discard("a")
    assert "a" not in seen


async def test_an_exact_filter_for_asyncio_works_on_fakeredis() -> None:
    seen = AsyncExactFilter(fakeredis.FakeAsyncRedis(), "news")
    assert await seen.add("a")
    assert not await seen.add("a")
    assert await seen.contains("a")
