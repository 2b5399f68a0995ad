"""The Lua scripts, and their hashes for EVALSHA.

A script's text is the files of ``lua/shared`` that its header names (``-- Includes   blocks, clock``), each once and after
those that it names itself, and then its own file. Nothing is changed or left out.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from pathlib import Path

_INCLUDES = re.compile(r"^-- Includes +(.*)$", re.MULTILINE)


class Script:
    """A file of ``lua/``, ``bloom/add`` for example; read when it is first used.

    No ``cached_property``: before Python 3.12 it has a lock, for which a child waits for ever that is forked meanwhile.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @cache  # noqa: B019 - scripts are few, and made once
    def text(self) -> str:
        """The script, behind the files that it includes."""
        return "".join(map(_read, files_of(self.name)))

    @property
    @cache  # noqa: B019
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def files_of(name: str) -> list[str]:
    """The files that a script consists of, in order; its own is the last one."""
    header = _INCLUDES.search(_read(name))
    names = header[1].split(", ") if header and header[1] != "none" else []
    included = [file for each in names for file in files_of(f"shared/{each}")]
    return [*dict.fromkeys(included), name]


def _read(name: str) -> str:
    """A file of ``lua/`` in the package where it is installed, else in the checkout
    (an editable install doesn't map that folder into the package: setuptools #4943)."""
    packaged, checkout = (Path(__file__).parents[up] / "lua" for up in (1, 2))
    folder = packaged if packaged.is_dir() else checkout
    return folder.joinpath(f"{name}.lua").read_text(encoding="utf-8")
