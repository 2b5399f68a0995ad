"""Users whose rights do not suffice: each command's error says where all rights are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tests.cli.test_metrics import Exporter
from tests.cli.test_prefix import LINES
from tests.helpers.commands import tbloom

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


def test_the_exporter_logs_the_page_with_all_rights(own: redis.Redis) -> None:
    with Exporter("--url", _url(own, "get"), "news") as exporter:
        assert 0 == exporter.scrape()[("tbloom_filter_up", "news")]
        code, [line] = exporter.end()
    assert (0, 1) == (code, line.count(HINT))
