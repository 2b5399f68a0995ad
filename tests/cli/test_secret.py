"""Filters with a secret: ``--secret-file`` where digests are computed; elsewhere the stored check value does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tbloom import TimeBloom
from tests.bloom.test_secret import OTHER, SECRET, shows_a_secret
from tests.helpers.commands import refused, tbloom

#: The commands that compute digests, with their arguments.
ASKING = {"add": [], "check": [], "import": ["--from-lines", "-"]}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files with secrets."""
    contents = {"secret": SECRET, "other": OTHER, "empty": b"", "line": SECRET + b"\n"}
    for file, data in contents.items():
        (tmp_path / file).write_bytes(data)
    return {file: str(tmp_path / file) for file in [*contents, "none"]}


@pytest.fixture
def filled(url: str, name: str) -> TimeBloom:
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        seen.add("a")
    return seen


def ask(verb: str, url: str, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Asks for two items."""
    return tbloom(verb, "--url", url, name, *ASKING[verb], *more, stdin="a\nb\n")


def test_items_are_looked_up_with_the_secret(
    url: str, filled: TimeBloom, files: dict[str, str]
) -> None:
    for verb, code, printed in (
        ("check", 0, "b\n"),
        ("add", 0, "b\n"),
        ("check", 1, ""),
        ("import", 0, ""),
    ):
        done = ask(verb, url, filled.name, "--quiet", "--secret-file", files["secret"])
        assert (code, printed, "") == (done.returncode, done.stdout, done.stderr)
    with TimeBloom.from_url(url, filled.name, capacity=1000, secret=SECRET) as seen:
        assert seen.contains_many(["a", "b", "c"]) == [True, True, False]


@pytest.mark.parametrize("verb", ASKING)
def test_no_command_asks_without_the_right_secret(
    verb: str, url: str, filled: TimeBloom, files: dict[str, str]
) -> None:
    name = filled.name
    refused(ask(verb, url, name), f"--secret-file: {name!r} has a secret")
    another = f"--secret-file: {name!r} has another secret"
    for file, why in (
        ("other", another),
        ("line", another),  # a line break counts, as Path.read_bytes() has it
        ("empty", "expected 16 to 64 bytes, got '0 bytes'"),
        ("none", "No such file"),
    ):
        line = refused(ask(verb, url, name, "--secret-file", files[file]), "secret", why)
        assert not shows_a_secret(line)
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        assert not seen.contains("b")


def test_a_secret_for_a_filter_that_has_none_is_refused(
    url: str, name: str, files: dict[str, str]
) -> None:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("a")
    done = ask("check", url, name, "--secret-file", files["secret"])
    refused(done, f"--secret-file: {name!r} has no secret")


@pytest.mark.parametrize("verb", ["add", "import"])
def test_a_filter_is_created_with_a_secret(
    verb: str, url: str, name: str, files: dict[str, str]
) -> None:
    create = ["--create", "--capacity", "1k", "--secret-file", files["secret"]]
    assert ask(verb, url, name, *create).returncode == 0
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        assert seen.contains_many(["a", "c"]) == [True, False]


def test_what_computes_no_digests_needs_no_secret(
    url: str, filled: TimeBloom, tmp_path: Path
) -> None:
    name, exported, report = filled.name, str(tmp_path / "export"), str(tmp_path / "report.html")
    for command in (
        ["info", name, "--json"],
        ["list"],
        ["report", name, "-o", report],
        ["reconfigure", name, "--capacity", "2k"],
        ["info", name],
        ["export", name, exported],
        ["clear", name, "--yes"],
        ["restore", exported],  # which is refused where there is a filter
    ):
        done = tbloom(*command, "--url", url)
        assert done.returncode == 0, (command, done.stderr)
        assert not shows_a_secret(done.stdout + done.stderr)
    with TimeBloom.from_url(url, name, capacity=2000, secret=SECRET) as seen:
        assert seen.contains_many(["a", "b"]) == [True, False]
        seen.clear()
