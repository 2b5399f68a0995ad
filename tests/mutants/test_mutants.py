"""Mutants are programs with names of their own, and a run finds a fault."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.mutants import run
from tests.mutants.generator import Mutant, mutants_of

PYTHON = """\
def f(a: int | None, b=-1):
    if a and b < 2:
        f(a)
    return [f"{a + 1}", not a]
"""
OF_PYTHON = """\
1:23 - removed
1:24 1 -> 2
2:7 and -> or
2:7 condition negated
2:17 < -> <=
2:17 < -> >=
2:17 2 -> 3
3:8 statement removed
4:4 return None
4:24 not removed
"""
LUA = """\
local a = f(-1, '2') -- a + 3
if not a and x[1] == b then g(a) end
h(
  a)
return a - 4
"""
OF_LUA = """\
1:12 - removed
1:13 1 -> 2
1:16 '2' -> '3'
2:3 condition negated
2:3 not removed
2:9 and -> or
2:15 1 -> 2
2:18 == -> ~=
2:28 statement removed
3:0 statement removed
5:0 statement removed
5:9 - -> +
5:11 4 -> 5
"""


@pytest.mark.parametrize(
    ("text", "changes"),
    [pytest.param(PYTHON, OF_PYTHON, id="py"), pytest.param(LUA, OF_LUA, id="lua")],
)
def test_a_file_has_these_mutants(text: str, changes: str, request: Any, tmp_path: Path) -> None:
    file = f"a.{request.node.callspec.id}"
    (tmp_path / file).write_text(text, encoding="utf-8")
    found = [mutant.name.removeprefix(f"{file}:") for mutant in mutants_of(tmp_path, file)]
    assert sorted(changes.splitlines()) == sorted(found)


def test_each_mutant_has_a_name_of_its_own_and_is_a_program(own: redis.Redis) -> None:
    mutants = list(run.chosen(run.CORE))
    assert {1} == {*Counter(mutant.name for mutant in mutants).values()}
    assert {".py", ".lua"} == {Path(mutant.file).suffix for mutant in mutants}
    for mutant in mutants[::5]:
        if mutant.file.endswith(".py"):
            compile(mutant.text, mutant.name, "exec")
        else:
            own.script_load(mutant.text)


@pytest.mark.check
def test_a_run_finds_a_fault_and_leaves_nothing() -> None:
    file = "lua/exact/count.lua"
    text = (run.ROOT / file).read_text(encoding="utf-8")
    whole, broken = Mutant(file, 1, 0, "none", text), Mutant(file, 1, 0, "planted", "return false")
    found = dict[Mutant | None, str]()
    with run.copies() as free:
        pairs = [(mutant, ("tests/exact",)) for mutant in (whole, broken)]
        run.run_all(free, pairs, lambda each, verdict: found.update({each.mutant: verdict}))
        assert [text, text] == [(copy / file).read_text(encoding="utf-8") for copy in free]
    assert {whole: run.SURVIVED, broken: run.KILLED} == found
    while _left(free[0].parent):
        time.sleep(0.05)  # guards are killing the servers


def _left(folder: Path) -> list[Path]:
    """The processes that run in a folder."""
    found = list[Path]()
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            found.append(link.readlink())
    return [place for place in found if place.is_relative_to(folder)]
