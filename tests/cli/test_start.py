"""The first steps: a plain install, the server, the time until help is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tbloom import TimeBloom
from tbloom.cli import main
from tests.helpers.commands import process, refused, tbloom


@pytest.fixture
def url(own_url: str) -> str:
    """A server without what other tests have planted."""
    return own_url


@pytest.fixture
def filled(url: str, name: str) -> str:
    """The name of a filter."""
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        seen.add("item 1")
    return name


def test_the_server_is_given_once(url: str, filled: str) -> None:
    """By --url, or the environment: TBLOOM_URL before REDIS_URL; an empty variable counts as none."""
    elsewhere = "redis://127.0.0.1:1/0"
    info = ["info", filled]
    assert tbloom(*info, "--url", url, TBLOOM_URL=elsewhere).returncode == 0
    assert tbloom(*info, TBLOOM_URL=url, REDIS_URL=elsewhere).returncode == 0
    assert tbloom(*info, TBLOOM_URL="", REDIS_URL=url).returncode == 0
    assert tbloom("count", "list", TBLOOM_URL=url).returncode in (0, 1)
    refused(tbloom(*info, TBLOOM_URL=elsewhere), "127.0.0.1:1")
    refused(tbloom("info", TBLOOM_URL="", REDIS_URL=""), "NAME")
    # The secrets of the environment are not in the help.
    said = tbloom("info", "--help", TBLOOM_URL="redis://:secret@127.0.0.1").stdout
    assert ("redis://localhost:6379/0" in said, "secret" in said) == (True, False)


def test_an_error_names_the_next_step(
    url: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one who has no filter, or no server, yet."""
    refused(tbloom("add", name, "--url", url), f"no filter '{name}'", "--create makes it")
    assert main(["list", "--url", "redis://127.0.0.1:1/0"]) == 2
    assert "(--url, or TBLOOM_URL, names the server)" in capsys.readouterr().err


#: Runs command lines, one a line of standard input, without the libraries of the extras.
PLAIN = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))
from tbloom.cli import main
for line in sys.stdin:
    print(main(line.split()), line.split()[0], flush=True)
"""
EXTRAS = [
    *("hiredis", "isal", "jinja2", "numpy", "prometheus_client", "pyroaring", "scrapy"),
    *("scrapy_redis", "shtab"),
]


def test_a_plain_install_has_the_commands(url: str, filled: str, tmp_path: Path) -> None:
    """What needs an extra says so in one line; other commands do without."""
    (tmp_path / "lines").write_text("item 1\nnew\n")
    name, here = filled, f"--url {url}"
    works = [
        "plan", f"list {here} --json", f"info {here} {name}", f"watch {here} {name} --once",
        f"add {here} {name} {tmp_path / 'lines'}", f"check {here} {name} --seen {tmp_path / 'lines'}",
        f"export {here} {name} {tmp_path / 'file'}", f"restore {here} {tmp_path / 'file'} --replace",
        f"compare {here} {name} --with-lines {tmp_path / 'lines'} --random 10",
        f"import {here} {name} --from-lines {tmp_path / 'lines'}",
        f"count add {here} {name} {tmp_path / 'lines'}", f"count show {here} {name}",
    ]  # fmt: skip
    needs = {
        "report a": "cli", "completion bash": "cli", "metrics": "metrics", "pages ls a": "pages",
        "demo": "demo", "paper": "demo", f"count and {here} {name} {name}": "cli",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *EXTRAS], input="\n".join([*works, *needs]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    codes = re.findall(r"^(\d) (\w+)$", done.stdout, re.MULTILINE)
    assert codes[: len(works)] == [("0", line.split()[0]) for line in works], done.stderr
    assert codes[len(works) :] == [("2", line.split()[0]) for line in needs]
    said = done.stderr.splitlines()[-len(needs) :]
    for line, extra, words in zip(said, needs.values(), needs, strict=True):
        command = words.split()[0]
        assert re.fullmatch(
            rf"tbloom: '{command}' needs \w+: pip install 'tbloom\[{extra}\]'", line
        ), line


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["plan"]], ids=" ".join)
def test_help_and_plan_import_no_redis(words: list[str]) -> None:
    """Nor does help import rich: both take longer than all the rest."""
    done = process(*words, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    imported = set(re.findall(r"([\w.]+)$", done.stderr.decode(), re.MULTILINE))
    assert done.returncode == 0
    assert "tbloom.cli" in imported
    assert imported.isdisjoint({"redis", "mmh3", "rich"} if words != ["plan"] else {"redis"})
