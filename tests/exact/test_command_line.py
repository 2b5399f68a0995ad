"""Exact filters on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from tbloom import TimeBloom
from tbloom.exact import ExactFilter
from tests.helpers.commands import refused, tbloom

ITEMS = [*map(str, range(2000))]


@pytest.fixture
def alone(own: redis.Redis) -> str:
    """A server without what other tests have planted."""
    return f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"


@pytest.fixture
def exact(alone: str, name: str) -> Iterator[ExactFilter]:
    with ExactFilter.from_url(alone, name, shards=2) as seen:
        seen.add_many(ITEMS)
        yield seen


def test_list_shows_an_exact_filter_as_one(alone: str, name: str, exact: ExactFilter) -> None:
    with TimeBloom.from_url(alone, f"{name}-slices", capacity=1000) as seen:
        seen.add("a")
    done = tbloom("list", "--url", alone)
    assert (0, "") == (done.returncode, done.stderr)
    [line] = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{name} ")]
    assert [name, "exact", "2", "2,000"] == line[:4]
    assert f"{name}-slices" in done.stdout
    shown = {
        info["name"]: info for info in json.loads(tbloom("list", "--url", alone, "--json").stdout)
    }
    assert ("exact", 2000, 2) == tuple(shown[name][key] for key in ("kind", "items", "shards"))
    assert "kind" not in shown[f"{name}-slices"]
    assert exact.info().bytes == shown[name]["bytes"]


@pytest.mark.parametrize(
    "words",
    [
        *(["metrics"], ["report"], ["check", "-"], ["add", "-"]),
        *(
            ["export", "/dev/null"],
            ["add", "-", "--create", "--capacity", "1000"],
            ["reconfigure", "--slices", "3"],
        ),
    ],
    ids=" ".join,
)
def test_the_other_commands_say_that_it_is_an_exact_filter(
    alone: str, exact: ExactFilter, words: list[str]
) -> None:
    done = tbloom(words[0], "--url", alone, exact.name, *words[1:], stdin="a\n")
    refused(done, exact.name, "is an exact filter")
    assert 2000 == exact.info().items


def test_metrics_of_all_filters_leave_exact_ones_out(alone: str, exact: ExactFilter) -> None:
    from tbloom.cli.commands import metrics  # noqa: PLC0415 - it needs the metrics extra
    from tbloom.cli.kit import filters  # noqa: PLC0415 - it needs the metrics extra

    with (
        filters.connect(alone) as server,
        TimeBloom.from_url(alone, f"{exact.name}-slices") as seen,
    ):
        seen.add("a")
        names = [name for name, _ in metrics.OnServer(server, (), 0).infos()]
    assert f"{exact.name}-slices" in names
    assert exact.name not in names
