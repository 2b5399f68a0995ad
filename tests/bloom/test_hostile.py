"""Items, iterables, names and stored values from anywhere: a right answer, or an error that says why. And a filter with a secret:
nobody who does not know it can aim at an item, and nobody learns it.
"""

from __future__ import annotations

import asyncio
import pickle
from functools import partial
from itertools import product
from typing import Any

import pytest
import redis
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tbloom import AsyncTimeBloom, ConfigError, ConfigMismatch, TimeBloom
from tbloom.bloom.hasher import Secret
from tbloom.engine.keys import Keys
from tests.helpers.contents import snapshot


def _all_keys(name: str, shards: int) -> set[str]:
    keys = Keys(name, shards)
    made = {keys.root}
    for shard in range(shards):
        made |= {keys.config(shard), keys.layout(shard), keys.lane("0123456789abcdef:0", shard)}
        made |= {keys.slice("20190508", shard, part) for part in (0, 1)}
    return made


@given(st.text("ab:.01", min_size=1, max_size=6), st.text("ab:.01", min_size=1, max_size=6))
@example("a", "a:config")
@example("a", "a:layout")
@example("a", "a:lane:0123456789abcdef:0")
@example("a", "a:20190508:1")
@example("a", "a:0")
def test_two_names_share_no_key(one: str, other: str) -> None:
    """Whatever their shards: also if one has the name of a shard of the other."""
    assume(one != other)
    for shards, others in product((1, 2, 9), repeat=2):
        assert not _all_keys(one, shards) & _all_keys(other, others)


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


SECRET, OTHER = b"a secret of 32 bytes, for tests.", b"another one, of 32 bytes, again."
CHOSEN = b"https://news.example/election"
#: Another item with the same mmh3 digest: that hash has no key, and each of its steps can be undone.
AIMED = b"http://a.example\xb9\xb9\x8dY\x94?\xa9\xc0\xe9G\xc7kj\xe6)\xda"
CHECKS = [Secret(secret).check for secret in (SECRET, OTHER)]


def shows_a_secret(text: str) -> bool:
    """True if the text has a secret or its check value."""
    secrets = [secret.decode() for secret in (SECRET, OTHER)]
    return any(word in text for word in [*secrets, *CHECKS])


async def test_a_chosen_item_is_new_with_a_secret(make: Any, name: str) -> None:
    without = make(name=f"{name}-without")
    assert [True, False] == await without.add_many(
        [AIMED, CHOSEN]
    )  # nobody has added the second one
    seen = make(secret=SECRET)
    assert await seen.add(AIMED)
    assert not await seen.contains(CHOSEN)
    assert await seen.add_many([CHOSEN, AIMED]) == [True, False]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("secrets", [(SECRET, OTHER), (SECRET, None), (None, SECRET)])
async def test_another_secret_is_refused_and_changes_nothing(
    make: Any, client: redis.Redis, name: str, *, secrets: Any, shards: int
) -> None:
    stored, given = secrets
    await make(secret=stored, shards=shards).add("a")
    other, before = make(secret=given, shards=shards), snapshot(client, name)
    there, here = stored and "another one", given and "this one"
    for refused in partial(other.add, "b"), partial(other.claim, "b"), other.info:
        with pytest.raises(
            ConfigMismatch, match=f"secret is {there!r} there and {here!r} here"
        ) as e:
            await refused()
        assert e.value.differences == {"secret": (there, here)}
        assert not shows_a_secret(f"{e.value!r} {e.value.args}")
    assert snapshot(client, name) == before


def test_a_secret_is_never_shown(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        seen.add("a")
        for shown in (seen, seen.config, seen.config.secret, seen.info(), vars(seen)):
            assert not shows_a_secret(f"{shown} {shown!r}")
        pickled = pickle.dumps(seen.config)
        assert SECRET not in pickled
        copy = pickle.loads(pickled)  # noqa: S301 - our own
    assert copy == seen.config
    with pytest.raises(ConfigError, match="secret: expected the secret of the stored filter"):
        copy.digest("a")
