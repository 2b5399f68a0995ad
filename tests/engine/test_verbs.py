"""A verb that is declared once is a method of one class and a coroutine of the other, as if each were written by hand."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

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
from tbloom.engine.flow import Command, Flow, deliver
from tbloom.engine.verbs import AsyncVerbs, SyncVerbs, verb

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


class Greeting:
    @verb
    def greet(self, name: str, *, loud: bool = False) -> Flow[list[str]]:
        """A greeting for each."""
        [hello] = yield from deliver([Command(("ECHO", "hello"))])
        return [hello.upper() if loud else hello, name]

    @verb
    def leave(self) -> Flow[None]:
        yield from deliver([Command(("ECHO", "goodbye"))])


class Waiting(Greeting, SyncVerbs):
    def run(self, flow: Flow[Any]) -> Any:
        calls = next(flow)
        try:
            flow.send([words[1] for words in [call.words for call in calls]])
        except StopIteration as stop:
            return stop.value


class Awaiting(Greeting, AsyncVerbs):
    async def run(self, flow: Flow[Any]) -> Any:
        return Waiting().run(flow)


async def test_both_classes_have_the_verb() -> None:
    assert ["HELLO", "you"] == Waiting().greet("you", loud=True)
    assert ["hello", "you"] == await Awaiting().greet(name="you")


@pytest.mark.parametrize("cls", [Waiting, Awaiting])
def test_what_is_asked_of_a_method(cls: Any) -> None:
    method = cls.greet
    assert "(self, name: 'str', *, loud: 'bool' = False) -> 'list[str]'" == str(
        inspect.signature(method)
    )
    assert {"name": str, "loud": bool, "return": list[str]} == get_type_hints(method)
    assert "A greeting for each." == inspect.getdoc(method)
    assert (f"{cls.__name__}.greet", cls.__module__) == (method.__qualname__, method.__module__)
    assert inspect.isgeneratorfunction(method.__wrapped__)
    assert inspect.iscoroutinefunction(method) == (cls is Awaiting)
    assert method is vars(cls)["greet"]  # nothing is looked up in a call


@pytest.mark.parametrize(("sync", "aio"), PAIRS)
def test_both_classes_of_a_store_have_the_same_verbs(sync: Any, aio: Any) -> None:
    declared, ours, theirs = verbs_of(sync), vars(sync), vars(aio)
    assert declared == verbs_of(aio)
    assert len(declared) > 5
    for name in declared:
        assert inspect.signature(ours[name]) == inspect.signature(theirs[name])
        assert inspect.iscoroutinefunction(theirs[name])
        assert not inspect.iscoroutinefunction(ours[name])
        assert ours[name].__doc__ == theirs[name].__doc__
        assert ours[name].__doc__ or name.startswith("_")
