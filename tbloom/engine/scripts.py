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

_INCLUDES = re.compile(r"^(-- Includes +(.*))$", re.MULTILINE)
#: The folder with the scripts: in the installed package, or in the checkout. (An editable install doesn't map that folder into
#: the package: setuptools #4943.)
_FOLDER = Path(__file__).parents[1] / "lua"
if not _FOLDER.is_dir():
    _FOLDER = Path(__file__).parents[2] / "lua"


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
        return _with_included(self.name, {"none"})

    @property
    @cache  # noqa: B019
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[Any] = (), args: Sequence[Any] = ()) -> Call:
        """Return a call by the hash."""
        return Call(("EVALSHA", self.sha, len(keys), *keys, *args), script=self)


def _with_included(name: str, included: set[str]) -> str:
    """Return a file's text, after the files that it includes. Leave out those that are ``included`` already."""
    before, *pieces = _INCLUDES.split(_FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8"))
    text = before
    for line, names, after in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        for each in names.split(", "):
            if each not in included:
                included.add(each)
                text += _with_included(f"shared/{each}", included)
        text += line + after
    return text
