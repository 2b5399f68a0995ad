"""The Lua scripts and their hashes for EVALSHA."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from pathlib import Path


class Script:
    """A file of ``lua/``, ``bloom/add`` for example; read when it is first used.

    No ``cached_property``: before Python 3.12 it has a lock, for which a child waits for ever that is forked meanwhile.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def text(self) -> str:
        """The script, after the functions of ``lua/shared`` that it calls; others would cost time in every call."""
        return _text(self.name)

    @property
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return _sha(self.name)


@cache
def _text(name: str) -> str:
    body = _read(name)
    return "\n\n".join([*_called_in(body, {}).values(), body])


@cache
def _sha(name: str) -> str:
    return sha1(_text(name).encode(), usedforsecurity=False).hexdigest()


def _called_in(text: str, found: dict[str, str]) -> dict[str, str]:
    """``found`` and the shared functions that the text calls, each after the ones that it needs."""
    called = {*re.findall(r"(?<!function )\b(\w+)[(\[]", text)}
    for name, function in _shared().items():
        if name in called and name not in found and function is not text:
            _called_in(function, found)
            found[name] = function
    return found


@cache
def _shared() -> dict[str, str]:
    """The functions of ``lua/shared``, and its short names for others, with their comments, by name."""
    functions = {}
    for path in sorted(_folder().joinpath("shared").iterdir(), key=lambda path: path.name):
        for paragraph in path.read_text(encoding="utf-8").strip().split("\n\n")[1:]:
            functions[re.findall(r"^local (?:function )?(\w+)", paragraph, re.MULTILINE)[0]] = (
                paragraph
            )
    return functions


def _read(name: str) -> str:
    return _folder().joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _folder() -> Path:
    """``lua/`` in the package where it is installed, else in the checkout
    (an editable install doesn't map that folder into the package: setuptools #4943)."""
    packaged, checkout = (Path(__file__).parents[up] / "lua" for up in (1, 2))
    return packaged if packaged.is_dir() else checkout
