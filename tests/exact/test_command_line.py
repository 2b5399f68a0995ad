"""Exact filters on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tbloom.exact import ExactFilter
from tests.helpers.commands import refused, tbloom


@pytest.fixture
def exact(own_url: str, name: str) -> Iterator[tuple[ExactFilter, str]]:
    """On a server without what other tests have planted; its address."""
    with ExactFilter.from_url(own_url, name, shards=2) as seen:
        seen.add_many(map(str, range(2000)))
        yield seen, own_url


def test_list_shows_an_exact_filter_as_one(exact: tuple[ExactFilter, str]) -> None:
    seen, url = exact
    done = tbloom("list", "--url", url)
    assert (0, "") == (done.returncode, done.stderr)
    assert [seen.name, "exact", "2", "2,000"] == done.stdout.splitlines()[-1].split()[:4]
    [shown] = json.loads(tbloom("list", "--url", url, "--json").stdout)
    known = {"name": seen.name, "kind": "exact", "items": 2000, "shards": 2}
    assert shown | known | {"bytes": seen.info().bytes} == shown


@pytest.mark.parametrize(
    "words",
    [
        "metrics",
        "report",
        "check -",
        "add -",
        "export /dev/null",
        "reconfigure --slices 3",
    ],
)
def test_the_other_commands_say_that_it_is_an_exact_filter(
    exact: tuple[ExactFilter, str], words: str
) -> None:
    seen, url = exact
    verb, *more = words.split()
    done = tbloom(verb, "--url", url, seen.name, *more, stdin="a\n")
    refused(done, seen.name, "is an exact filter")
    assert 2000 == seen.info().items
