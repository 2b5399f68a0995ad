"""SECURITY.md's least-privilege user of an exact filter: its line is read from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tbloom.exact import AsyncExactFilter, ExactFilter
from tests.helpers.acl import REFUSED, admin  # noqa: F401 - a fixture

TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
LINE = re.findall(r"^ACL SETUSER .*$", TEXT, re.MULTILINE)[1].split()
COMMANDS = [word[1:] for word in LINE if word.startswith("+")]


def _set_user(admin: redis.Redis, name: str, *, without: str = "", shards: int = 1) -> str:  # noqa: F811
    """Makes the documented user of a filter, but for one command; returns its URL."""
    admin.flushall()
    admin.script_flush()
    words = [word.replace("NAME", name).replace("PASSWORD", "pw") for word in LINE]
    if shards == 1:
        words.remove(f"~{{{name}:*")
    words = [word for word in words if word != f"+{without}"]
    admin.execute_command(*words[:3], "reset", *words[3:])
    port = admin.connection_pool.connection_kwargs["port"]
    return f"redis://{words[2]}:pw@127.0.0.1:{port}/0"


def _every_verb(url: str, name: str, shards: int = 1) -> None:
    items = [*map(str, range(1000))]
    with ExactFilter.from_url(url, name, shards=shards) as seen:
        assert [True, False] == [seen.add("a"), seen.add("a")]
        assert all(seen.add_many(items))
        assert not any(seen.add_many(items))
        assert [True, False] == ["a" in seen, "b" in seen]
        assert all(seen.contains_many(items))
        assert 1001 == seen.info().items
        assert [] == seen.warnings()
        seen.clear()
        assert "a" not in seen


@pytest.mark.parametrize("shards", [1, 3])
def test_the_documented_user_can_do_everything(
    admin: redis.Redis,  # noqa: F811
    name: str,
    shards: int,
) -> None:
    _every_verb(_set_user(admin, name, shards=shards), name, shards)


async def test_the_documented_user_can_use_the_async_class(admin: redis.Redis, name: str) -> None:  # noqa: F811
    async with AsyncExactFilter.from_url(_set_user(admin, name), name) as seen:
        assert [True, False] == [await seen.add("a"), await seen.add("a")]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "type"])
def test_no_documented_command_can_be_left_out(
    admin: redis.Redis,  # noqa: F811
    name: str,
    command: str,
) -> None:
    with pytest.raises(redis.ResponseError, match=REFUSED):
        _every_verb(_set_user(admin, name, without=command), name)


def test_type_is_needed_to_say_whose_a_key_is(admin: redis.Redis, name: str) -> None:  # noqa: F811
    for without, explained in (("", True), ("type", False)):
        url = _set_user(admin, name, without=without)
        admin.rpush(f"{{{name}}}:layout", "theirs")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE") as caught:
            ExactFilter.from_url(url, name).add("a")
        assert explained == ("holds a list" in str(caught.value))


def test_the_documented_user_has_no_other_filter(admin: redis.Redis, name: str) -> None:  # noqa: F811
    url = _set_user(admin, name)
    for other in (f"{name}2", f"x{name}", f"{name}:1"):
        with pytest.raises(redis.ResponseError, match=REFUSED):
            ExactFilter.from_url(url, other).add("a")
