"""Users whose rights do not suffice: each command's error says where all rights are listed. With ``--prefix``, every command
finds, and changes, only what has this prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, Note, TimeBloom
from tbloom.claims.fleet import failed_queue_of
from tbloom.distinct import DistinctCounter
from tests.helpers.commands import WORDS, refused, tbloom
from tests.helpers.documents import ROOT

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
HINT = (
    "(SECURITY.md lists all rights that tbloom needs; the server's ACL LOG shows the missing one)"
)
#: The rights of users that lack some of them, or all.
USERS = {
    "scan": "~* +@all -scan",
    "get": "~* +@all -get",
    "hashes": "~* +@all -hget -hgetall",
    "keys": "~{other}:* +@all",
    "all": "",
}


def _url(own: redis.Redis, user: str) -> str:
    own.execute_command("ACL", "SETUSER", user, "reset", "on", ">pw", *USERS[user].split())
    return f"redis://{user}:pw@127.0.0.1:{own.get_connection_kwargs()['port']}/0"


@pytest.mark.parametrize("user", USERS)
def test_each_refusal_names_the_page_with_all_rights(
    user: str, own: redis.Redis, tmp_path: Path
) -> None:
    """As Python's errors do (redis_exporter#896)."""
    own.flushall()
    TimeBloom(own, "news", shards=3).add("a")
    ExactFilter(own, "exact").add("a")
    DistinctCounter(own, "urls").add("a")
    own.sadd("old", "0" * 40)
    (tmp_path / "file").write_text("a\nb\nc\n")
    url, refusals = _url(own, user), list[str]()
    for line in (*LINES, "import news --from-set old"):
        done = tbloom(*line.format(file=tmp_path / "file").split(), "--url", url)
        refusals += [one for one in done.stderr.splitlines() if "permissions" in one]
    assert refusals
    assert [] == [one for one in refusals if one.count(HINT) != 1]


def test_clearing_an_unreadable_mapping_names_the_page(own: redis.Redis) -> None:
    """Not that there is none."""
    own.flushall()
    DistinctCounter(own, "urls").add("a")
    for user in ("get", "keys", "all"):
        error = refused(tbloom("count", "clear", "--all", "--yes", "--url", _url(own, user)))
        assert HINT in error


def rights(own: redis.Redis, user: str, more: Iterable[str] = (), page: str = "SECURITY.md") -> str:
    """The URL of a user who has the rights that a page lists for it, and some more."""
    text = (ROOT / page).read_text(encoding="utf-8")
    line = re.search(rf"^ACL SETUSER {user} (.*)$", text, re.MULTILINE)[1]
    words = line.replace("NAME", "news").replace("PASSWORD", "pw").split()
    own.execute_command("ACL", "SETUSER", user, "reset", *words, *more)
    return f"redis://{user}:pw@127.0.0.1:{own.get_connection_kwargs()['port']}/0"


def added(before: str, page: str = "SECURITY.md") -> list[str]:
    """The further rights that a page names in a sentence that begins so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    [more] = re.findall(f"{before} needs `(.*?)`", text)
    return str(more).split()


@pytest.mark.parametrize("source", ["--from-seen", "--from-set"])
def test_an_import_needs_the_documented_rights_only(
    source: str, own: redis.Redis, tmp_path: Path
) -> None:
    """Those of a crawler; for a set, also what the page adds."""
    own.flushall()
    own.sadd("old", "0" * 40)
    for_set = [right.replace("KEY", "old") for right in added("`tbloom migrate --from-set KEY`")]
    url = rights(own, "crawler", for_set * (source == "--from-set"))
    (tmp_path / "seen").write_text("0" * 40 + "\n")
    place = {"--from-seen": tmp_path / "seen", "--from-set": "old"}[source]
    done = tbloom("migrate", "news", "--create", source, place, "--url", url)
    assert (0, "") == (done.returncode, re.sub("1 item read, 1 new.*", "", done.stderr).strip())


def test_a_fleet_needs_the_documented_rights_only(own: redis.Redis) -> None:
    """To be seen, and freed."""
    own.flushall()
    with TimeBloom(own, "news") as seen:
        for url in "http://a/1", "http://a/2":
            text = f"{'0' * 40}\n{json.dumps({'url': url})}"
            seen.push(url, Note(text, failed_queue_of("news"), failures=1))
    frees = ["queue news", "retry news --match *1 --yes", "drop news --all --yes"]
    for url, lines in (
        (
            rights(own, "reader", added("To see a fleet .*?")),
            ["queue news", "failed news", "failed news --json-lines"],
        ),
        (rights(own, "crawler"), frees),
    ):
        for line in lines:
            done = tbloom(*line.split(), "--url", url)
            assert (0, "") == (done.returncode, done.stderr)
            assert "1" in done.stdout


def test_a_spiders_name_suffices_whoever_may_use_its_filter_only(own: redis.Redis) -> None:
    """The user has no right to look for a filter with the spider's name."""
    own.flushall()
    for right in ("~{shop:tbloom}*", "~{other}*"):
        with TimeBloom(own, "shop:tbloom", shards=1) as seen:
            seen.push("a", Note("{}", "shop"))
        url = rights(own, "crawler", ["resetkeys", right])
        for command in (
            "queue shop",
            "failed shop",
            "retry shop --all --yes",
            "watch shop --once -",
        ):
            done = tbloom(*command.split(), "--url", url)
            if right == "~{other}*":
                assert HINT in refused(done)
            else:
                assert (0, "") == (done.returncode, done.stderr)
                assert "shop" in done.stdout


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
    has_url = re.compile("^ +--url ", re.MULTILINE)
    with_url = {words for words in WORDS if has_url.search(tbloom(*words, "--help").stdout)}
    assert with_url == tried | {("doctor",), ("metrics",), ("push",)}


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
