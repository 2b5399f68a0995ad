"""Verbs: methods that are declared once, as flows (``engine/flow``), in a class that a sync and an async one share.

    class Verbs(Store[Client, Config]):
        @verb
        def add(self, item: Item) -> Flow[bool]: ...

    class Sync(Verbs, SyncDriver): ...  # add() returns a bool
    class Async(Verbs, AsyncDriver): ...  # add() returns it to an await

The classes get a method for each verb when they are made, unless the class defines that name itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from tbloom.engine.batcher import Batcher, BatchItem
    from tbloom.engine.flow import Flow

P = ParamSpec("P")
T = TypeVar("T")
AnyFlow = Callable[..., "Flow[Any]"]
MakesBatchItem = TypeVar("MakesBatchItem", bound=Callable[..., "tuple[BatchItem, Any]"])


class verb(Generic[P, T]):  # noqa: N801 - a decorator
    """The declaration of a flow as a verb."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self.flow: Callable[Concatenate[Any, P], Flow[T]] = flow
        self.__doc__ = flow.__doc__
        self.asked: Callable[..., tuple[BatchItem, Any]] | None = None

    def batched(self, asked: MakesBatchItem) -> MakesBatchItem:
        """Register how one item joins a shared asyncio batch (``engine/batcher``)."""
        self.asked = asked
        return asked

    if TYPE_CHECKING:  # the types of the methods that replace it

        @overload
        def __get__(self, obj: SyncVerbs, kind: object) -> Callable[P, T]: ...
        @overload
        def __get__(self, obj: AsyncVerbs, kind: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, obj: None, kind: type[SyncVerbs]) -> Callable[Concatenate[Any, P], T]: ...
        @overload
        def __get__(
            self, obj: None, kind: type[AsyncVerbs]
        ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, obj: None, kind: object) -> verb[P, T]: ...
        def __get__(self, obj: object, kind: object) -> Any: ...


class _Verbs:
    """A class that gets a method for each verb when it is made."""

    @classmethod
    def _method(cls, declared: verb[Any, Any]) -> Callable[..., Any]:
        """Return the method that replaces a declared verb in the class."""
        raise NotImplementedError

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in {name: None for base in cls.__mro__ for name in vars(base)}:
            declared = getattr(cls, name, None)
            if isinstance(declared, verb):
                setattr(cls, name, _finished(cls._method(declared), declared.flow, cls))


class SyncVerbs(_Verbs):
    """A class whose verbs block until they have their answers."""

    run: Callable[..., Any]

    @classmethod
    def _method(cls, declared: verb[Any, Any]) -> Callable[..., Any]:
        flow = declared.flow

        def method(self: SyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            return self.run(flow(self, *args, **arguments))

        return method


class AsyncVerbs(_Verbs):
    """A class whose verbs are awaited."""

    run: Callable[..., Coroutine[Any, Any, Any]]
    #: The shared calls of tasks; None if no verb has them.
    _batcher: Batcher | None = None

    @classmethod
    def _method(cls, declared: verb[Any, Any]) -> Callable[..., Any]:
        flow, asked = declared.flow, declared.asked

        async def method(self: AsyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            if self._batcher is not None:
                await self._batcher.settle()
            return await self.run(flow(self, *args, **arguments))

        if asked is None:
            return method

        async def joining(self: AsyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            assert self._batcher is not None  # noqa: S101 - the driver's
            return await self._batcher.ask(*asked(self, *args, **arguments))

        return joining


def _finished(method: Any, flow: AnyFlow, cls: type) -> Any:
    """Give the method the name, documentation and types of the flow, as if it were written in the class."""
    update_wrapper(method, flow)
    # Tracebacks name the frame by its code.
    code = method.__code__
    method.__code__ = code.replace(
        co_name=flow.__name__, co_qualname=f"{cls.__name__}.{flow.__name__}"
    )
    method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{flow.__name__}"
    declared = signature(flow)
    answer = str(declared.return_annotation).removeprefix("Flow[").removesuffix("]")
    method.__annotations__ = {**flow.__annotations__, "return": answer}
    method.__signature__ = declared.replace(return_annotation=answer)
    return method
