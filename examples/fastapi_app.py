"""A FastAPI application that remembers URLs: ``uvicorn fastapi_app:app``.

The filter is made when the application starts, in its event loop, and closed when it ends. A filter at the top of a module
would belong to the event loop that uses it first: the second ``TestClient`` of a test has another one. In Starlette,
``Starlette(lifespan=lifespan)`` does the same. While Redis is away, the answer is 503, and the client asks again.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from redis import ConnectionError as RedisConnectionError
from redis import TimeoutError as RedisTimeoutError

from tbloom import AsyncTimeBloom


class State(TypedDict):
    seen: AsyncTimeBloom


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[State]:
    server = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    async with AsyncTimeBloom.from_url(server, "links", slices=7, retry_for=1) as seen:
        yield {"seen": seen}


app = FastAPI(lifespan=lifespan)


@app.exception_handler(RedisConnectionError)
@app.exception_handler(RedisTimeoutError)
async def wait(_: Request, __: Exception) -> JSONResponse:
    """Say that the client may ask again."""
    return JSONResponse({"detail": "Redis is away"}, 503, {"Retry-After": "5"})


@app.post("/links")
async def add(url: str, request: Request) -> bool:
    """Return True if the URL is new."""
    is_new: bool = await request.state.seen.add(url)
    return is_new
