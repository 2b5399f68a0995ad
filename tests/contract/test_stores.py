"""One suite for all stores: what ``add``, ``contains``, ``clear`` and ``info`` do alike, and what they don't.

The differences: ``TimeBloom`` and ``LocalBloom`` forget a whole slice at once, ``ExactFilter`` each item when its time is up
(local/test_filter.py, exact/test_filter.py); the first two may take an item for another one, ``ExactFilter`` never does.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tbloom import ConfigError, LocalBloom, TBloomError
from tbloom.distinct import AsyncMemberSet, MemberSet
from tbloom.engine.methods import verb
from tbloom.pages import PageStore
from tests.helpers.making import Awaited
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

#: Two slices of an hour, or two hours for each item: an hour later it is remembered, three hours later not.
WINDOW: dict[str, Any] = {"granularity": "h", "slices": 2, "capacity": 1000}
#: A filter that never forgets.
FOREVER: dict[str, Any] = {"granularity": None, "slices": None, "capacity": 1000}
#: The stores on a server, with their parameters.
SERVED: dict[str, tuple[Store, dict[str, Any]]] = {
    "bloom": (BLOOM, WINDOW),
    "forever": (BLOOM, FOREVER),
    "exact": (EXACT, {"ttl": 7200}),
    "distinct": (DISTINCT, {}),
}
STORES = ["bloom", "exact", "local", "local file"]
EVERY = [*STORES, "forever", "distinct"]


def opens(kind: str, url: str, name: str, tmp_path: Path) -> Callable[..., Any]:
    """Opens a store of this kind, on one server or in one file."""
    store, given = SERVED.get(kind, (None, WINDOW))
    if store is not None:
        return partial(store.open, url, name, **given)
    path = {"path": tmp_path / "seen.tbloom"} if kind == "local file" else {}
    return partial(LocalBloom, name=name, **path, **given)


@pytest.fixture
def open_one(
    request: pytest.FixtureRequest, url: str, name: str, tmp_path: Path
) -> Callable[..., Any]:
    return opens(request.param, url, name, tmp_path)


@pytest.fixture(params=[*EVERY, *(f"{kind}, asyncio" for kind in SERVED)])
def seen(request: pytest.FixtureRequest, url: str, name: str, tmp_path: Path) -> Any:
    """A store of each kind; its verbs are to be awaited."""
    kind, _, driver = request.param.partition(", ")
    open_one = opens(kind, url, name, tmp_path)
    return open_one(driver="async") if driver else Awaited(open_one())


async def test_an_item_is_new_once(seen: Any) -> None:
    assert [True, False] == [await seen.add("https://a.example/") for _ in range(2)]


async def test_an_integer_is_its_decimal_text(seen: Any) -> None:
    assert [True, False] == [await seen.add(13800138000), await seen.add("13800138000")]
    assert [False, True, False, True] == await seen.add_many([13800138000, -5, b"-5", "5"])


async def test_a_buffer_is_its_bytes_during_the_call(seen: Any) -> None:
    buffer = bytearray(b"a/1")
    assert await seen.add(buffer) is True
    buffer[:] = b"a/22"
    strided = memoryview(b"a-/-1-")[::2]
    assert [False] * 3 == [await seen.add(item) for item in (b"a/1", bytearray(b"a/1"), strided)]
    one = memoryview(b"7").cast("B", shape=[])
    assert [True, False, True, False] == await seen.add_many([memoryview(buffer), "a/22", one, 7])
    buffer[:] = b"a/333"
    assert [True, False] == [await seen.contains(memoryview(b"a/22")), await seen.contains(buffer)]
    assert [True, False] == await seen.contains_many([bytearray(b"a/22"), buffer])
    with pytest.raises(ConfigError, match=r"^(item|member): expected str, bytes, bytearray, memo"):
        await seen.add(3.5)


async def test_a_batch_answers_in_order_and_a_repeat_is_seen(seen: Any) -> None:
    await seen.add("ä")
    assert [True, False, False, True] == await seen.add_many(iter(["a", "ä", "a", b"\xff"]))
    assert [True, True] == await seen.add_many([b"\xff\0", b"\xfe"])
    assert await seen.add_many([]) == []


@pytest.mark.parametrize("seen", [*STORES, "bloom, asyncio", "exact, asyncio"], indirect=True)
async def test_items_are_looked_for_in_order_and_nothing_changes(seen: Any) -> None:
    assert [False, False] == [await seen.contains("a"), await seen.contains("a")]
    assert [True, True] == await seen.add_many(["a", "c"])
    assert await seen.contains("a") is True
    assert [True, False, True, True] == await seen.contains_many(iter(["a", "x", "a", b"c"]))
    assert await seen.contains_many(iter([])) == []


async def test_clear_forgets_everything(seen: Any) -> None:
    await seen.add_many(["a", "b"])
    await seen.clear()
    assert [True, True, False] == await seen.add_many(["b", "a", "b"])


async def test_info_counts_the_items(seen: Any) -> None:
    await seen.add_many(["a", "b", "a"])
    info = await seen.info()
    assert 2 == (info.items if hasattr(info, "items") else info.count)
    assert info.bytes > 0
    assert 0 <= getattr(info, "error_rate", 0) < 1e-4
    assert () == info.warnings


async def test_a_closed_store_answers_no_more(seen: Any) -> None:
    """Also to what it has answered before; to close it again changes nothing."""
    await seen.add("a")
    for _ in range(2):
        await seen.aclose()
    calls = [
        ("add", "a"),
        ("add", "b"),
        ("add_many", ["b"]),
        ("contains", "a"),
        ("info",),
        ("clear",),
    ]
    for method, *arguments in calls:
        with pytest.raises(TBloomError, match=r" is closed; make another "):
            await getattr(seen, method)(*arguments)


async def test_an_item_that_is_none_is_refused(seen: Any) -> None:
    for item in ("", b"", bytearray(), memoryview(b""), None, True, 10**5000, "\ud800", ["a"]):
        with pytest.raises(ConfigError, match=r"^(item|member): expected ") as alone:
            await seen.add(item)
        with pytest.raises(ConfigError, match=r"^(item|member)s\[1\]: expected ") as among:
            await seen.add_many(["a", item])
        says_why = ["(surrogates not allowed at 0)" in str(each.value) for each in (alone, among)]
        assert says_why == [item == "\ud800"] * 2
    assert await seen.add("a") is True  # nothing was added


async def test_items_are_an_iterable(seen: Any) -> None:
    for items in ("abc", b"abc", bytearray(b"a"), memoryview(b"a"), None, 3):
        with pytest.raises(ConfigError, match=r"^(item|member)s: expected an iterable of "):
            await seen.add_many(items)


@pytest.mark.parametrize(
    "open_one",
    [
        "bloom",
        "forever",
        *(pytest.param(kind, marks=pytest.mark.check) for kind in [*STORES[1:], "distinct"]),
    ],
    indirect=True,
)
def test_of_many_threads_one_gets_new(open_one: Callable[..., Any]) -> None:
    seen, answers, start = open_one(), list[bool](), threading.Barrier(8)

    def work() -> None:
        start.wait()
        for i in range(100):
            answers.append(seen.add(f"one by one {i}"))
        answers.extend(seen.add_many(f"together {i}" for i in range(100)))

    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(work) for _ in range(8)]:
            job.result()
    assert (200, 1400) == (answers.count(True), answers.count(False))


@pytest.mark.parametrize(
    ("open_one", "is_exact"), [(kind, kind == "exact") for kind in STORES], indirect=["open_one"]
)
def test_only_the_exact_one_never_takes_an_item_for_another(
    open_one: Callable[..., Any], *, is_exact: bool
) -> None:
    """The others as seldom as is promised: here a full one, at 1 in 10."""
    seen = open_one(**({} if is_exact else {"error_rate": 0.1, "slices": 1, "granularity": "m"}))
    seen.add_many(str(i) for i in range(1000))
    found = sum(seen.contains_many(f"never {i}" for i in range(10_000)))
    assert found == 0 if is_exact else 0 < found <= 1100


PAIRS = [
    *((store.sync, store.aio) for store in (BLOOM, EXACT, DISTINCT)),
    (MemberSet, AsyncMemberSet),
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
    """A verb that is declared once is a method of one class and a coroutine of the other, as if each were written by hand."""
    declared = verbs_of(sync)
    assert declared == verbs_of(aio)
    assert len(declared) > 5
    for name in declared:
        ours, theirs = vars(sync)[name], vars(aio)[name]
        assert f"{aio.__name__}.{name}" == theirs.__qualname__
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert not inspect.iscoroutinefunction(ours)
        assert inspect.iscoroutinefunction(theirs)
        assert ours.__doc__ == theirs.__doc__
        assert ours.__doc__ or name.startswith("_")


@pytest.mark.parametrize("cls", [*(cls for pair in PAIRS for cls in pair), LocalBloom, PageStore])
def test_the_types_of_methods_are_known(cls: type) -> None:
    """As of functions that were written by hand, to all that read signatures: FastAPI, pydantic, mocks (fastapi#14445)."""
    for name, method in inspect.getmembers(cls, inspect.isroutine):
        if name.startswith("_") and name != "__init__":
            continue
        hints = get_type_hints(method)
        parameters = inspect.signature(method, eval_str=True).parameters
        assert hints.keys() - {"return"} == parameters.keys() - {"self"}
        assert "Flow" not in str(hints["return"])
