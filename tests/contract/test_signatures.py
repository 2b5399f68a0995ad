"""A store's methods look like functions that were written by hand, to all that read signatures: FastAPI, pydantic, mocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from tbloom import LocalBloom
from tbloom.distinct import AsyncMemberSet, MemberSet
from tbloom.pages import PageStore
from tests.helpers.stores import STORES

FILTERS = [*(cls for store in STORES for cls in (store.sync, store.aio)), LocalBloom]
CLASSES = [*FILTERS, MemberSet, AsyncMemberSet, PageStore]


def methods_of(cls: type) -> dict[str, Callable[..., Any]]:
    """The public methods, and the constructor."""
    members = inspect.getmembers(cls, inspect.isroutine)
    return {name: one for name, one in members if not name.startswith("_") or name == "__init__"}


@pytest.mark.parametrize("cls", CLASSES)
def test_the_types_of_methods_are_known(cls: type) -> None:
    for method in methods_of(cls).values():
        hints = get_type_hints(method)
        parameters = inspect.signature(method, eval_str=True).parameters
        assert hints.keys() - {"return"} == parameters.keys() - {"self"}
        assert "Flow" not in str(hints["return"])


@pytest.mark.parametrize("cls", FILTERS)
async def test_fastapi_takes_verbs_as_dependencies_and_routes(
    cls: Any, url: str, name: str
) -> None:
    """fastapi#14445"""
    from fastapi import Depends, FastAPI  # noqa: PLC0415 - slow, and only needed here
    from httpx import ASGITransport, AsyncClient  # noqa: PLC0415

    seen = cls.from_url(url, name) if hasattr(cls, "from_url") else cls()
    app, [item] = FastAPI(), [*inspect.signature(seen.contains).parameters][:1]

    @app.get("/depends")
    def depends(is_seen: bool = Depends(seen.contains)) -> list[bool]:  # noqa: FAST002 - a local name
        return [is_seen]

    app.add_api_route("/add", seen.add, methods=["POST"])
    app.add_api_route("/clear", seen.clear, methods=["POST"])
    async with AsyncClient(transport=ASGITransport(app), base_url="http://app") as client:
        assert (await client.get(f"/depends?{item}=a")).json() == [False]
        assert item in (await client.get("/depends")).text  # it is missing
        answers = [(await client.post(f"/add?{item}=a")).json() for _ in range(2)]
        assert answers == [True, False]
        assert (await client.get(f"/depends?{item}=a")).json() == [True]
        assert (await client.post("/clear")).json() is None
        assert (await client.get(f"/depends?{item}=a")).json() == [False]
    await seen.aclose() if hasattr(seen, "aclose") else seen.close()
