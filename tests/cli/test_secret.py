"""Filters with a secret: ``--secret-file`` where digests are computed; elsewhere the stored check value does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from tbloom import TimeBloom
from tests.bloom.test_secret import OTHER, SECRET, shows_a_secret
from tests.helpers.commands import refused, tbloom

#: The commands that compute digests.
ASKING = [
    ["add", "NAME", "ITEMS"],
    ["check", "NAME", "ITEMS"],
    ["import", "NAME", "--from-lines", "ITEMS"],
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files with secrets, and one with items."""
    contents = {"secret": SECRET, "other": OTHER, "empty": b"", "line": SECRET + b"\n"}
    contents |= {"long": b"x" * 65, "ITEMS": b"a\nb\n"}
    for file, data in contents.items():
        (tmp_path / file).write_bytes(data)
    return {file: str(tmp_path / file) for file in contents} | {"none": str(tmp_path / "none")}


@pytest.fixture
def filled(url: str, name: str) -> TimeBloom:
    with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
        seen.add("a")
    return seen


def words(command: list[str], url: str, name: str, files: dict[str, str]) -> list[str]:
    """A command with its names filled in."""
    return [*({"NAME": name, **files}.get(word, word) for word in command), "--url", url]


def test_items_are_looked_up_with_the_secret(
    url: str, filled: TimeBloom, files: dict[str, str]
) -> None:
    def asked(number: int) -> tuple[int, str]:
        command = words(ASKING[number], url, filled.name, files)
        done = tbloom(*command, "--quiet", "--secret-file", files["secret"])
        assert done.stderr == ""
        return done.returncode, done.stdout

    assert asked(1) == (0, "b\n")
    assert asked(0) == (0, "b\n")
    assert asked(1) == (1, "")
    assert asked(2) == (0, "")
    with TimeBloom.from_url(url, filled.name, capacity=1000, secret=SECRET) as seen:
        assert seen.contains_many(["a", "b", "c"]) == [True, True, False]


@pytest.mark.parametrize("command", ASKING, ids=lambda command: command[0])
def test_no_command_asks_without_the_right_secret(
    command: list[str], url: str, filled: TimeBloom, files: dict[str, str]
) -> None:
    asking = words(command, url, filled.name, files)
    refused(tbloom(*asking), f"--secret-file: {filled.name!r} has a secret")
    another = f"--secret-file: {filled.name!r} has another secret"
    for file, why in (
        ("other", another),
        ("line", another),  # a line break counts, as Path.read_bytes() has it
        ("empty", "expected 16 to 64 bytes, got '0 bytes'"),
        ("long", "expected 16 to 64 bytes, got '65 bytes'"),
        ("none", "No such file"),
    ):
        line = refused(tbloom(*asking, "--secret-file", files[file]), "secret", why)
        assert not shows_a_secret(line)
    with TimeBloom.from_url(url, filled.name, capacity=1000, secret=SECRET) as seen:
        assert not seen.contains("b")


def test_a_secret_for_a_filter_that_has_none_is_refused(
    url: str, name: str, files: dict[str, str]
) -> None:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("a")
    asking = words(ASKING[1], url, name, files)
    refused(
        tbloom(*asking, "--secret-file", files["secret"]), f"--secret-file: {name!r} has no secret"
    )


def test_a_filter_is_created_with_a_secret(url: str, name: str, files: dict[str, str]) -> None:
    for command in (ASKING[0], ASKING[2]):
        create = [*words(command, url, name, files), "--create", "--capacity", "1k"]
        assert tbloom(*create, "--secret-file", files["secret"]).returncode == 0
        with TimeBloom.from_url(url, name, capacity=1000, secret=SECRET) as seen:
            assert seen.contains_many(["a", "c"]) == [True, False]
            seen.clear()


def test_what_computes_no_digests_needs_no_secret(
    url: str, client: redis.Redis, filled: TimeBloom, tmp_path: Path
) -> None:
    name, exported, report = filled.name, str(tmp_path / "export"), str(tmp_path / "report.html")
    for command in (
        ["info", name, "--json"],
        ["list"],
        ["report", name, "-o", report],
        ["reconfigure", name, "--capacity", "2k"],
        ["info", name],
    ):
        done = tbloom(*command, "--url", url)
        assert done.returncode == 0, (command, done.stderr)
        assert not shows_a_secret(done.stdout + done.stderr)
    assert json.loads(tbloom("info", name, "--json", "--url", url).stdout)["items"] == 1
    done = tbloom("export", name, exported, "--url", url)
    assert done.returncode == 0, done.stderr
    assert tbloom("clear", name, "--yes", "--url", url).returncode == 0
    assert client.exists(filled.config.keys.root) == 0
    done = tbloom("restore", exported, "--url", url)
    assert done.returncode == 0, done.stderr
    with TimeBloom.from_url(url, name, capacity=2000, secret=SECRET) as seen:
        assert seen.contains_many(["a", "b"]) == [True, False]
        seen.clear()
