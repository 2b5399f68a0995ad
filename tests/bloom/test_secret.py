"""A filter with a secret: nobody who does not know it can aim at an item, and nobody learns it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import redis

from tbloom import ConfigError, ConfigMismatch, TimeBloom
from tbloom.bloom.hasher import Secret
from tests.helpers.contents import snapshot

SECRET, OTHER = b"a secret of 32 bytes, for tests.", b"another one, of 32 bytes, again."
CHOSEN = b"https://news.example/election"
#: Another item with the same mmh3 digest: that hash has no key, and each of its steps can be undone.
AIMED = b"http://a.example\xb9\xb9\x8dY\x94?\xa9\xc0\xe9G\xc7kj\xe6)\xda"
CHECKS = [Secret(secret).check for secret in (SECRET, OTHER)]


def shows_a_secret(text: str) -> bool:
    """True if the text has a secret or its check value."""
    secrets = [secret.decode() for secret in (SECRET, OTHER)]
    return any(word in text for word in [*secrets, *CHECKS])


async def test_a_chosen_item_is_called_seen_without_a_secret(make: Any) -> None:
    seen = make()
    assert await seen.add(AIMED)
    assert not await seen.add(CHOSEN)  # nobody has added it


async def test_a_chosen_item_is_new_with_a_secret(make: Any) -> None:
    seen = make(secret=SECRET)
    assert await seen.add(AIMED)
    assert not await seen.contains(CHOSEN)
    assert await seen.add_many([CHOSEN, AIMED]) == [True, False]


VERBS = {"add": "b", "add_many": ["b", "c"], "contains": "a", "claim": "b", "commit": "b"}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("secrets", [(SECRET, OTHER), (SECRET, None), (None, SECRET)])
async def test_another_secret_is_refused_and_changes_nothing(
    make: Any, own: redis.Redis, own_url: str, name: str, *, secrets: Any, shards: int
) -> None:
    stored, given = secrets
    parameters = {"url": own_url, "shards": shards}
    await make(secret=stored, **parameters).add("a")
    before = snapshot(own, name)
    other = make(secret=given, **parameters)
    there, here = stored and "another one", given and "this one"
    expected = (
        f"{name!r} is stored with other parameters: secret is {there!r} there and {here!r} here; "
        "give the same, or take another name"
    )
    for verb, items in {**VERBS, "info": None, "reconfigure": None}.items():
        with pytest.raises(ConfigMismatch) as caught:
            await getattr(other, verb)(*([items] if items else []))
        error = caught.value
        assert error.differences == {"secret": (there, here)}
        assert str(error) == expected
        assert not shows_a_secret(f"{error!r} {error.args}")
    assert snapshot(own, name) == before


def test_a_secret_is_never_shown(url: str, name: str) -> None:
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        seen.add("a")
        for shown in (seen, seen.config, seen.config.secret, seen.info(), vars(seen)):
            assert not shows_a_secret(f"{shown} {shown!r}")
        pickled = pickle.dumps(seen.config)
        assert SECRET not in pickled
        copy = pickle.loads(pickled)  # noqa: S301 - our own
    assert copy == seen.config
    with pytest.raises(ConfigError, match="secret: expected the one with which"):
        copy.digest("a")
