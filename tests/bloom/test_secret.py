"""A filter with a secret: nobody who does not know it can aim at an item, and nobody learns it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import Claim, ConfigError, ConfigMismatch, LocalBloom, TimeBloom
from tbloom.bloom.config import configure, from_stored
from tbloom.bloom.hasher import Secret, digest

SECRET, OTHER = b"a secret of 32 bytes, for tests.", b"another one, of 32 bytes, again."
CHOSEN = b"https://news.example/election"
#: Another item with the same mmh3 digest: that hash has no key, and each of its steps can be undone.
AIMED = b"http://a.example\xb9\xb9\x8dY\x94?\xa9\xc0\xe9G\xc7kj\xe6)\xda"
CHECKS = [Secret(secret).check for secret in (SECRET, OTHER)]


def shows_a_secret(text: str) -> bool:
    """True if the text has a secret or its check value."""
    secrets = [secret.decode() for secret in (SECRET, OTHER)]
    return any(word in text for word in [*secrets, *CHECKS])


def contents(client: redis.Redis, name: str) -> dict[str, Any]:
    """All keys of a filter."""
    return {key: client.dump(key) for key in client.scan_iter(f"{{{name}}}*")}


def test_anybody_can_make_an_item_with_the_digest_of_a_chosen_one() -> None:
    assert digest(AIMED) == digest(CHOSEN)


def test_stored_parameters_that_can_t_be_read_are_shown_without_the_check_value() -> None:
    stored = configure("f", secret=SECRET).stored
    for odd in (
        stored.replace('"layout":2', '"layout":3'),
        stored.replace("UTC", "Mars"),
        stored + " ",
    ):
        with pytest.raises(ConfigError, match="can read in") as caught:
            from_stored("f", odd)
        assert CHECKS[0] in odd
        assert not shows_a_secret(f"{caught.value} {caught.value!r}")


async def test_a_chosen_item_is_called_seen_without_a_secret(make: Any) -> None:
    seen = make()
    assert await seen.add(AIMED)
    assert not await seen.add(CHOSEN)  # nobody has added it


async def test_a_chosen_item_is_new_with_a_secret(make: Any) -> None:
    seen = make(secret=SECRET)
    assert await seen.add(AIMED)
    assert not await seen.contains(CHOSEN)
    assert await seen.add_many([CHOSEN, AIMED]) == [True, False]


async def test_clients_with_the_same_secret_share_the_filter(make: Any) -> None:
    one, other = make(secret=SECRET), make(secret=SECRET)
    assert await one.add("a")
    assert await one.claim("b") is Claim.NEW
    assert await other.claim_many(["a", "b"]) == [Claim.SEEN, Claim.BUSY]
    await one.commit("b")
    assert await other.contains_many(["a", "b", "c"]) == [True, True, False]
    assert (await other.last_seen("b")) is not None
    assert await one.import_many(["b", "c"]) == 1
    assert await other.add_many(["c", "d"]) == [False, True]


VERBS = {"add": "b", "add_many": ["b", "c"], "contains": "a", "claim": "b", "commit": "b"}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("secrets", [(SECRET, OTHER), (SECRET, None), (None, SECRET)])
async def test_another_secret_is_refused_and_changes_nothing(
    make: Any, own: redis.Redis, own_url: str, name: str, *, secrets: Any, shards: int
) -> None:
    stored, given = secrets
    parameters = {"url": own_url, "shards": shards}
    await make(secret=stored, **parameters).add("a")
    before = contents(own, name)
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
    assert contents(own, name) == before


@pytest.mark.parametrize(
    ("secret", "given"),
    [(b"", "0 bytes"), (b"15 bytes, short", "15 bytes"), (65 * b"x", "65 bytes"), ("text", "str")],
)
def test_what_can_be_no_secret(client: redis.Redis, name: str, secret: Any, given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TimeBloom(client, name, secret=secret)
    assert str(caught.value).startswith("secret: expected 16 to 64 bytes, got ")
    assert given in str(caught.value)


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


def test_reconfigure_and_clear_keep_to_the_secret(url: str, name: str, client: redis.Redis) -> None:
    def opened(**arguments: Any) -> TimeBloom:
        return TimeBloom.from_url(url, name, **{"capacity": 1000, **arguments})

    with opened(secret=SECRET) as old, opened(secret=SECRET, capacity=5000) as new:
        old.add_many(map(str, range(500)))
        new.reconfigure()
        assert new.contains("7")
        assert f'"secret":"{CHECKS[0]}"' in str(client.get(new.config.keys.root))
    with opened() as without:
        without.clear()
        assert without.add("7")


def test_a_filter_with_another_secret_can_t_take_the_place(url: str, name: str) -> None:
    def opened(suffix: str, secret: bytes) -> TimeBloom:
        full = f"{{{name}}}{suffix}" if suffix else name
        return TimeBloom.from_url(url, full, capacity=1000, secret=secret)

    with (
        opened("", SECRET) as seen,
        opened(":new", SECRET) as same,
        opened(":x", OTHER) as another,
    ):
        same.add("a")
        another.add("b")
        with pytest.raises(ConfigMismatch, match="secret is 'another one' there"):
            seen.swap(another.name)
        seen.swap(same.name)
        assert seen.contains_many(["a", "b"]) == [True, False]


def test_a_filter_in_a_file_has_a_secret_too(tmp_path: Path) -> None:
    path = tmp_path / "filter"
    with LocalBloom(path=path, capacity=1000, secret=SECRET) as seen:
        assert seen.add(AIMED)
        assert seen.add_many([CHOSEN, CHOSEN]) == [True, False]
        assert not shows_a_secret(repr(seen))
        with pytest.raises(TypeError, match="with a secret can't be pickled"):
            pickle.dumps(seen)
        for other in (OTHER, None):
            with pytest.raises(ConfigMismatch, match="secret is ") as caught:
                LocalBloom(path=path, capacity=1000, secret=other).add("a")
            assert not shows_a_secret(f"{caught.value} {caught.value!r}")
    with LocalBloom(path=path, capacity=1000, secret=SECRET) as again:
        assert not again.add(CHOSEN)


def test_filters_of_one_secret_are_merged(tmp_path: Path) -> None:
    with (
        LocalBloom(capacity=1000, secret=SECRET) as one,
        LocalBloom(path=tmp_path / "same", capacity=1000, secret=SECRET) as same,
        LocalBloom(capacity=1000, secret=OTHER) as another,
    ):
        same.add("a")
        one.merge(tmp_path / "same")
        assert one.contains("a")
        with pytest.raises(ConfigMismatch, match="secret is 'another one'"):
            one.merge(another)
