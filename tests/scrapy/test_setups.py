"""Set-ups of real projects: with the add-on, a crawl fetches what it fetches with Scrapy's own filter, and no more; pages that
succeed are marked, and no item is missing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import setups
from tests.helpers.setupcrawl import MARKS, OWN, complaints, run

IN_ONE_PROCESS = [pair for pair in setups.SETUPS.items() if not pair[1].is_alone]
GROUPS: dict[str, Any] = {
    # For `make test` and `make oldest`: every third of those whose crawls run in one process, and where versions of Scrapy differ.
    "some": {
        **dict(IN_ONE_PROCESS[::3]),
        **{name: setup for name, setup in IN_ONE_PROCESS if "recover" in name},
    },
    "HTTP": setups.HTTP,
    "middlewares": setups.MIDDLEWARES,
    "spiders": setups.SPIDERS,
    "pipelines": setups.PIPELINES,
    "queues and signals": setups.QUEUES,
}


@pytest.mark.parametrize(
    ("group", "mark"),
    [
        ("some", "done"),
        *(
            pytest.param(group, mark, marks=pytest.mark.check)
            for group in GROUPS
            if group != "some"
            for mark in MARKS
        ),
    ],
)
def test_a_crawl_is_as_with_scrapys_own_filter(url: str, group: str, mark: str) -> None:
    """As many requests at most, every page, every item; pages that have failed are left to the next crawl, the others marked;
    and the log has no error that it does not have without tbloom."""
    chosen = {name: setup for name, setup in GROUPS[group].items() if mark in setup.marks}
    own, results = run(chosen, OWN, url), run(chosen, mark, url)
    wrong = {
        name: complaints(setup, mark, own[name], results[name]) for name, setup in chosen.items()
    }
    assert {} == {name: what for name, what in wrong.items() if what}
