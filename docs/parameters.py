"""How Griffe shows tbloom's classes: all parameters with their defaults, own members before inherited ones."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: Where the parameters that constructors pass on as ``**parameters`` have their defaults, and where they are described.
DEFAULTS = "bloom.config.configure"
DESCRIBED = "bloom.base.Base.__init__"
#: A parameter that no constructor takes.
INTERNAL = "masters"
_FIELD = re.compile(r"^:param (\w+):.*\n(?: .*\n)*", re.MULTILINE)


class Parameters(griffe.Extension):
    """Constructors take what they name and pass on, ``from_url`` what the constructor takes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Once the whole package is read."""
        if not cls.path.startswith("tbloom.") or "__init__" not in cls.all_members:
            return
        init = cls.all_members["__init__"]
        expand(init, cls.package[DEFAULTS])
        describe(init, cls.package[DESCRIBED])
        for parameter in init.parameters:
            if isinstance(parameter.default, griffe.ExprName):
                constant = cls.modules_collection[parameter.default.canonical_path]
                parameter.default = getattr(constant, "value", parameter.default)
        if "from_url" in cls.members:
            expand(cls["from_url"], init)
        for name, member in cls.inherited_members.items():
            cls.set_member(name, member)


def expand(function: griffe.Function, by: griffe.Function) -> None:
    """Replaces a function's ``**`` by the parameters of another one."""
    for rest in [one for one in function.parameters if one.kind.value == "variadic keyword"]:
        del function.parameters[rest.name]
        for one in by.parameters if "Unpack" in str(rest.annotation) else ():
            if one.kind.value == "keyword-only" and one.name != INTERNAL:
                function.parameters.add(one)


def describe(init: griffe.Function, by: griffe.Function) -> None:
    """Describes these parameters where the constructor itself does not."""
    if init.docstring and ":param" in init.docstring.value:
        known = {field[1]: field[0] for field in _FIELD.finditer(by.docstring.value)}
        own = {field[1] for field in _FIELD.finditer(init.docstring.value)}
        more = "".join(known[one.name] for one in init.parameters if one.name in known.keys() - own)
        init.docstring.value = init.docstring.value.replace(":raises", f"{more}:raises", 1)
