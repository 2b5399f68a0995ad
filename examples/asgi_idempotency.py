"""An ASGI middleware: a request with an Idempotency-Key that was handled before is not handled again.

    app = Idempotent(app, AsyncTimeBloom.from_url(url, "handled", slices=4, error_rate=1e-9))

A key counts for its method and path. It is committed before the answer leaves, so whoever has got an answer is not handled
twice; an answer from 500 on, or an exception, frees it, and so does the death of the process, after ``session_ttl`` seconds.
The error rate is the chance that a new key is taken for an old one.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from tbloom import AsyncTimeBloom, Claim

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


class Idempotent:
    def __init__(self, app: Any, handled: AsyncTimeBloom) -> None:
        self.app, self.handled = app, handled

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        key = dict(scope.get("headers", ())).get(b"idempotency-key")
        if scope["type"] != "http" or not key:
            await self.app(scope, receive, send)
            return
        item = b" ".join([scope["method"].encode(), scope["path"].encode(), key])
        claim = await self.handled.claim(item)
        if claim is Claim.NEW:
            await self.handle(item, scope, receive, send)
            return
        # A key that is being handled may still fail: its client asks again.
        status = HTTPStatus.ALREADY_REPORTED if claim is Claim.SEEN else HTTPStatus.CONFLICT
        await send({"type": "http.response.start", "status": status.value})
        await send({"type": "http.response.body"})

    async def handle(self, item: bytes, scope: Message, receive: Any, send: Send) -> None:
        is_done = False

        async def answer(message: Message) -> None:
            nonlocal is_done
            status = message.get("status", HTTPStatus.INTERNAL_SERVER_ERROR)
            if not is_done and status < HTTPStatus.INTERNAL_SERVER_ERROR:
                await self.handled.commit(item)
                is_done = True
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            if not is_done:
                await self.handled.release(item)
