"""SECURITY.md's least-privilege user of a mapping's counters: its line is read from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tbloom.distinct import AsyncDistinctCounter, DistinctCounter
from tests.helpers.acl import REFUSED, admin  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("away_from_midnight")
TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
LINE = re.findall(r"^ACL SETUSER .*$", TEXT, re.MULTILINE)[2].split()
COMMANDS = [word[1:] for word in LINE if word.startswith("+")]


def _set_user(admin: redis.Redis, mapping: str, *, without: str = "") -> str:  # noqa: F811
    """Makes the documented user of a mapping, but for one command; returns its URL."""
    admin.flushall()
    admin.script_flush()
    words = [word.replace("MAPPING", mapping).replace("PASSWORD", "pw") for word in LINE]
    words = [word for word in words if word != f"+{without}"]
    admin.execute_command(*words[:3], "reset", *words[3:])
    port = admin.connection_pool.connection_kwargs["port"]
    return f"redis://{words[2]}:pw@127.0.0.1:{port}/0"


def _every_verb(url: str, mapping: str) -> None:
    """With bitmaps, and sorted ids."""
    many, few = [*map(str, range(4500))], [*map(str, range(4400, 4600))]
    with (
        DistinctCounter.from_url(url, "many", mapping) as one,
        DistinctCounter.from_url(url, "few", mapping) as other,
        DistinctCounter.from_url(url, "days", mapping, granularity="d", slices=2) as days,
    ):
        assert [True, False] == [one.add("0"), one.add("0")]
        assert all(one.add_many(many[1:]))
        assert one.add("a")
        assert all(other.add_many(few))
        assert all(days.add_many(many))
        assert (4501, 200, 4500) == (one.count(), other.count(), days.count(within=1))
        assert (4500, 100) == (one.count_and(days), one.count_and(other))
        assert (4601, 1) == (one.count_or(other, days), one.count_xor(days))
        assert 4501 == days.within(2).count_or(one)
        assert (4501, 4601) == (one.info().count, one.info().members)
        assert [] == one.warnings()
        other.clear()
        assert 0 == other.count()
        one.clear(mapping=True)
        assert 0 == days.count()


def test_the_documented_user_can_do_everything(admin: redis.Redis, name: str) -> None:  # noqa: F811
    _every_verb(_set_user(admin, name), name)
    assert [] == [key for key in admin.scan_iter() if b":lane:" not in key]


async def test_the_documented_user_can_use_the_async_class(admin: redis.Redis, name: str) -> None:  # noqa: F811
    async with AsyncDistinctCounter.from_url(_set_user(admin, name), "one", name) as counter:
        assert [True, False] == [await counter.add("a"), await counter.add("a")]


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
            DistinctCounter.from_url(url, "one", name).add("a")
        assert explained == ("holds a list" in str(caught.value))


def test_the_documented_user_has_no_other_mapping(admin: redis.Redis, name: str) -> None:  # noqa: F811
    url = _set_user(admin, name)
    for other in (f"{name}2", f"x{name}", f"{name}:1"):
        with pytest.raises(redis.ResponseError, match=REFUSED):
            DistinctCounter.from_url(url, "one", other).add("a")
