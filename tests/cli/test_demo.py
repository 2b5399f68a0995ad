"""The demo is a test too: its numbers are what the product promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.helpers.making import missing

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")


def _tbloom(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from tbloom.cli import main; sys.exit(main())"]
    return subprocess.run(
        [*command, *arguments], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def _check(figures: dict[str, Any], pages: int, crawlers: int) -> None:
    print(figures)
    assert pages == figures["pages_on_site"] == sum(figures["fetched_by_crawler"])
    assert crawlers == len(figures["fetched_by_crawler"])
    assert (0, 0) == (figures["fetched_twice"], figures["missed"])
    assert (True, 0) == (figures["second_run_in_time"], figures["fetched_again_inside_window"])
    assert pages == figures["fetched_after_window"]
    assert figures["filter_bytes"] < figures["set_bytes"]


def test_the_demo_keeps_its_promises(url: str, client: redis.Redis) -> None:
    """Two crawlers at once on one filter; again within the window; again after it."""
    done = _tbloom("demo", "--json", REDIS_URL=url)
    assert done.returncode == 0, done.stdout + done.stderr
    _check(json.loads(done.stdout), pages=300, crawlers=2)
    assert client.keys("*tbloom-demo*") == []


@pytest.mark.timeout(300)
def test_four_crawlers_fetch_the_python_documentation_exactly_once(url: str) -> None:
    """Real pages: every one fetched exactly once by four processes together, none missing."""
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    done = _tbloom("demo", "--site", str(DOCUMENTATION), "--crawlers", "4", "--json", REDIS_URL=url)
    assert done.returncode == 0, done.stdout + done.stderr
    _check(json.loads(done.stdout), pages=526, crawlers=4)  # 4 of the 530 are linked from nowhere


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--site", "/no/such/folder"], "/no/such/folder"),
        (["demo", "--redis", "redis://127.0.0.1:1"], "127.0.0.1:1"),
        (["demo", "--period", "0"], "--period"),
        (["demo", "--crawlers", "none"], "--crawlers"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = _tbloom(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
