"""The Lua scripts, and their hashes for EVALSHA.

A script's text is its file. The files of ``lua/shared`` that a line names (``-- Includes   blocks, clock``) are inserted
before that line, each of them once. Nothing else is changed, and nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any

from tbloom.engine.flow import Call

_INCLUDES = re.compile(r"^-- Includes +(.*)$", re.MULTILINE)


class Script:
    """A file of ``lua/``, ``bloom/add`` for example; read at its first use.

    It has no ``cached_property``: before Python 3.12 that takes a lock, and a child that is forked meanwhile would wait for
    it forever.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @cache  # noqa: B019 - scripts are few, and made once
    def text(self) -> str:
        """The script, with the files that it includes."""
        return _with_included(self.name, set())

    @property
    @cache  # noqa: B019
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[Any] = (), args: Sequence[Any] = ()) -> Call:
        """Return a call by the hash."""
        return Call(("EVALSHA", self.sha, len(keys), *keys, *args), script=self)


def _with_included(name: str, come: set[str]) -> str:
    """Return a file's text after the files that it includes. Leave out files that have ``come`` before."""

    def before(line: re.Match[str]) -> str:
        names = [each for each in line[1].split(", ") if each not in {"none", *come}]
        come.update(names)
        return "".join(_with_included(f"shared/{each}", come) for each in names) + line[0]

    return _INCLUDES.sub(before, _read(name))


def _read(name: str) -> str:
    """Return the text of a file of ``lua/``, from the installed package or the checkout.

    (An editable install doesn't map that folder into the package: setuptools #4943.)
    """
    packaged, checkout = (Path(__file__).parents[up] / "lua" for up in (1, 2))
    folder = packaged if packaged.is_dir() else checkout
    return folder.joinpath(f"{name}.lua").read_text(encoding="utf-8")
