"""Tasks that share a filter each get their own answers, whatever happens to other tasks, and wait for a connection."""

from __future__ import annotations

import asyncio
import random
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from redis._parsers import _AsyncRESP2Parser

from tbloom import AsyncTimeBloom, Claim, ConfigError, FilterFull, TBloomError
from tbloom.engine.batcher import SharedCall, WaitingItem, deliver
from tbloom.engine.scripts import Script
from tbloom.exact import AsyncExactFilter
from tests.helpers.account import Account
from tests.helpers.clock import Clockwork
from tests.helpers.proxy import Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

TASKS, TURNS = 100, 5
#: A busy machine opens a caller's connections, which are not tried again, while thousands of tasks begin.
PATIENT = "?socket_timeout=60&socket_connect_timeout=60"


@pytest.mark.parametrize(
    ("kind", "tasks", "query", "callers"),
    [
        (DISTINCT, 30, "?max_connections=1", True),
        (DISTINCT, 300, PATIENT, True),
        pytest.param(EXACT, 30, "?max_connections=1", False, marks=pytest.mark.check),
        pytest.param(EXACT, 2000, PATIENT, False, marks=pytest.mark.check),
    ],
    ids=str,
)
async def test_many_tasks_wait_for_a_connection(
    url: str, name: str, *, kind: Store, tasks: int, query: str, callers: bool
) -> None:
    """No call fails, although there are more tasks than connections in the pool."""
    kept = kind.open(url + query, name, driver="async", callers=callers)
    items = [f"item {i // 2}" for i in range(tasks)]
    assert tasks // 2 == sum(await asyncio.gather(*map(kept.add, items)))
    assert [True] * tasks == await asyncio.gather(*map(kept.contains, items))
    await kept.aclose()
    await kept.client.aclose()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (AsyncTimeBloom, ""),
        (AsyncExactFilter, "?max_connections=1"),
        pytest.param(AsyncTimeBloom, "?max_connections=1", marks=pytest.mark.check),
        pytest.param(AsyncExactFilter, "", marks=pytest.mark.check),
    ],
)
async def test_a_cancelled_task_takes_no_reply_from_others(
    url: str, name: str, kind: Any, query: str
) -> None:
    """It may be cancelled at any moment, also while it waits for a connection. Its item is new to the next call."""
    seen, rng, account = kind.from_url(url + query, name), random.Random(18), Account()
    for turn in range(TURNS):
        items = [f"{turn} {i}" for i in range(TASKS)]
        tasks = [asyncio.create_task(seen.add(item)) for item in items]
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        cancelled = {task for task in tasks if rng.random() < 0.3 and task.cancel()}
        for item, task in zip(items, tasks, strict=True):
            with suppress(asyncio.CancelledError):
                account.note([item], [await task])
                assert task not in cancelled
        for item in items:
            await account.offer_async(seen, [item])
            await account.offer_async(seen, [item])
    account.check_answers()
    assert TURNS * TASKS == len(account.new) == (await seen.info()).items
    await seen.aclose()


def test_another_event_loop_is_refused(url: str, name: str) -> None:
    """redis-py's connections work only in the first loop (redis-py#2838, #3351, aioredis-py#941). A forked process has another
    one, too."""
    seen = AsyncTimeBloom.from_url(url, name)

    async def use() -> None:
        assert await seen.add("a")
        for coroutine in (seen.add("b"), seen.info(), seen.aclose()):
            with ThreadPoolExecutor(1) as thread, pytest.raises(TBloomError, match="event loop"):
                thread.submit(asyncio.run, coroutine).result()
        assert await seen.add("b")
        await seen.aclose()

    asyncio.run(use())


@pytest.mark.parametrize("verb", ["add", "contains", "claim", "last_seen", "info"])
def test_an_error_says_that_asyncios_event_loop_is_missing(name: str, verb: str) -> None:
    """The coroutine is run as Trio would run it."""
    seen = AsyncTimeBloom.from_url("redis://localhost", name)
    coroutine = getattr(seen, verb)(*([] if verb == "info" else ["a"]))
    with pytest.raises(TBloomError, match="the Async classes need asyncio: its event loop"):
        coroutine.send(None)


STORES = [AsyncTimeBloom, AsyncExactFilter]
each_store = pytest.mark.parametrize("store", STORES)


@pytest.mark.parametrize(
    ("store", "verb", "query"),
    [
        (BLOOM, "claim", ""),
        (BLOOM, "commit", ""),
        (BLOOM, "add", "?protocol=3"),
        (EXACT, "add", "?decode_responses=True"),
        (EXACT, "add", "?protocol=2"),
        (BLOOM, "add", "no hiredis"),
        (DISTINCT, "add", ""),
    ],
    ids=str,
)
async def test_items_of_many_tasks_go_in_few_calls(
    store: Store, verb: str, query: str, *, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every protocol, also on a new store. An item without others is sent at once."""
    monkeypatch.setattr("tbloom.claims.heartbeat._FIRST", 60.0)
    query, has_hiredis = ("", False) if query == "no hiredis" else (query, True)
    with Proxy(url, lambda _: None) as counted:
        seen = store.open(counted.url + query, name, driver="async")
        if not has_hiredis:  # as where it is not installed
            seen.client.connection_pool.connection_kwargs["parser_class"] = _AsyncRESP2Parser
        items, ask = [f"item {i}" for i in range(1000)], getattr(seen, verb)
        expected = Claim.NEW if verb == "claim" else True
        assert [expected] * 1000 == await asyncio.gather(*map(ask, items))
        assert counted.calls <= 100
        before = counted.calls
        if store is not DISTINCT:
            assert [verb != "claim"] * 1000 == await asyncio.gather(*map(seen.contains, items))
            assert counted.calls - before <= 1000 / 50
        before = counted.calls
        for i in range(20):
            assert await ask(f"lone {i}") is expected
        assert counted.calls - before == 20
        await seen.aclose()


async def test_tasks_that_ask_otherwise_get_their_own_answers(
    clockwork: Clockwork, name: str
) -> None:
    """All were added the day before; within the newest slice, some are new. And some are forgotten earlier."""
    items = [f"item {i}" for i in range(40)]
    async with AsyncTimeBloom.from_url(clockwork.server.url, name, cache_size=0) as seen:
        await seen.add_many(items)
        clockwork.go_on(86_400)
        within = [7, 1] * 20
        answers = await asyncio.gather(*map(seen.add, items, within))
        assert [False, True] * 20 == answers
    async with AsyncExactFilter.from_url(clockwork.server.url, f"{name}:exact") as seen:
        await asyncio.gather(*map(seen.add, items, [10, 20] * 20))
        clockwork.go_on(15)
        assert [False, True] * 20 == await seen.contains_many(items)


async def test_only_the_task_of_a_refused_item_gets_its_error(url: str, name: str) -> None:
    """The item is no valid item, or is new to a full slice. (Of two calls in flight, the second may be first.)"""
    async with AsyncTimeBloom.from_url(url, name, capacity=10, grow=False) as seen:
        items = ["", None, *(f"item {i}" for i in range(15))]
        for is_new in True, False:
            answers = await asyncio.gather(*map(seen.add, items), return_exceptions=True)
            assert {ConfigError} == {*map(type, answers[:2])}
            assert 10 == answers.count(is_new)
            assert 5 == sum(isinstance(answer, FilterFull) for answer in answers)


class _TwoArguments(Exception):
    """An error whose constructor does not accept its ``args``."""

    def __init__(self, reason: str, *, code: int) -> None:
        super().__init__(f"{code}: {reason}")


class _Client(redis.asyncio.Redis):
    """A caller's client, which raises an error of its own."""

    async def execute_command(self, *_: Any, **__: Any) -> Any:
        await super().execute_command("PING")
        raise _TwoArguments("why", code=7)


@each_store
async def test_each_task_of_a_shared_call_gets_its_error(store: Any, url: str, name: str) -> None:
    """aiokafka#246; the error may have any class. Its traceback shows no other task."""
    client = _Client.from_url(url)
    seen = store(client, name)
    answers = await asyncio.wait_for(
        asyncio.gather(*[seen.add(f"{i}") for i in range(50)], return_exceptions=True), 60
    )
    assert [(_TwoArguments, "7: why")] * 50 == [(type(each), str(each)) for each in answers]
    assert max(len([*traceback.walk_tb(each.__traceback__)]) for each in answers) < 40
    await client.aclose()


@pytest.mark.parametrize(
    ("store", "turns"),
    [(AsyncExactFilter, 0), (AsyncTimeBloom, 1), (AsyncExactFilter, 2), (AsyncTimeBloom, 3)],
)
async def test_tasks_get_their_answers_if_their_shared_call_is_cancelled(
    store: Any, url: str, name: str, turns: int
) -> None:
    """It is cancelled before its start, or at any later moment."""
    async with store.from_url(url, name) as seen:
        await asyncio.gather(seen.add("the store begins"), seen.add("with two connections"))
        tasks = [asyncio.create_task(seen.add(f"{i}")) for i in range(50)]
        others = {*tasks, asyncio.current_task()}
        while not (batches := asyncio.all_tasks() - others):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        for batch in batches:
            batch.cancel()
        assert [True] * 50 == await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert not any(await asyncio.gather(*[seen.add(f"{i}") for i in range(50)]))


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        ({"a": True}, True),
        (None, None),
        (TBloomError("refused"), None),
        ({"a": TBloomError()}, None),
    ],
)
@pytest.mark.parametrize("is_cancelled_first", [True, False])
async def test_an_item_of_a_task_cancelled_late_is_kept(
    answers: Any, answer: Any, *, is_cancelled_first: bool
) -> None:
    """With its answer, or without one, as a commit that a heartbeat repeats. The task is cancelled just before the end, or just
    after, before it goes on."""
    kept = list[Any]()
    call = SharedCall("kind", lambda _: None, lambda _: None, lambda *item: kept.append(item))  # type: ignore[arg-type,return-value]
    waiting = WaitingItem("a", call, asyncio.get_running_loop().create_future())
    if is_cancelled_first:
        waiting.done.cancel()
    deliver([waiting], answers)
    if not is_cancelled_first:
        waiting.keep_delivered()
    assert [("a", answer)] == kept


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_task_that_closes_connections_cancels_no_other(
    url: str, name: str, turns: int
) -> None:
    """Both close the same idle connections, as calls do that have lost theirs."""
    async with AsyncTimeBloom.from_url(url, name) as seen:
        await asyncio.gather(*(seen.contains_many(["a"]) for _ in range(5)))
        cancelled, other = (asyncio.create_task(seen._sender.close_idle()) for _ in range(2))
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        await other
        assert await seen.add("a")


class _Held(redis.asyncio.Redis):
    """Holds calls that add or commit, once ``go_on`` is set to an event."""

    go_on: asyncio.Event | None = None
    held = 0

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        scripts = Script("bloom/add").sha, Script("bloom/commit").sha
        if self.go_on and (words[1] in scripts or "add" in words):
            self.held += 1
            await self.go_on.wait()
        return await super().execute_command(*words, **options)


async def _many_turns() -> None:
    """Let all tasks go on until they wait for a reply, or for ``go_on``."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("store", "verb"),
    [(EXACT, "discard"), (EXACT, "discard_many"), (EXACT, "clear"), (BLOOM, "clear")],
)
async def test_no_item_of_a_cancelled_add_comes_after_its_removal(
    store: Store, verb: str, url: str, name: str
) -> None:
    """The removal waits for the call that the cancelled task shares with others."""
    async with _Held.from_url(url) as client:
        seen = store.of_client(client, name)
        await seen.add("before")
        client.go_on = asyncio.Event()
        adds = [asyncio.create_task(seen.add(item)) for item in "abcd"]
        await _many_turns()
        begins, client.go_on = client.go_on, asyncio.Event()
        begins.set()
        await asyncio.wait(adds[:2])
        await _many_turns()
        adds[2].cancel()
        await _many_turns()
        words = {"discard": ["c"], "discard_many": [["c"]], "clear": []}[verb]
        removal = asyncio.create_task(getattr(seen, verb)(*words))
        await _many_turns()
        client.go_on.set()
        await removal
        assert not await seen.contains("c")
        await asyncio.wait(adds)
        await seen.aclose()


@pytest.mark.parametrize("store", [BLOOM, EXACT, DISTINCT], ids=str)
async def test_a_cancelled_add_holds_up_only_adds_of_its_item(
    store: Store, url: str, name: str
) -> None:
    """The first two are sent at once, the next two share a call once these have ended. A counter's adds share none."""
    async with _Held.from_url(url) as client:
        seen = store.of_client(client, name)
        await seen.add("before")
        client.go_on = asyncio.Event()
        adds = [asyncio.create_task(seen.add(item)) for item in "abcd"]
        await _many_turns()
        if store is not DISTINCT:  # a and b are added; now c and d share a call, which is held
            begins, client.go_on = client.go_on, asyncio.Event()
            begins.set()
            assert [True, True] == [await adds[0], await adds[1]]
            await _many_turns()
        adds[2].cancel()
        await _many_turns()
        async with asyncio.timeout(60):
            assert [True, False] == await seen.contains_many(["before", "c"])
            if store is BLOOM:
                assert Claim.NEW is await seen.claim("other")
                await seen._send_heartbeat()
                await seen.release("other")
            with pytest.raises(ConfigError, match="expected an iterable of"):
                await seen.add_many("cx")
        buffer = bytearray(b"c")
        again = asyncio.create_task(seen.add_many(iter([buffer, "x"])))
        alone = asyncio.create_task(seen.add("c"))
        await _many_turns()
        buffer[:] = b"z"
        if store is not DISTINCT:  # a and b, then c and d together: adds of c wait for these
            assert 3 == client.held
        client.go_on.set()
        answers = [*await again, await alone]
        assert (2, True) == (sum(answers), answers[1])
        assert await adds[3]
        await seen.aclose()


@pytest.mark.parametrize("then", ["heartbeat", "aclose"])
async def test_what_cancelled_tasks_have_committed_is_seen(url: str, name: str, then: str) -> None:
    """Whether their commits were sent or not."""
    async with _Held.from_url(url) as client:
        seen = AsyncTimeBloom(client, name)
        items = [f"item {i}" for i in range(100)]
        assert [Claim.NEW] * 100 == await seen.claim_many(items)
        client.go_on = asyncio.Event()
        tasks = [asyncio.create_task(seen.commit(item)) for item in items]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks[1:])
        client.go_on.set()
        assert await tasks[0]
        await (seen._send_heartbeat() if then == "heartbeat" else seen.aclose())
        async with AsyncTimeBloom.from_url(url, name) as other:
            assert all(await other.contains_many(items))
            assert [Claim.SEEN] * 100 == await other.claim_many(items)
        await seen.aclose()
