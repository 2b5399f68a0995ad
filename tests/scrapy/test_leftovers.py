"""A process that makes crawl after crawl keeps nothing of those that have ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.crawl import start
from tests.helpers.schedulers import ADDON, SCRAPY, UNREACHABLE


@pytest.mark.parametrize(
    "settings",
    [SCRAPY, ADDON, {**ADDON, "TBLOOM_MARK": "done"}],
    ids=["no add-on", "scheduled", "done"],
)
@pytest.mark.parametrize("reason", ["finished", "tbloom_error"])
def test_nothing_is_left_of_a_crawl(
    site: str, url: str, name: str, *, settings: dict[str, Any], reason: str
) -> None:
    server = url if reason == "finished" else UNREACHABLE
    own = {"REDIS_URL": server, "TBLOOM_KEY": name, "TBLOOM_RETRY_FOR": 0.1}
    crawl = start("pages", site, {**settings, **own}, pages=[["a", {}]], leftovers=True)
    ended = crawl.result()
    assert (reason, ["MainThread"]) == (ended["finish_reason"], ended["left"])
