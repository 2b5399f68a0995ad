"""A verb that is declared once is a method of one class and a coroutine of the other, as if each were written by hand."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tbloom import (
    AsyncExactFilter,
    AsyncLocalBloom,
    AsyncTimeBloom,
    ExactFilter,
    LocalBloom,
    TimeBloom,
)
from tbloom.distinct import AsyncDistinctCounter, AsyncMemberSet, DistinctCounter, MemberSet
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
