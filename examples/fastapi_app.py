"""A FastAPI application that remembers URLs: ``uvicorn fastapi_app:app``.

The filter is made when the application starts, in its event loop, and closed when it ends. A filter at the top of a module
would belong to the event loop that uses it first: the second ``TestClient`` of a test has another one. In Starlette,
``Starlette(lifespan=lifespan)`` does the same.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, Request

from tbloom import AsyncTimeBloom


class State(TypedDict):
    seen: AsyncTimeBloom


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[State]:
    server = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    async with AsyncTimeBloom.from_url(server, "links", slices=7) as seen:
        yield {"seen": seen}


app = FastAPI(lifespan=lifespan)


@app.post("/links")
async def add(url: str, request: Request) -> bool:
    """Return True if the URL is new."""
    is_new: bool = await request.state.seen.add(url)
    return is_new
