"""Items of odd types, and iterables of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tbloom import (
    AsyncTimeBloom,
    ConfigError,
    ConfigMismatch,
    DistinctCounter,
    ExactFilter,
    LocalBloom,
    TBloomError,
    TimeBloom,
)


class Once:
    """An iterable that can be read once, and is no iterator."""

    def __init__(self, items: list[Any]) -> None:
        self._left = iter(items)

    def __iter__(self) -> Iterator[Any]:
        yield from self._left


@pytest.mark.parametrize("items", [["a", "b"], [b"a", b"b"], ["a", b"b"], [1, "b"], [2**70, b"c"]])
@pytest.mark.parametrize("kind", [TimeBloom, ExactFilter, LocalBloom, DistinctCounter])
def test_what_can_be_read_once_is_read_once(url: str, name: str, kind: Any, items: Any) -> None:
    """Items of more than one type were lost."""
    if kind is LocalBloom:
        opened = LocalBloom(capacity=1000)
    else:
        opened = kind.from_url(url, name, *(["ids"] if kind is DistinctCounter else []))
    with opened as seen:
        assert [True, True] == [*seen.add_many(Once(items))]
        assert [False, False] == [*seen.add_many(iter(items))]


def test_the_error_of_a_lone_surrogate_says_why(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name) as seen:
        with pytest.raises(ConfigError, match="surrogates not allowed at 1"):
            seen.add("a\ud800")
        with pytest.raises(ConfigError, match=r"items\[1\].*surrogates not allowed at 0"):
            seen.add_many(["a", "\ud800"])


def test_a_str_counts_by_its_text(url: str, name: str) -> None:
    """Whatever a subclass encodes itself as."""

    class Link(str):
        __slots__ = ()

        def encode(self, *_: Any, **__: Any) -> bytes:
            return b"another one"

    with TimeBloom.from_url(url, name) as seen:
        assert [True, False] == [seen.add(Link("a")), seen.add("a")]
        assert [False] == seen.add_many([Link("a")])


def test_an_object_is_closed_in_its_own_event_loop(url: str, name: str) -> None:
    seen = AsyncTimeBloom.from_url(url, name)
    assert asyncio.run(seen.add("a"))
    with pytest.raises(TBloomError, match="belongs to the event loop that used it first"):
        asyncio.run(seen.aclose())


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python before 3.12")
def test_eager_tasks_get_their_answers(url: str, name: str) -> None:
    """A batch's task may run before ``create_task`` returns."""

    async def main() -> list[bool]:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with AsyncTimeBloom.from_url(url, name) as seen:
            await seen.add("before")
            with pytest.raises(ConfigMismatch):
                await AsyncTimeBloom(seen.client, name, capacity=5).add("other")
            return await asyncio.gather(*[seen.add(f"{i // 2}") for i in range(200)])

    answers = asyncio.run(asyncio.wait_for(main(), 60))
    assert 100 == sum(answers)
