"""Every code block of the README runs, and what its comments say is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom.scrapy import options

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def _run(block: str, names: dict[str, Any]) -> list[tuple[str, Any]]:
    """Runs a block; returns the comment and the value of each line that is an expression."""
    told = []
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        source = ast.unparse(statement)
        if isinstance(statement, ast.Expr) and "asyncio" not in source:
            comment = lines[statement.end_lineno - 1].partition("#")[2].strip()
            told.append((comment, eval(source, names)))  # noqa: S307 - our own README
        else:
            exec(source, names)  # noqa: S102
    return told


def test_every_block_runs_and_says_the_truth(url: str) -> None:
    """A comment that opens with a Python value is compared with what the line gives."""
    names: dict[str, Any] = {}
    with redis.Redis.from_url(url) as client:
        for name in ("news", "sizes", "news-async"):
            for key in client.scan_iter(f"{{{name}}}:*"):
                client.delete(key)
    compared = 0
    for block in BLOCKS:
        for comment, value in _run(block.replace("redis://localhost:6379/0", url), names):
            said = re.match(r"(True|False|\[[^\]]*\]|\d+)\b", comment)
            if said:
                assert ast.literal_eval(said[1]) == value, comment
                compared += 1
    assert compared >= 6
    names["seen"].clear()


def test_the_first_example_is_within_the_first_30_lines() -> None:
    assert "seen.add(" in "\n".join(README.splitlines()[:30])


def test_every_setting_is_in_the_table_and_no_other() -> None:
    documented = set(re.findall(r"`((?:TBLOOM|BLOOMFILTER)_[A-Z_]+)`", README))
    known = options.KNOWN - {"REDIS_PARAMS"}
    assert known == documented


@pytest.mark.parametrize("command", ["demo", "test"])
def test_the_readmes_commands_are_the_makefiles(command: str) -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    assert f"**`make {command}`**" in README
    assert re.search(rf"^{command}:", makefile, re.MULTILINE)
