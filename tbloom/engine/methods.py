"""Verbs: methods that are declared once, as flows (``engine/flow``), for a sync and an async class.

    class Verbs(Store[Client, Config]):
        @verb
        def add(self, item: Item) -> Flow[bool]: ...

    class Sync(Verbs, SyncDriver): ...  # add() returns a bool
    class Async(Verbs, AsyncDriver): ...  # add() returns it to an await

A class gets a method for each verb when it is defined, unless it defines that name itself.

Type checkers see one of two declarations of ``verb``. For mypy and at run time, ``verb`` is the class ``Verb``, whose
``__get__`` has the types of the two methods. Pyright and others compare the methods of protocols and subclasses with functions
only, so for them ``verb`` is a function. ``MYPY`` tells them apart, because mypy takes that name for True; all read the same stub
files, so these could not.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from inspect import signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    overload,
)

from tbloom.engine.forks import NotCopied

if TYPE_CHECKING:
    from tbloom.engine.batcher import Batcher, SharedCall
    from tbloom.engine.flow import Flow

P = ParamSpec("P")
T = TypeVar("T")
AnyFlow = Callable[..., "Flow[Any]"]
MakesKeys = TypeVar("MakesKeys", bound=Callable[..., Any])
MakesSharedCall = TypeVar("MakesSharedCall", bound=Callable[..., "tuple[SharedCall, Any]"])


class Verb(Generic[P, T]):
    """A flow that is declared as a verb."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self.flow: Callable[Concatenate[Any, P], Flow[T]] = flow
        self.__doc__ = flow.__doc__
        self.shared_call: Callable[..., tuple[SharedCall, Any]] | None = None
        self.keys: Callable[[Any, Any], tuple[Iterable[Any], Iterable[Any]]] | None = None
        self.removes: bool = False

    def adds(self, keys: MakesKeys) -> MakesKeys:
        """Register how copies of the items that it adds are made, and their keys.

        It waits for shared calls in which cancelled tasks add them. Meanwhile, the caller may change the items.
        """
        self.keys = keys
        return keys

    def shared(self, shared_call: MakesSharedCall) -> MakesSharedCall:
        """Register which call of asyncio tasks its item joins (``engine/batcher``), and as what."""
        self.shared_call = shared_call
        return shared_call

    if TYPE_CHECKING:  # the types of the methods that replace the verb

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
        def __get__(self, obj: None, kind: object) -> Verb[P, T]: ...
        def __get__(self, obj: object, kind: object) -> Any: ...


#: True for mypy only (see above).
MYPY = False
if TYPE_CHECKING and not MYPY:
    # A method returns what ``run`` returns, which mypy can't derive.
    A = TypeVar("A")
    A_co = TypeVar("A_co", covariant=True)
    T_contra = TypeVar("T_contra", contravariant=True)

    class Runs(Protocol[T_contra, A_co]):
        """An object that runs flows."""

        def run(self, flow: Flow[T_contra], /) -> A_co:
            """Run a flow and return its result."""

    def verb(
        flow: Callable[Concatenate[Any, P], Flow[T]],
    ) -> Callable[Concatenate[Runs[T, A], P], A]:
        """Declare a flow as a verb."""

    def removing(declared: T) -> T:
        """See below."""

else:
    verb = Verb

    def removing(declared: T) -> T:
        """Let a verb that removes items wait for shared calls in flight in which cancelled tasks add any."""
        declared.removes = True  # type: ignore[attr-defined] # a Verb
        return declared


class _Verbs(NotCopied):
    """A class that gets a method for each verb when it is defined."""

    @classmethod
    def _method(cls, declared: Verb[Any, Any]) -> Callable[..., Any]:
        """Return the method that replaces a declared verb in the class."""
        raise NotImplementedError

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in {name: None for base in cls.__mro__ for name in vars(base)}:
            declared = getattr(cls, name, None)
            if isinstance(declared, Verb):
                setattr(cls, name, _finished(cls._method(declared), declared.flow, cls))


class SyncVerbs(_Verbs):
    """A class whose verbs block until they have their answers."""

    run: Callable[..., Any]

    @classmethod
    def _method(cls, declared: Verb[Any, Any]) -> Callable[..., Any]:
        flow = declared.flow

        def method(self: SyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            return self.run(flow(self, *args, **arguments))

        return method


class AsyncVerbs(_Verbs):
    """A class whose verbs are awaited."""

    run: Callable[..., Coroutine[Any, Any, Any]]
    #: The items that tasks send in shared calls.
    _batcher: Batcher

    @classmethod
    def _method(cls, declared: Verb[Any, Any]) -> Callable[..., Any]:
        flow, shared_call, keys = declared.flow, declared.shared_call, declared.keys

        async def method(self: AsyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            return await self.run(flow(self, *args, **arguments))

        async def adding(self: AsyncVerbs, /, items: Any, *args: Any, **arguments: Any) -> Any:
            assert keys is not None  # noqa: S101 - as below
            if self._batcher.has_cancelled:
                items, added = keys(self, items)
                await self._batcher.wait_for_cancelled(added)
            return await self.run(flow(self, items, *args, **arguments))

        async def removing(self: AsyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            await self._batcher.wait_for_cancelled()
            return await self.run(flow(self, *args, **arguments))

        if declared.removes:
            return removing
        if shared_call is None:
            return method if keys is None else adding

        async def shared(self: AsyncVerbs, /, *args: Any, **arguments: Any) -> Any:
            return await self._batcher.send(*shared_call(self, *args, **arguments))

        return shared


def _finished(method: Any, flow: AnyFlow, cls: type) -> Any:
    """Give the method the name, documentation and types of the flow, as if the class defined it."""
    name, qualname = flow.__name__, f"{cls.__qualname__}.{flow.__name__}"
    method.__module__, method.__name__, method.__qualname__ = cls.__module__, name, qualname
    method.__doc__ = flow.__doc__
    # Types, because texts would be looked up in this module. No ``__wrapped__``, because the flow is a generator.
    declared = signature(flow, eval_str=True)
    answer = get_args(declared.return_annotation)[-1]
    types = {name: one.annotation for name, one in declared.parameters.items() if name != "self"}
    method.__annotations__ = {**types, "return": answer}
    method.__signature__ = declared.replace(return_annotation=answer)
    return method
