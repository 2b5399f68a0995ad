"""A verb that is declared once is a method of one class and a coroutine of the other; a script is its files as they stand."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import (
    AsyncDistinctCounter,
    AsyncExactFilter,
    AsyncLocalBloom,
    AsyncTimeBloom,
    DistinctCounter,
    ExactFilter,
    LocalBloom,
    TimeBloom,
)
from tbloom.distinct import AsyncMemberSet, MemberSet
from tbloom.engine.scripts import Script, files_of
from tbloom.engine.verbs import verb

PAIRS = [
    (TimeBloom, AsyncTimeBloom),
    (ExactFilter, AsyncExactFilter),
    (DistinctCounter, AsyncDistinctCounter),
    (MemberSet, AsyncMemberSet),
    (LocalBloom, AsyncLocalBloom),
]


def verbs_of(cls: type) -> set[str]:
    return {
        name
        for base in cls.__mro__
        for name, declared in vars(base).items()
        if isinstance(declared, verb)
    }


@pytest.mark.parametrize(("sync", "aio"), PAIRS)
def test_both_classes_of_a_store_have_the_same_verbs(sync: Any, aio: Any) -> None:
    declared, ours, theirs = verbs_of(sync), vars(sync), vars(aio)
    assert declared == verbs_of(aio)
    assert len(declared) > 5
    for name in declared:
        for cls in (sync, aio):
            method = vars(cls)[name]
            assert (f"{cls.__name__}.{name}", cls.__module__) == (
                method.__qualname__,
                method.__module__,
            )
            assert "Flow" not in str(inspect.signature(method))
        assert inspect.signature(ours[name]) == inspect.signature(theirs[name])
        assert inspect.iscoroutinefunction(theirs[name])
        assert not inspect.iscoroutinefunction(ours[name])
        assert ours[name].__doc__ == theirs[name].__doc__
        assert ours[name].__doc__ or name.startswith("_")


LUA = Path(__file__).parents[2] / "lua"
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
SCRIPTS = [file for file in FILES if not file.startswith("shared/")]


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_is_its_files_as_they_stand(client: redis.Redis, file: str) -> None:
    """Each file comes after those that it includes; no two of them define one name; a server compiles them."""
    script, texts = Script(file), []
    for name in files_of(file):
        text = (LUA / f"{name}.lua").read_text(encoding="utf-8")
        [names] = re.findall(r"^-- Includes   (.*)$", text, re.MULTILINE)
        included = [] if names == "none" else [f"shared/{each}" for each in names.split(", ")]
        assert {*included} <= {*files_of(file)[: len(texts)]}
        texts.append(text)
    assert script.text == "".join(texts)
    defined = re.findall(r"^local (?:function )?([\w, ]+)", script.text, re.MULTILINE)
    names_defined = Counter(
        name for names in defined for name in names.strip().split(", ") if name != "_"
    )
    assert not {name: times for name, times in names_defined.items() if times > 1}
    assert client.script_load(script.text) == script.sha
