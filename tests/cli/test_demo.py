"""``tbloom demo``: its figures are those that the product promises."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.helpers.commands import process, tbloom
from tests.helpers.making import missing

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
[_EXAMPLE] = re.findall("Example: tbloom demo (.*)", tbloom("demo", "--help").stdout)


@pytest.mark.check
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("words", "pages", "crawlers"),
    [
        (_EXAMPLE.split(), 300, 2),
        # 4 of the 530 are linked from nowhere.
        (["--site", DOCUMENTATION, "--crawlers", "4", "--period", "30"], 526, 4),
    ],
    ids=["the example of its help", "the Python documentation"],
)
def test_the_demo_keeps_its_promises(
    url: str, client: redis.Redis, words: list[Any], pages: int, crawlers: int
) -> None:
    """Crawlers in processes of their own, on one filter; a second crawl within the window; a third one after it."""
    if DOCUMENTATION in words and not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    done = process("demo", "--json", *words, "--redis", url)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    print(figures)
    assert pages == figures["pages_on_site"] == sum(figures["fetched_by_crawler"]) + 1
    assert crawlers == len(figures["fetched_by_crawler"])
    assert (0, 0) == (figures["fetched_twice"], figures["missed"])
    assert (True, 1) == (figures["second_run_in_time"], figures["fetched_again_inside_window"])
    assert 1 == figures["failed"]
    assert pages == figures["fetched_after_window"]
    assert figures["filter_bytes"] < figures["set_bytes"]
    assert client.keys("*tbloom-demo*") == []
