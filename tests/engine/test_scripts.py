"""The scripts, put together from the files of ``lua/`` when they are first used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tbloom.engine import scripts
from tbloom.engine.scripts import Script, put_together

LUA = Path(__file__).parents[2] / "lua"
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
SCRIPTS = [file for file in FILES if not file.startswith("shared/")]


def _read(file: str) -> str:
    return (LUA / f"{file}.lua").read_text(encoding="utf-8")


def _included(file: str) -> list[str]:
    """The shared files that a file's header names."""
    [names] = re.findall(r"^-- Includes   (.*)$", _read(file), re.MULTILINE)
    return [] if names == "none" else [f"shared/{name}" for name in names.split(", ")]


def _all_included(file: str) -> list[str]:
    """Those, and those that they include, each after the ones that it includes."""
    files = [each for name in _included(file) for each in [*_all_included(name), name]]
    return [*dict.fromkeys(files)]


def plain_text(file: str) -> str:
    """The script as docs/format.md puts it together."""
    return "".join(map(_read, [*_all_included(file), file])).replace("rarely().", "")


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_compiles_and_makes_few_functions_in_a_call(
    client: redis.Redis, file: str
) -> None:
    text = Script(file).text
    assert client.script_load(text) == Script(file).sha
    assert client.script_load(plain_text(file))
    functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    assert len({*functions}) == len(functions)
    rare = re.search(
        r"^local function rarely\(\)\n.*?^return \{.*?^end$", text, re.DOTALL | re.MULTILINE
    )
    made = len(functions) - (
        len(re.findall(r"^local function", rare[0], re.MULTILINE)) - 1 if rare else 0
    )
    assert made <= (40 if file == "distinct/change" else 24)


def test_a_name_that_two_included_files_define_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "shared/a": "-- Includes   none\n\nlocal function f() end\n",
        "shared/b": "-- Includes   none\n\nlocal f = 1\n",
        "shared/c": "-- Includes   b\n\nlocal function g() return f end\n",
    }
    monkeypatch.setattr(scripts, "_read", files.__getitem__)
    assert put_together("-- Includes   a\n\nreturn f()").endswith("return f()")
    for names in "a, b", "a, c":
        with pytest.raises(ValueError, match=r"defines f, as another file does"):
            put_together(f"-- Includes   {names}\n\nreturn f()")
