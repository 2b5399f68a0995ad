"""The Lua scripts, with the hash that EVALSHA knows them by."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path


class Script:
    """A file of ``lua/``, ``bloom/add`` for example; read when it is first used."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def text(self) -> str:
        """The script with the shared functions that it calls in front. (Not all of them: each function
        there costs every call of the script some time, called or not.)"""
        text = _read(self.name)
        for paragraph in reversed(_shared()):
            defined = re.search(r"^local function (\w+)", paragraph, re.MULTILINE)
            if defined and re.search(rf"\b{defined[1]}\(", text):
                text = f"{paragraph}\n\n{text}"
        return text

    @cached_property
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=1)
def _shared() -> list[str]:
    return _read("shared").split("\n\n")


def _read(name: str) -> str:
    """``name.lua`` from the package where it is installed, else from the checkout's ``lua/``
    (an editable install doesn't map that folder into the package: setuptools #4943)."""
    packaged = files("tbloom").joinpath("lua", f"{name}.lua")
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "lua" / f"{name}.lua"
    return source.read_text(encoding="utf-8")
