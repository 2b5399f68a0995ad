"""The Lua scripts, and their hashes for EVALSHA.

A script's text is that of its file, and of the files of ``lua/shared`` that it includes. A line ``-- Includes   blocks, clock``
names such files. They are inserted before that line, each of them once. Nothing else is changed or left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from tbloom.engine.flow import Call

_INCLUDES = re.compile(r"^(-- Includes +(.*))$", re.MULTILINE)
#: The folder with the scripts: in the installed package, which may be a zip file, or in the checkout. (An editable install does
#: not map that folder into the package: setuptools #4943.)
_FOLDER = files("tbloom").joinpath("lua")
if not _FOLDER.is_dir():
    _FOLDER = files("tbloom").joinpath("../lua")

#: The types of numbers. A set, so that a call is checked in one step.
_NUMBERS = frozenset((int, float))


class Script:
    """A file of ``lua/``, for example ``bloom/add``. It is read at its first use.

    ``cached_property`` is not used: before Python 3.12 it takes a lock, and a child that is forked meanwhile would wait for
    that lock forever.
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
        """Return a call of the script by its hash. Numbers among the arguments become text (see ``Call.command``)."""
        if not _NUMBERS.isdisjoint(map(type, args)):
            args = [str(arg) if type(arg) in _NUMBERS else arg for arg in args]
        return Call(("EVALSHA", self.sha, str(len(keys)), *keys, *args), "", self)


def _with_included(name: str, included: set[str]) -> str:
    """Return a file's text, with the files that it includes before it. Skip files that are ``included`` already."""
    before, *pieces = _INCLUDES.split(_FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8"))
    text = before
    for line, names, after in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        for each in names.split(", "):
            if each not in included:
                included.add(each)
                text += _with_included(f"shared/{each}", included)
        text += line + after
    return text
