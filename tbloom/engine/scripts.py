"""The Lua scripts, by name, with the hash that EVALSHA knows them by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Script:
    """One file of ``lua/``."""

    name: str
    text: str
    sha: str


def _read(name: str) -> str:
    """``name.lua`` from the package where it is installed, else from the checkout's ``lua/``
    (an editable install doesn't map that folder into the package: setuptools #4943)."""
    packaged = files("tbloom").joinpath("lua", f"{name}.lua")
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "lua" / f"{name}.lua"
    return source.read_text(encoding="utf-8")


def _with_shared(text: str) -> str:
    """The script with what it calls of ``shared.lua`` in front of it: each function there costs every
    call of the script some time, called or not."""
    for paragraph in reversed(_read("shared").split("\n\n")):
        defined = re.search(r"^local function (\w+)", paragraph, re.MULTILINE)
        if defined and re.search(rf"\b{defined[1]}\(", text):
            text = f"{paragraph}\n\n{text}"
    return text


def load(name: str) -> Script:
    """Reads ``name.lua``, with what it shares with others."""
    text = _with_shared(_read(name))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


ADD = load("add")
CONTAINS = load("contains")
CLEAR = load("clear")
OPEN = load("open")
RELAYOUT = load("relayout")
RECONFIGURE = load("reconfigure")
CLAIM = load("claim")
COMMIT = load("commit")
RELEASE = load("release")
BEAT = load("beat")
IMPORT = load("import")
SERVER = load("server")
ABANDONED = load("abandoned")
EXPIRIES = load("expiries")
TAKE_IN = load("take_in")
INSTALL = load("install")
EXACT_ADD = load("exact_add")
EXACT_CONTAINS = load("exact_contains")
EXACT_OPEN = load("exact_open")
EXACT_CLEAR = load("exact_clear")
EXACT_COUNT = load("exact_count")
DISTINCT_ADD = load("distinct_add")
DISTINCT_COUNT = load("distinct_count")
DISTINCT_CLEAR = load("distinct_clear")
DISTINCT_FORGET = load("distinct_forget")
DISTINCT_SWEPT = load("distinct_swept")
DISTINCT_USAGE = load("distinct_usage")
DISTINCT_LOOK = load("distinct_look")
