"""Users whose rights do not suffice: each command's error says where all rights are listed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, Note, TimeBloom
from tbloom.bloom.claims.fleet import failed_queue_of
from tbloom.demo.localredis import open_redis
from tbloom.distinct import DistinctCounter
from tests.cli.test_metrics import Exporter
from tests.cli.test_prefix import LINES
from tests.helpers.commands import refused, tbloom

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


def test_the_demo_runs_on_a_server_that_refuses_info(
    own: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", _url(own, "all"))
    with open_redis() as (_, what):
        assert what.startswith("Redis ? at ")


def test_the_exporter_logs_the_page_with_all_rights(own: redis.Redis) -> None:
    with Exporter("--url", _url(own, "get"), "news") as exporter:
        assert 0 == exporter.scrape()[("tbloom_filter_up", "news")]
        code, [line] = exporter.end()
    assert (0, 1) == (code, line.count(HINT))


def test_clearing_a_mapping_that_can_t_be_read_names_the_page(own: redis.Redis) -> None:
    """Not that there is none."""
    own.flushall()
    DistinctCounter(own, "urls").add("a")
    for user in ("get", "keys", "all"):
        error = refused(tbloom("count", "clear", "--all", "--yes", "--url", _url(own, user)))
        assert HINT in error


@pytest.mark.parametrize("source", ["--from-seen", "--from-set"])
def test_an_import_needs_the_documented_rights_only(
    source: str, own: redis.Redis, tmp_path: Path
) -> None:
    """Those of a crawler; for a set, also what the page adds."""
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    line = re.search(r"^ACL SETUSER crawler (.*)$", page, re.MULTILINE)[1]
    rights = line.replace("NAME", "news").replace("PASSWORD", "pw").split()
    if source == "--from-set":
        [extra] = re.findall(r"`tbloom migrate --from-set KEY` needs `(.*?)`", page)
        rights += extra.replace("KEY", "old").split()
    own.flushall()
    own.sadd("old", "0" * 40)
    own.execute_command("ACL", "SETUSER", "importer", "reset", *rights)
    url = f"redis://importer:pw@127.0.0.1:{own.get_connection_kwargs()['port']}/0"
    (tmp_path / "seen").write_text("0" * 40 + "\n")
    place = {"--from-seen": tmp_path / "seen", "--from-set": "old"}[source]
    done = tbloom("migrate", "news", "--create", source, place, "--url", url)
    assert (0, "") == (done.returncode, re.sub("1 item read, 1 new.*", "", done.stderr).strip())


def test_a_fleet_is_seen_and_freed_with_the_documented_rights_only(own: redis.Redis) -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    crawler, reader = (
        re.search(rf"^ACL SETUSER {user} (.*)$", page, re.MULTILINE)[1]
        for user in ("crawler", "reader")
    )
    [extra] = re.findall(r"To see a fleet .*? needs `(.*?)`", page)
    own.flushall()
    with TimeBloom(own, "news") as seen:
        for url in "http://a/1", "http://a/2":
            text = f"{'0' * 40}\n{json.dumps({'url': url})}"
            seen.push(url, Note(text, failed_queue_of("news"), failures=1))
    port = own.get_connection_kwargs()["port"]
    for user, rights, lines in (
        ("reader", f"{reader} {extra}", ["queue news", "failed news", "failed news --json-lines"]),
        (
            "crawler",
            crawler,
            ["queue news", "retry news --match *1 --yes", "drop news --all --yes"],
        ),
    ):
        words = rights.replace("NAME", "news").replace("PASSWORD", "pw").split()
        own.execute_command("ACL", "SETUSER", user, "reset", *words)
        for line in lines:
            done = tbloom(*line.split(), "--url", f"redis://{user}:pw@127.0.0.1:{port}/0")
            assert (0, "") == (done.returncode, done.stderr)
            assert "1" in done.stdout
