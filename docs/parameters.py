"""A Griffe extension that shows verbs as methods, all parameters with their defaults, and own members before inherited ones."""

from __future__ import annotations

import copy
import re
from typing import Any

import griffe

#: Where the parameters that constructors pass on as ``**parameters`` have their defaults, and where they are described.
DEFAULTS = "bloom.config.configure"
DESCRIBED = "bloom.base.Base.__init__"
#: A parameter that constructors do not pass on.
INTERNAL = "prefix"
_FIELD = re.compile(r"^:param (\w+):.*\n(?: .*\n)*", re.MULTILINE)


class Parameters(griffe.Extension):
    """Give constructors the parameters that they pass on, and ``from_url`` those of the constructor."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Complete a class, once the whole package is read."""
        if not cls.path.startswith("tbloom.") or "__init__" not in cls.all_members:
            return
        init = cls.all_members["__init__"]
        expand(init, cls.package[DEFAULTS])
        describe(init, cls.package[DESCRIBED])
        for parameter in init.parameters:
            default = parameter.default
            if isinstance(default, griffe.ExprName) and default.canonical_path.startswith(
                "tbloom."
            ):
                constant = cls.modules_collection[default.canonical_path]
                parameter.default = getattr(constant, "value", parameter.default)
        if "from_url" in cls.members:
            expand(cls["from_url"], init)
        kinds = {base.name for base in cls.mro()} & {"SyncVerbs", "AsyncVerbs"}
        # What all stores have comes last.
        inherited = sorted(cls.inherited_members.items(), key=lambda item: is_of_engine(item[1]))
        for name, member in inherited:
            is_verb = any(str(one.value) == "verb" for one in getattr(member, "decorators", ()))
            cls.set_member(name, method_of(member, kinds) if is_verb and kinds else member)
        for name, member in cls.members.items():
            if not member.docstring:
                member.docstring = inherited_docstring(cls, name)


def is_of_engine(member: griffe.Alias) -> bool:
    """Return whether all stores have this member."""
    return member.final_target.path.startswith("tbloom.engine.")


def method_of(verb: griffe.Alias, kinds: set[str]) -> griffe.Function:
    """Return the method of a verb in a class of these kinds. It returns what the flow returns."""
    function = copy.copy(verb.final_target)
    function.returns = function.returns.slice  # of Flow[...]
    function.labels = {"async"} if "AsyncVerbs" in kinds else set()
    function.decorators = []
    return function


def inherited_docstring(cls: griffe.Class, name: str) -> griffe.Docstring | None:
    """Return the docstring of this member from the nearest base class that has one."""
    members = (base.members.get(name) for base in cls.mro())
    return next((one.docstring for one in members if one and one.docstring), None)


def expand(function: griffe.Function, by: griffe.Function) -> None:
    """Replace a function's ``**`` by the parameters of another function."""
    for rest in [one for one in function.parameters if one.kind.value == "variadic keyword"]:
        del function.parameters[rest.name]
        for one in by.parameters if "Unpack" in str(rest.annotation) else ():
            if one.kind.value == "keyword-only" and one.name != INTERNAL:
                function.parameters.add(one)


def describe(init: griffe.Function, by: griffe.Function) -> None:
    """Describe these parameters where the constructor itself does not."""
    if init.docstring and ":param" in init.docstring.value:
        known = {field[1]: field[0] for field in _FIELD.finditer(by.docstring.value)}
        own = {field[1] for field in _FIELD.finditer(init.docstring.value)}
        more = "".join(known[one.name] for one in init.parameters if one.name in known.keys() - own)
        init.docstring.value = init.docstring.value.replace(":raises", f"{more}:raises", 1)
