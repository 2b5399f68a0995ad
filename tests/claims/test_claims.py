"""Claims: an item is seen once the work on it is done. If its process dies, other processes can claim it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigMismatch, FilterFull, TimeBloom
from tests.helpers.clock import Clockwork
from tests.helpers.making import in_child
from tests.helpers.proxy import Fault, Proxy

NEW, SEEN, BUSY = Claim.NEW, Claim.SEEN, Claim.BUSY
LIFE = 1.0  # seconds: the shortest that a session may have


@asynccontextmanager
async def claiming(seen: Any, item: str | bytearray) -> AsyncIterator[bool]:
    """``claiming`` of either class."""
    own = getattr(seen, "_seen", seen).claiming(item)
    if isinstance(own, AbstractAsyncContextManager):
        async with own as is_new:
            yield is_new
    else:
        with own as is_new:
            yield is_new


async def test_claiming_commits_on_success_and_releases_on_an_exception(make: Any) -> None:
    seen = make()
    with suppress(ZeroDivisionError):
        async with claiming(seen, "a") as is_new:
            assert is_new
            raise ZeroDivisionError
    async with claiming(seen, "a") as is_new, claiming(seen, "a") as again:
        assert (True, False) == (is_new, again)
    assert await seen.contains("a")


async def test_a_buffer_that_changes_after_it_was_claimed(make: Any) -> None:
    """What was claimed is committed; the local cache keeps no buffer either."""
    seen, buffer = make(cache_size=10), bytearray(b"a")
    async with claiming(seen, buffer) as is_new:
        assert is_new
        buffer[:] = b"b"
    assert [SEEN, NEW] == [await seen.claim("a"), await seen.claim(memoryview(buffer))]
    buffer[:] = b"c"
    assert [BUSY, NEW, SEEN] == await seen.claim_many([b"b", buffer, bytearray(b"a")])
    assert await seen.commit_many([memoryview(b"b"), buffer]) == [True, True]
    buffer[:] = b"d"
    assert [True, True, False] == await seen.contains_many(["b", "c", buffer])
    with suppress(ZeroDivisionError):
        async with claiming(seen, buffer):
            buffer[:] = b"e"
            raise ZeroDivisionError
    assert await seen.claim("d") is NEW


async def test_claiming_leaves_a_commit_without_reply_to_the_heartbeat(make: Any, url: str) -> None:
    """Finished work is not given to another process."""
    is_cut, theirs = False, make()
    with Proxy(url, lambda _: Fault.CUT_REQUEST if is_cut else None) as proxy:
        ours = make(url=proxy.url, resend=False)
        getattr(ours, "_seen", ours)._keep_session = lambda: None  # no heartbeat but the test's
        with pytest.raises(redis.ConnectionError):
            async with claiming(ours, "a"):
                is_cut = True
        is_cut = False
        assert BUSY is await theirs.claim("a")
        await ours._send_heartbeat()
        assert SEEN is await theirs.claim("a")
        await ours.aclose()


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.CUT_REQUEST])
async def test_a_batch_repeated_after_an_error_gets_its_answers(
    make: Any, url: str, fault: Fault
) -> None:
    """Whether the server has had the call or not. A repeat in the batch spoils no other item (pulsar#6273)."""
    fails, theirs, batch = False, make(), ["a", "b", "a"]
    with Proxy(url, lambda _: fault if fails else None) as proxy:
        ours = make(url=proxy.url, resend=False)
        await ours.add("other")
        for verb, items, expected in [
            ("add_many", ["x", "y", "x"], [True, True, False]),
            ("claim_many", batch, [NEW, NEW, BUSY]),
            ("commit_many", batch, [True] * 3),
        ]:
            fails = True
            with pytest.raises(redis.ConnectionError):
                await getattr(ours, verb)(items)
            fails = False
            assert expected == await getattr(ours, verb)(items)
        assert [SEEN] * 4 == await theirs.claim_many([*"abxy"])
        await ours.aclose()


async def test_a_heartbeat_repeats_a_failed_commit_of_a_batch(make: Any, url: str) -> None:
    """And releases a batch whose claim has failed, or whose release."""
    fails, theirs = False, make()
    with Proxy(url, lambda _: Fault.LOSE if fails else None) as proxy:
        ours = make(url=proxy.url, resend=False)
        assert [NEW] * 4 == await ours.claim_many([*"abcd"])
        for verb, items in ("commit_many", "ab"), ("release_many", "cd"), ("claim_many", "ef"):
            fails = True
            with pytest.raises(redis.ConnectionError):
                await getattr(ours, verb)([*items])
            fails = False
        await ours._send_heartbeat()
        assert [SEEN, SEEN, NEW, NEW, NEW, NEW] == await theirs.claim_many([*"abcdef"])
        await ours.aclose()


async def test_claiming_keeps_the_claim_while_a_slice_is_full(make: Any) -> None:
    """The next slice has room for the item."""
    ours, theirs = (make(capacity=1, grow=False) for _ in range(2))
    with pytest.raises(FilterFull):
        async with claiming(ours, "second"):
            await theirs.add("first")
    assert BUSY is await theirs.claim("second")


async def test_claiming_releases_what_can_not_be_committed(make: Any) -> None:
    """The filter has other parameters by now."""
    ours, theirs = make(), make(capacity=2000)
    with pytest.raises(ConfigMismatch):
        async with claiming(ours, "a"):
            await theirs.clear(), await theirs.add("b")
    assert NEW is await theirs.claim("a")


async def test_a_session_is_alive_while_it_sends_heartbeats(
    make: Any, clockwork: Clockwork, name: str
) -> None:
    """Also for longer than ``session_ttl``, while its process does nothing else."""
    ours, theirs = (make(url=clockwork.server.url, session_ttl=2 * LIFE) for _ in range(2))
    await ours.claim("a")
    session = getattr(ours, "_seen", ours).session
    for _ in range(5):
        await asyncio.to_thread(clockwork.pass_a_second, name, session)
        assert BUSY is await theirs.claim("a")
    await ours.commit("a")


def test_a_forked_process_is_another_session(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name) as seen:
        assert NEW is seen.claim("a")
        session = seen.session
        assert (BUSY, True) == in_child(lambda: (seen.claim("a"), seen.session != session))
        assert SEEN is not seen.claim("a")


async def test_an_add_does_not_see_claims(make: Any) -> None:
    """The docstrings of both methods say so."""
    ours, theirs = make(), make()
    assert NEW is await ours.claim("a")
    assert await theirs.add("a")
    await ours.commit("a")
    assert SEEN is await theirs.claim("a")


async def test_close_warns_of_commits_that_it_could_not_send(
    make: Any, url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(url, lambda _: Fault.CUT_REQUEST) as proxy:
        seen = make(url=proxy.url, resend=False)
        with pytest.raises(redis.ConnectionError):
            await seen.commit("a")
        await seen.aclose()
    assert f"{name!r}: the commits of 1 items have failed" in caplog.text
