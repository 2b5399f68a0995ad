"""``tbloom pages plan``: what a store takes."""

from __future__ import annotations

import json

import pytest

from tbloom.cli.commands.pages import planning
from tests.helpers.commands import refused, tbloom

DISK, CORES = ["--disk", "200MB"], ["--cores", "2"]


def test_the_plan_is_shown() -> None:
    given = ["--pages", "50M", "--bytes", "60KB", "--slices", "30"]
    done = tbloom("pages", "plan", *given, *DISK, *CORES, COLUMNS="80")
    assert (0, "") == (done.returncode, done.stderr)
    plan = planning.plan(5 * 10**7, 60 << 10, slices=30, disk=200 << 20, cores=2)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pages")
    assert "50,000,000  60.0 KB each" in lines[0]
    assert f"in {plan.segments:,}, of 1 GB at most" in done.stdout
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_the_plan_as_json() -> None:
    given = ["--pages", "1e6", "--bytes", "1000", "--codec", "identity"]
    found = json.loads(tbloom("pages", "plan", *given, *DISK, *CORES, "--json").stdout)
    assert (10**6, 1000, 1, "identity") == tuple(
        found[name] for name in ("pages", "body_bytes", "slices", "codec")
    )
    assert found["segment_bytes"] == 10**6 * found["record_bytes"] > 10**9
    compressed = json.loads(tbloom("pages", "plan", *given[:4], "--ratio", "2", "--json").stdout)
    assert 500 < compressed["record_bytes"] < found["record_bytes"]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--pages", "many"], "--pages"),
        (["--pages", "1e10"], "256.0 GB"),
        (["--bytes", "0"], "--bytes"),
        (["--ratio", "0.5"], "'0.5'"),
        (["--slices", "1025"], "1024"),
        (["--codec", "rar"], "'rar'"),
        (["--cores", "0"], "--cores"),
        (["here"], "here"),
    ],
)
def test_what_can_t_be_planned_is_refused(given: list[str], word: str) -> None:
    refused(tbloom("pages", "plan", *given), word)
