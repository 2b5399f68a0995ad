"""What a request has in its context variables, such as a tracer's span, is its own."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from itertools import count
from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import Claim, TimeBloom
from tests.helpers.stores import BLOOM, STORES, Store


class Request:
    """What a framework keeps in a context variable."""


REQUEST = ContextVar[Request]("REQUEST")


def in_request(work: Callable[[], Any]) -> tuple[Any, weakref.ref[Request]]:
    """Do the work of a request, in a context of its own, and return its result; the request."""
    request, context = Request(), Context()
    context.run(REQUEST.set, request)
    return context.run(work), weakref.ref(request)


def in_task(
    work: Callable[[], Coroutine[Any, Any, Any]],
) -> tuple[asyncio.Task[Any], weakref.ref[Request]]:
    """The same, in a task."""
    task, request = in_request(lambda: asyncio.create_task(work()))
    return task, request


@pytest.mark.parametrize("store", STORES, ids=str)
async def test_a_request_is_freed_after_its_calls(store: Store, url: str, name: str) -> None:
    """The store lives on, with its connections, its heartbeat, and calls that other tasks share all the time.

    Reported as ogx#5168.
    """
    seen, numbers, is_over = store.open(url, name, driver="async"), count(), asyncio.Event()

    async def work() -> None:
        assert await seen.add(f"item {next(numbers)}")
        if store is BLOOM:
            assert Claim.NEW is await seen.claim(f"item {next(numbers)}")

    async def load() -> None:
        while not is_over.is_set():
            await seen.add("a")

    begun = [in_task(work) for _ in range(30)]  # the first ones open the connections
    others = [asyncio.create_task(load()) for _ in range(10)]
    begun += [in_task(work) for _ in range(30)]
    requests = [request for _, request in begun]
    await asyncio.gather(*(task for task, _ in begun))
    del begun
    async with asyncio.timeout(20):  # a timer of the loop may know them for some seconds
        while any(request() for request in requests):
            await asyncio.sleep(0.01)
            gc.collect()
    is_over.set()
    await asyncio.gather(*others)
    await seen.aclose()


def test_a_heartbeat_of_a_thread_belongs_to_no_request(url: str, name: str) -> None:
    """Otherwise a tracer would take it for a part of the request that happened to claim first."""
    found = list[Request | None]()
    beaten = threading.Event()

    class Recording(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            if threading.current_thread() is seen._heartbeat:
                found.append(REQUEST.get(None))
                beaten.set()
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    with Recording.from_url(url) as client:
        seen = TimeBloom(client, name, capacity=1000)
        answer, request = in_request(lambda: seen.claim("a"))
        assert Claim.NEW is answer
        beaten.wait()
        assert (None, None) == (found[0], request())
        seen.close()
