"""The Lua scripts, by name, with the hash that EVALSHA knows them by."""

from __future__ import annotations

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
    source = packaged if packaged.is_file() else Path(__file__).parents[1] / "lua" / f"{name}.lua"
    return source.read_text(encoding="utf-8")


def load(name: str) -> Script:
    """Reads ``name.lua``, with what the scripts share in front of it."""
    text = _read("shared") + _read(name)
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
SERVER = load("server")
ABANDONED = load("abandoned")
