"""A filter that is stored is opened by its name; an argument that is none is named with the right one."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

from tbloom import (
    AsyncExactFilter,
    AsyncTimeBloom,
    ConfigError,
    ConfigMismatch,
    ExactFilter,
    TimeBloom,
)
from tbloom.distinct import DistinctCounter

SECRET = bytes(range(32))


@pytest.mark.parametrize(
    ("sync", "aio", "parameters"),
    [
        (TimeBloom, AsyncTimeBloom, {}),
        (TimeBloom, AsyncTimeBloom, {"granularity": "2h", "slices": 3, "capacity": 500, "grow": False}),
        (TimeBloom, AsyncTimeBloom, {"shards": 3}),
        (ExactFilter, AsyncExactFilter, {"shards": 3}),
    ],
)  # fmt: skip
async def test_a_filter_is_opened_with_its_stored_parameters(
    url: str, name: str, sync: Any, aio: Any, parameters: dict[str, Any]
) -> None:
    with sync.from_url(url, name, **parameters) as seen:
        assert seen.add("a")
        config = seen.config
    with sync.open(url, name) as seen:
        assert config == seen.config
        assert [False, True] == seen.add_many(["a", "b"])
    with redis.Redis.from_url(url) as client:
        assert not sync.open(client, name).add("b")
    async with await aio.open(url, name) as opened:
        assert config == opened.config
        assert [False, True] == await opened.add_many(["b", "c"])


@pytest.mark.parametrize("kind", [TimeBloom, ExactFilter, AsyncTimeBloom, AsyncExactFilter])
async def test_a_filter_that_is_not_there_is_named(url: str, name: str, kind: Any) -> None:
    async def opened() -> None:
        made = kind.open(url, name)
        await made  # else it has raised its error

    with pytest.raises(ConfigError, match=f"a filter that is stored.*{name}"):
        await opened()
    with redis.Redis.from_url(url) as client:
        assert [] == client.keys(f"*{name}*")


def test_a_secret_is_that_of_the_filter(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, secret=SECRET) as seen:
        assert seen.add("a")
    with TimeBloom.open(url, name, secret=SECRET) as seen:
        assert not seen.add("a")
    with pytest.raises(ConfigMismatch, match="secret"):
        TimeBloom.open(url, name, secret=SECRET[::-1])
    with TimeBloom.open(url, name) as seen, pytest.raises(ConfigError, match="secret"):
        seen.add("a")


def test_another_store_is_not_opened(url: str, name: str) -> None:
    with ExactFilter.from_url(url, name) as seen:
        seen.add("a")
    with pytest.raises(ConfigError, match="the parameters of a filter"):
        TimeBloom.open(url, name)
    with TimeBloom.from_url(url, f"{name}-2") as seen:
        seen.add("a")
    with pytest.raises(ConfigMismatch):
        ExactFilter.open(url, f"{name}-2")


@pytest.mark.parametrize(
    ("kind", "given", "right"),
    [
        (TimeBloom, "capcity", "did you mean 'capacity'?"),
        (AsyncTimeBloom, "slice", "did you mean 'slices'?"),
        (TimeBloom, "within", "it takes client, name, granularity, slices"),
        (ExactFilter, "tll", "did you mean 'ttl'?"),
        (TimeBloom, "client_option", "did you mean 'client_options'?"),
        (DistinctCounter, "keep_member", "did you mean 'keep_members'?"),
    ],
)
def test_a_misspelt_argument_is_named_with_the_right_one(
    url: str, name: str, kind: Any, given: str, right: str
) -> None:
    with pytest.raises(TypeError) as raised:
        kind.from_url(url, name, **{given: 3})
    assert f"{kind.__name__} takes no argument {given!r}; {right}" in str(raised.value)


async def test_options_are_those_of_the_client_that_is_made(url: str, name: str) -> None:
    options = {"client_name": name}
    with TimeBloom.from_url(url, name, client_options=options) as seen:
        assert seen.add("a")
        assert name in {client["name"] for client in seen.client.client_list()}  # type: ignore[union-attr]
    with ExactFilter.from_url(url, f"{name}-2", client_options=options) as exact:
        assert exact.add("a")
    for kind, stored in (AsyncTimeBloom, name), (AsyncExactFilter, f"{name}-2"):
        async with await kind.open(url, stored, client_options=options) as opened:
            assert not await opened.add("a")
            assert name in {client["name"] for client in await opened.client.client_list()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"socket_tiemout": 5, "password": "open sesame"}, "socket_tiemout"),
        ("socket_timeout=5", "a dict"),
        ({5: "socket_timeout"}, "a dict"),
        ({"port": "open sesame"}, "with the client_options port"),
        ({"retry": None}, "see retry_for"),
    ],
)
def test_options_that_no_client_takes_are_named(name: str, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        TimeBloom.from_url("redis://", name, client_options=options)
    assert "client_options" in str(raised.value)
    assert "sesame" not in str(raised.value)


def test_a_client_keeps_its_own_options(client: redis.Redis, name: str) -> None:
    with pytest.raises(ConfigError, match="client_options"):
        TimeBloom.open(client, name, client_options={"socket_timeout": 5})
