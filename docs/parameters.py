"""How Griffe shows tbloom's classes: verbs as methods, all parameters with their defaults, own members before inherited ones."""

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
    """Constructors take what they name and pass on, ``from_url`` what the constructor takes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Once the whole package is read."""
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
        # Last what each store has.
        inherited = sorted(cls.inherited_members.items(), key=lambda item: is_of_engine(item[1]))
        for name, member in inherited:
            is_verb = any(str(one.value) == "verb" for one in getattr(member, "decorators", ()))
            cls.set_member(name, method_of(member, kinds) if is_verb and kinds else member)
        for name, member in cls.members.items():
            if not member.docstring:
                member.docstring = inherited_docstring(cls, name)


def is_of_engine(member: griffe.Alias) -> bool:
    """The member is one that all stores have."""
    return member.final_target.path.startswith("tbloom.engine.")


def method_of(verb: griffe.Alias, kinds: set[str]) -> griffe.Function:
    """The method that a class of this kind has for a verb: its answer is the flow's."""
    function = copy.copy(verb.final_target)
    function.returns = function.returns.slice  # of Flow[...]
    function.labels = {"async"} if "AsyncVerbs" in kinds else set()
    function.decorators = []
    return function


def inherited_docstring(cls: griffe.Class, name: str) -> griffe.Docstring | None:
    """The docstring of the same member of the nearest base class that has one."""
    members = (base.members.get(name) for base in cls.mro())
    return next((one.docstring for one in members if one and one.docstring), None)


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
