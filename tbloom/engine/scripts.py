"""The Lua scripts, put together from the files of ``lua/``, and their hashes for EVALSHA.

A script is those files of ``lua/shared`` that its header names (``-- Includes   blocks, clock``), each after those that it
names itself, and then its own file. (docs/format.md.) Here it is made faster: functions that it does not call are left
out; those that it calls as ``rarely().name(...)`` stand in one function, so that they are made only where one of them is
called; and a loop ``for row, column in columns(items, at, rows) do`` is written out for the first 16 rows.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from pathlib import Path

_INCLUDES = re.compile(r"^-- Includes +(.*)$", re.MULTILINE)
_NAME = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
_CALLED = re.compile(r"(?<!function )(?<![\w.])(\w+)[(\[]")
_CALLED_RARELY = re.compile(r"\brarely\(\)\.(\w+)\(")
_LOOP = re.compile(
    r"^( *)for (\w+), (\w+) in columns\((\w+), (\w+), (\w+)\) do\n(.*?)^\1end$",
    re.DOTALL | re.MULTILINE,
)
_UNROLLED = 16


class Script:
    """A file of ``lua/``, ``bloom/add`` for example; read when it is first used.

    No ``cached_property``: before Python 3.12 it has a lock, for which a child waits for ever that is forked meanwhile.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @cache  # noqa: B019 - scripts are few, and made once
    def text(self) -> str:
        """The script, after the functions that it calls."""
        return put_together(_read(self.name))

    @property
    @cache  # noqa: B019
    def sha(self) -> str:
        """The SHA-1 of the text, in hexadecimal."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def put_together(body: str) -> str:
    """The text of a script whose own file has this content."""
    body = _LOOP.sub(_written_out, body)
    functions: dict[str, str] = {}
    _include(body, functions)
    called = _called_in(body, functions, {})
    texts, rare = [*called.values()], _CALLED_RARELY.findall(body)
    if rare:
        rarely = {**called}
        for function in rare:
            _called_in(f"{function}(", functions, rarely)
        made = "\n\n".join(text for function, text in rarely.items() if function not in called)
        returned = ", ".join(f"{function} = {function}" for function in rare)
        texts.append(f"local function rarely()\n{made}\nreturn {{{returned}}}\nend")
    return "\n\n".join([*texts, body])


def _include(text: str, functions: dict[str, str]) -> None:
    """Adds the functions, and other locals, of the files that the header of a text names, by name."""
    header = _INCLUDES.search(text)
    for file in header[1].split(", ") if header and header[1] != "none" else ():
        content = _LOOP.sub(_written_out, _read(f"shared/{file}"))
        for paragraph in content.strip().split("\n\n")[1:]:
            name = _NAME.search(paragraph)
            if name and functions.setdefault(name[1], paragraph) != paragraph:
                raise ValueError(f"lua/shared/{file}.lua defines {name[1]}, as another file does")
        _include(content, functions)


def _called_in(text: str, functions: dict[str, str], found: dict[str, str]) -> dict[str, str]:
    """``found`` and the functions that the text calls, each after the ones that it needs."""
    called = {*_CALLED.findall(text)}
    for name, function in functions.items():
        if name in called and name not in found and function is not text:
            _called_in(function, functions, found)
            found[name] = function
    return found


def _written_out(loop: re.Match[str]) -> str:
    _, row, column, items, at, rows, body = loop.groups()
    numbers = range(1, _UNROLLED + 1)
    names = ", ".join(f"{column}_{number}" for number in numbers)
    texts = [f"local {names} = byte({items}, {at}, {at} + {_UNROLLED - 1})\n"]
    for number in numbers:
        step = re.sub(
            rf"\b{row}\b", str(number), re.sub(rf"\b{column}\b", f"{column}_{number}", body)
        )
        texts.append(f"if {rows} >= {number} then\n{step}")
    texts.append(
        f"for {row} = {_UNROLLED + 1}, {rows} do\n"
        f"local {column} = byte({items}, {at} + {row} - 1)\n{body}end\n"
    )
    return "".join([*texts, "end " * _UNROLLED])


def _read(name: str) -> str:
    """A file of ``lua/`` in the package where it is installed, else in the checkout
    (an editable install doesn't map that folder into the package: setuptools #4943)."""
    packaged, checkout = (Path(__file__).parents[up] / "lua" for up in (1, 2))
    folder = packaged if packaged.is_dir() else checkout
    return folder.joinpath(f"{name}.lua").read_text(encoding="utf-8")
