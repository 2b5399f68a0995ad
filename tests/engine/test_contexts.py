"""What a request has in its context variables, such as a tracer's span, is its own."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

import redis
import redis.asyncio

from tbloom import AsyncTimeBloom, Claim, TimeBloom


class Request:
    """What a framework keeps in a context variable."""


REQUEST = ContextVar[Request]("REQUEST")


def in_request(work: Callable[[], Any]) -> tuple[Any, weakref.ref[Request]]:
    """Do the work of a request, in a context of its own, and return its result; the request."""
    request, context = Request(), Context()
    context.run(REQUEST.set, request)
    return context.run(work), weakref.ref(request)


async def test_a_call_that_tasks_share_belongs_to_no_request(url: str, name: str) -> None:
    """Nor is a request kept by those that come after it (ogx#5168)."""
    found = list[Request | None]()

    class Recording(redis.asyncio.Redis):
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            if asyncio.current_task() not in tasks:
                found.append(REQUEST.get(None))
            return await super().execute_command(*args, **options)

    async with Recording.from_url(url) as client:
        seen = AsyncTimeBloom(client, name, capacity=1000)
        adds = (lambda i=i: asyncio.create_task(seen.add(f"item {i}")) for i in range(30))
        tasks = [in_request(add)[0] for add in adds]
        assert [True] * 30 == await asyncio.gather(*tasks)
        assert {None} == {*found}
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
