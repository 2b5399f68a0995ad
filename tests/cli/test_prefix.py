"""``--prefix``: every command finds, and changes, only what has this prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tests.helpers.commands import WORDS, command_of, refused, tbloom

PREFIX = "app1:"
#: All commands that have a server but ``metrics``, and ``push``, which needs a project, in an order in which each finds something; {file} has lines at first.
LINES = [
    "add news {file} --create --shards 3",
    "check news {file} --seen",
    "migrate news --from-seen {file}",
    "list",
    "info news",
    "info exact",
    *("queue news", "failed news", "retry news --all --yes", "drop news --all --yes"),
    "watch news --once {file}",
    "export news {file}",
    "import {file} --name more",
    "import {file} --replace --slices 9",
    "clear exact --yes",
    "clear more --yes",
    "count list",
    "count show urls",
    "count clear urls --yes",
    "count clear --all --yes",
]


@pytest.fixture
def ours(own: redis.Redis, own_url: str) -> dict[str, str]:
    """The environment of a user who may use only keys with the prefix."""
    own.execute_command("ACL", "SETUSER", "app1", "reset", "on", ">pw", f"~{PREFIX}*", "+@all")
    return {"TBLOOM_URL": own_url.replace("//", "//app1:pw@"), "TBLOOM_KEY_PREFIX": PREFIX}


def test_every_command_needs_keys_with_the_prefix_only(
    ours: dict[str, str], own: redis.Redis, tmp_path: Path
) -> None:
    """rq#1855"""
    ExactFilter(own, "exact", prefix=PREFIX).add("a")
    DistinctCounter(own, "urls", prefix=PREFIX).add("a")
    (tmp_path / "file").write_text("aa\nbb\ncc\n")
    for line in LINES:
        done = tbloom(*line.format(file=tmp_path / "file", url=ours["TBLOOM_URL"]).split(), **ours)
        assert done.returncode == 0, (line, done.stderr)
    tried = {tuple(line.split()[: 1 + line.startswith("count")]) for line in LINES}
    with_url = {
        words for words in WORDS if any("--url" in param.opts for param in command_of(words).params)
    }
    assert with_url == tried | {("metrics",), ("push",)}


def test_stores_are_found_by_their_prefix(own: redis.Redis, own_url: str) -> None:
    """An empty list says which prefix it has looked for."""
    for prefix, filter in (
        ("", "plain"),
        (PREFIX, "ours"),
        ("app*:", "theirs"),
        (f"{PREFIX}2:", "x"),
    ):
        TimeBloom(own, filter, prefix=prefix, shards=3).add("a")
        DistinctCounter(own, filter, prefix=prefix).add("a")
        for command in ("list", "count list"):
            options = ["--prefix", prefix] if prefix else []
            listed = tbloom(*command.split(), *options, TBLOOM_URL=own_url).stdout.splitlines()
            assert [2, True] == [len(listed), filter in listed[1]]
    place = f"on {own_url} with the prefix 'app2:'"
    none = {"TBLOOM_URL": own_url, "TBLOOM_KEY_PREFIX": "app2:"}
    assert f"no filters {place}\n" == tbloom("list", **none).stderr
    assert f"no counters {place}\n" == tbloom("count", "list", **none).stderr
    for command in ("info", "clear"):
        refused(tbloom(command, "ours", **none), f"no filter 'ours' {place}")


def test_a_wrong_prefix_is_named(url: str) -> None:
    refused(tbloom("list", "--url", url, "--prefix", "{a}"), "tbloom: --prefix: expected a str of")
    refused(tbloom("list", "--url", url, TBLOOM_KEY_PREFIX="a b"), "TBLOOM_KEY_PREFIX: expected")
