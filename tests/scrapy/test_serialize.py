"""A text restores the request that was there, or NotSerializable says which value it can't restore."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections import Counter, OrderedDict, defaultdict
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import attr
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from scrapy import Field, FormRequest, Item, Request, Selector, Spider
from scrapy.http import HtmlResponse, JsonRequest, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor

from tbloom import Note
from tbloom.claims.packed import pack, unpack
from tbloom.scrapy.done.serialize import (
    NotSerializable,
    Unreadable,
    _state,
    read_token,
    request_from_text,
    request_to_text,
)
from tbloom.scrapy.settings import TOKEN

URL = "https://example.com/a?b=c"
HERE = __name__


class Book(Item):
    title = Field()


@dataclass
class Point:
    """Its constructor must not run again: it would change ``y``."""

    x: Any
    y: Any = field(init=False, default=0)
    scale: InitVar[Any] = 1

    def __post_init__(self, scale: Any) -> None:
        self.y = scale


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any


class Model(BaseModel):
    x: int = 1


@dataclass
class Computed:
    """Its field is a property, which would run at each assignment."""

    x: int = 1


def _assign(_: Any, value: Any) -> None:
    pytest.fail(f"x is {value}")


Computed.x = property(lambda _: 1, _assign)  # type: ignore[assignment]


@dataclass
class Dict(dict):  # type: ignore[type-arg]
    x: int = 1


@dataclass
class Closed:
    x: int = 1

    def __del__(self) -> None: ...


@attrs.define
class Slotted:
    x: Any
    _private: Any = 2
    __mangled: Any = 3


@attr.s
class OldAttrs:
    x = attr.ib()


@attr.s(frozen=True, hash=True, cache_hash=True)
class Hashed:
    x = attr.ib()


class Color(Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796 - a second name


class Size(IntEnum):
    SMALL = 1


class Kind(StrEnum):
    PAPER = "paper"


class Access(Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Raising:
    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        return 1


class PageRequest(Request):
    """A class of requests as projects write them."""

    attributes: tuple[str, ...] = (*Request.attributes, "page")

    def __init__(self, *args: Any, page: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.page = page


class NumberRequest(Request):
    """A class with more than its attributes, of which it can't be made."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = number


class Shop(Spider):
    name = "shop"

    def parse_book(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...

    def __parse(self, response: Any) -> None: ...

    def private(self) -> Any:
        return self.__parse


SPIDER = Shop()


def extended(value: Any) -> Any:
    """An object with an attribute that its class does not know."""
    value.more = (1,)
    return value


def hashed(value: Hashed) -> Hashed:
    """The value, after it has kept its hash."""
    hash(value)
    return value


def loop() -> Any:
    parts: list[Any] = []
    parts.append(parts)
    return parts


def tower(height: int) -> Any:
    """A list that would be written 2 ** height times."""
    parts: list[Any] = []
    for _ in range(height):
        parts = [parts, parts]
    return parts


def deep(height: int, kind: Any = list) -> Any:
    parts: Any = kind()
    for _ in range(height):
        parts = kind([parts])
    return parts


def attributes(value: Any) -> dict[str, Any]:
    """What an object holds."""
    names = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())]
    names = [n if hasattr(value, n) else f"_{type(value).__name__}{n}" for n in names]
    slots = {n: getattr(value, n) for n in names if n != "__weakref__" and hasattr(value, n)}
    return {**getattr(value, "__dict__", {}), **slots}


def shape(value: Any) -> tuple[Any, Any]:
    """The types and the contents of a value at every depth."""
    contents: Any
    if isinstance(value, dict):
        contents = [(shape(key), shape(part)) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        contents = [*map(shape, value)]
    elif isinstance(value, set | frozenset):
        contents = sorted(map(repr, map(shape, value)))
    elif not isinstance(value, Enum | Path) and (state := attributes(value)):
        contents = shape(state)
    else:  # repr() has an end for integers
        contents = hex(value) if type(value) is int else repr(value)
    return type(value), contents


def restored(request: Request) -> Request:
    """The request, from its packed note."""
    text = request_to_text(request, SPIDER)
    assert len(text.encode()) <= 65536
    return request_from_text(unpack(pack(text)), SPIDER)


def refusal(request: Request) -> NotSerializable:
    """Why there is no text."""
    with pytest.raises(NotSerializable) as caught:
        request_to_text(request, SPIDER)
    error = caught.value
    assert str(error) == f"{error.path or 'the request'} {error.problem}"
    return error


VALUES: dict[str, Any] = {
    "letters": 'ßéж漢🕷\x00\n"\\',
    "numbers": [2**63, -(2**63), 10**4000, -0.0, math.nan, -math.inf],
    "dates": [date(2026, 1, 2), timedelta(-1, 2, 3), timedelta.max, datetime.max],  # noqa: DTZ901
    "times with an offset": [datetime(2026, 1, 2, tzinfo=zone) for zone in (UTC, timezone(timedelta(hours=1)))],
    "Decimals": [*map(Decimal, ("1", "-0", "1.50", "1E+999999", "NaN", "sNaN12", "-Infinity", "9" * 99))],
    "UUIDs": [UUID(int=0), UUID("12345678-1234-5678-1234-567812345678")],
    "paths": [Path("/a/b"), Path("c")],
    "sets": [set(), {1, "a", None}, frozenset({(1, b"x"), frozenset({2})})],
    "keys": [{2: "a", None: "b", 1.5: "d", b"x": "e", (1, 2): "f"}, {1: 0}, {True: 0}, {1.0: 0}],
    "dicts that look like a value's": [{"!": 1}, {"!dict": []}, {"!tuple": [1]}, {"a!": 1, "": 2}],
    "items": [Book(), Book(title=Book(title=(1,)))],
    "dataclasses": [Point(2, scale=[3]), Frozen((1,)), {Frozen(1): Frozen(2)}],
    "attrs classes": [Slotted(1, 2, 3), OldAttrs(1)],
    "members of an Enum": [Color.RED, Color.CRIMSON, Access.READ, {Color.RED: 1}, Size.SMALL, Kind.PAPER],
    "lists and tuples in each other": [deep(100), deep(100, tuple), [[1]] * 2],
}  # fmt: skip
REQUESTS: dict[str, Request] = {
    **{name: Request(URL, meta={"x": v}, cb_kwargs={"x": v}) for name, v in VALUES.items()},
    "everything": Request(
        URL, callback=SPIDER.parse_book, errback=SPIDER.failed, method="put", body="é",
        headers={"A": ["1", "2"], "B": b"\xff", "C": []}, cookies={"c": "d"}, encoding="latin-1",
        priority=-3, dont_filter=True, flags=["f"], meta={"depth": 1}, cb_kwargs={"x": b"\xe9"},
    ),
    "a body of bytes": Request(URL, method="POST", body=bytes(range(256))),
    "cookies with paths": Request(URL, cookies=[{"name": "a", "value": "b", "path": "/"}]),
    "an encoding": Request("https://example.com/é?é", encoding="latin-1", headers={"É": "é"}),
    "a URL as it is": Request("https://example.com/a b|c", meta={"verbatim_url": True}),
    "a private method": Request(URL, callback=SPIDER.private()),
    "a form in the URL": FormRequest(URL, formdata={"a": "b c"}, method="GET"),
    "JSON": JsonRequest(URL, data={"a": [1]}, dumps_kwargs={"indent": 1}),
    "an XML call against its defaults": XmlRpcRequest(URL, body=b"", method="GET", dont_filter=False),
    "a project's class": PageRequest(URL, page=2, callback=SPIDER.parse_book),
}  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_comes_back_with_its_class_and_all_attributes(request_: Request) -> None:
    """And the values in its meta and cb_kwargs as what they were."""
    before, after = (each.to_dict(spider=SPIDER) for each in (request_, restored(request_)))
    assert shape(before) == shape(after)


#: Python 3.12 and later say in which module it was made.
made = make_dataclass("Local", "x")
REFUSED: dict[str, tuple[Any, str]] = {
    "a class of the project's": (Raising(), f"{HERE}:Raising"),
    "a key": ({Raising(): 1}, f"{HERE}:Raising"),
    "a class": (Book, "scrapy.item:ItemMeta"),
    "a function": (partial(print), "functools:partial"),
    "a Selector": (Selector(text="<a>"), "scrapy.selector.unified:Selector"),
    "a pydantic model": (Model(), f"{HERE}:Model"),
    "a time of day": (time(1), "datetime:time"),
    "a defaultdict": (defaultdict(list), "collections:defaultdict"),
    "a Counter": (Counter(), "collections:Counter"),
    "the second of two hours": (
        datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        "the second of two equal hours (fold=1)",
    ),
    "another system's path": (PurePosixPath("a"), f"{PurePosixPath.__module__}:PurePosixPath"),
    "an OrderedDict": (OrderedDict(), "collections:OrderedDict"),
    "two flags": (Access.READ | Access.WRITE, f"{HERE}:Access"),
    "a dataclass that is a dict": (Dict(), f"{HERE}:Dict"),
    "a dataclass that can't be imported": (made(1), f"{made.__module__}:Local"),
    "a class with a finalizer": (Closed(), f"{HERE}:Closed"),
    "a hash of this process": (
        hashed(Hashed("x")), f"{HERE}:Hashed with attributes that are no fields: _attrs_cached_hash",
    ),
    **{
        f"{type(value).__name__} with another attribute": (
            extended(value), f"{HERE}:{type(value).__name__} with attributes that are no fields: more",
        )
        for value in (Point(1), OldAttrs(1))
    },
}  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_would_come_back_otherwise_is_named(value: Any, kind: str) -> None:
    error = refusal(Request(URL, meta={"depth": 1, "key": value}))
    assert error.problem in (f"is a {kind}", f"is {kind}")
    assert error.path.startswith("meta['key']")


def test_subclasses_of_str_and_time_zones_come_back_plain() -> None:
    """Such as a link's text, which CrawlSpider keeps in the meta of its requests."""
    body = "<a href='/b'>Émile <b>x</b></a>"
    [link] = LinkExtractor().extract_links(HtmlResponse(URL, body=body, encoding="utf-8"))
    assert type(link.text) is not str
    moment = datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    meta = {"text": link.text, "key": {Text("x"): Text("y")}, "at": moment}
    at = moment.replace(tzinfo=timezone(timedelta(hours=2)))
    expected = {"text": "Émile x", "key": {"x": "y"}, "at": at}
    assert shape(expected) == shape(restored(Request(URL, meta=meta)).meta)


@pytest.mark.parametrize(
    "make",
    [
        loop, lambda: tower(64), lambda: deep(100_000), lambda: deep(100_000, tuple), lambda: "é" * 40_000,
        lambda: b"\xff" * 40_000, lambda: 1 << 300_000, lambda: ["x" * 60_000] * 60_000, lambda: [None] * 10**6,
        lambda: "\ud83d", lambda: {"\ud83d\udd77": 1},
    ],
)  # fmt: skip
def test_endless_values_and_no_texts_are_refused_at_once(make: Any) -> None:
    refusal(Request(URL, meta={"key": make()}))


scalars = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals(),
    st.text() | st.binary() | st.characters(categories=["Cs"]),
    st.dates() | st.datetimes(timezones=st.none() | st.just(UTC)) | st.timedeltas(),
    st.sampled_from([*Color, *Access, Access.READ | Access.WRITE, Path("x")]),
    st.uuids(),
)
keys = st.recursive(
    scalars.filter(lambda value: "nan" not in str(value).lower()),  # some have no hash
    lambda part: st.tuples(part) | st.frozensets(part, max_size=3) | st.builds(Frozen, part),
    max_leaves=5,
)
values = st.recursive(
    scalars | keys,
    lambda part: st.one_of(
        st.lists(part, max_size=3) | st.tuples(part, part) | st.sets(keys, max_size=3),
        st.dictionaries(keys | st.sampled_from(["!", "!tuple", "a"]), part, max_size=3),
        st.builds(Point, part, part) | st.builds(Slotted, part) | st.builds(OldAttrs, part),
        st.builds(Book, title=part) | st.builds(Dict),
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text(max_size=3) | keys, values, max_size=3),
    st.sampled_from([Request, PageRequest]),
)
def test_any_meta_comes_back_or_is_refused(meta: dict[Any, Any], kind: type[Request]) -> None:
    request = kind(URL, meta=meta)
    try:
        text = request_to_text(request, SPIDER)
    except NotSerializable:
        assert refusal(request)
    else:
        assert shape(meta) == shape(request_from_text(text, SPIDER).meta)


def changed(name: str, value: Any, request: Request | None = None) -> Request:
    """A request one attribute of which has been set after it was made."""
    request = request or Request(URL)
    setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (Request(URL, meta={"a": [1, {"b": object()}]}), "meta['a']['b']"),
        (Request(URL, meta={"x" * 99: object()}), f"meta['{'x' * 39}]"),
        (Request(URL, cb_kwargs={"book": Book(title=object())}), "cb_kwargs['book']['title']"),
        (Request(URL, cookies={"a": object()}), "cookies['a']"),
        *((Request(URL, callback), "") for callback in (lambda _: None, partial(print), NO_CALLBACK, Shop.failed)),
        # Its class would change these.
        (changed("method", "post"), "method"), (changed("flags", ("a",)), "flags"), (changed("cookies", []), "cookies"),
        (changed("dont_filter", Raising()), "dont_filter"), (changed("more", 1, PageRequest(URL)), "more"),
        (NumberRequest(1, URL), ""), (type("Made", (Request,), {})(URL), ""),
    ],
    ids=lambda value: f"{type(value).__name__} {value}",
)  # fmt: skip
def test_an_error_has_the_path_to_the_value(request_: Request, path: str) -> None:
    assert path == refusal(request_).path


def test_a_request_is_kept_without_its_token() -> None:
    request = Request(URL, meta={TOKEN: ["session", 1, "ab"], "depth": 2})
    text = request_to_text(request, SPIDER)
    assert {"url": URL, "meta": {"depth": 2}} == json.loads(text)
    claimed = json.dumps({"url": URL, "meta": request.meta})
    assert {"depth": 2} == request_from_text(claimed, SPIDER).meta
    assert TOKEN in request.meta


def test_a_request_whose_text_is_made_is_as_before() -> None:
    """scrapy#5307: what Scrapy makes for it when it is asked for would stay in the queue, with each request."""
    request = Request(URL, callback=SPIDER.parse_book, meta={"book": Book()})
    before = _state(request)
    request_to_text(request, SPIDER)
    assert before == _state(request)


# What another program may write to Redis


def tagged(kind: str, content: Any) -> str:
    return json.dumps({"url": URL, "meta": {"x": {f"!{kind}": content}}})


ORDINARY = request_to_text(Request(URL, callback=SPIDER.parse_book, meta={"book": Book()}), SPIDER)
HOSTILE = [
    "", " ", "x", "null", "1", "[]", '"x"', "{}", '{"url": 1}', '{"url": null}', '{"url": "x"}',
    "[" * 65_000, '{"!tuple":[' * 5_000, '{"url": ' + "9" * 60_000 + "}", "\ud83d", ORDINARY[:-1],
    ORDINARY + " " * 65_536, ORDINARY + "}", "__import__('os').abort()", "(" * 60_000,
    # Scrapy would encode it, for minutes.
    json.dumps({"url": "http://e.com/" + "漢é" * 5_000, "encoding": "punycode"}),
    *(json.dumps({"url": URL, **more}) for more in [
        {"callback": "<script> x" * 5_000}, {"callback": "\n"}, {"callback": ["parse"]}, {"_class": "a b:c d" * 5_000},
        {"callback": "nothing"}, {"callback": "name"}, {"callback": "crawler"}, {"callback": 1}, {"errback": "name"},
        {"callback": {"!builtins:print": {}}}, {"meta": 1}, {"meta": "x"}, {"headers": 1}, {"cb_kwargs": 1},
        {"priority": "x"}, {"encoding": "no such"}, {"encoding": "zlib"}, {"body": 1}, {"flags": 1},
        {"_class": 1}, {"_class": ""}, {"_class": "os:abort"}, {"_class": "scrapy:Spider"}, {"_class": f"{HERE}:Book"},
        {"_class": "antigravity:Request"}, {"_class": f"{HERE}:NumberRequest"},
    ]),
    *(tagged(kind, content) for kind, content in [
        ("", 1), (":", 1), ("a:b", 1), ("os:system", "true"), ("builtins:eval", "1"), ("builtins:object", {}),
        ("subprocess:Popen", {"args": "true"}), ("collections:OrderedDict", {}), ("this:c", {}), (f"{HERE}:Model", {"x": 1}), ("scrapy:Spider", {}),
        ("scrapy.http.request:Request", {}), (f"{HERE}:Closed", {}), (f"{HERE}:Dict", {}), (f"{HERE}:SPIDER.name", {}),
        (f"{HERE}:Book.fields", {}), (f"{HERE}:Book", 1), (f"{HERE}:Frozen", {"y": 1}), (f"{HERE}:Color", "BLUE"),
        (f"{HERE}:Color", None), ("bytes", "漢"), ("int", 5), ("date", 1),
        ("Decimal", "x"), ("Decimal", {}), ("decimal:Decimal", "1"), ("UUID", 1), ("UUID", "x"), ("time", 1),
        ("datetime", ["2026-01-01", 1, 0]), ("datetime", "now"), ("timedelta", [10**30]), ("set", [[]]),
        ("dict", [[[], 1]]), ("PosixPath", 1), ("str", 1), (f"{HERE}:Book", {"author": 1}),
        *((f"{HERE}:Point", {name: 1}) for name in ("z", "__class__", "__dict__", "__init__")),
    ]),
]  # fmt: skip


UNREADABLE = {
    "a callback that is gone": ({"callback": "parse_article"}, "parse_article"),
    "an errback that is gone": ({"callback": "parse_book", "errback": "log_failure"}, "log_failure"),
    "a callback that is no method": ({"callback": "name"}, "name"),
    "a class that has moved": ({"meta": {"x": {"!shop.items:Book": {}}}}, "Book"),
    "a request's class that has moved": ({"_class": "shop:PageRequest"}, "PageRequest"),
    "a field that is gone": ({"meta": {"x": {f"!{HERE}:Book": {"author": 1}}}}, "Book"),
    "a member of an Enum that is gone": ({"cookies": {"a": {f"!{HERE}:Color": "BLUE"}}}, "Color"),
    "a kind of a later version": ({"meta": {"x": {"!Fraction": "1/2"}}}, "Fraction"),
    "a packed note that is cut off": ({"_damaged": "it is cut off"}, "note"),
    "what its class does not take": ({"_class": f"{HERE}:NumberRequest"}, "TypeError"),
}  # fmt: skip


UNREAD = [(json.dumps({"url": URL, **fields}), name) for fields, name in UNREADABLE.values()]


@pytest.mark.parametrize(
    ("text", "name"),
    [*((text, None) for text in HOSTILE), *UNREAD],
    ids=[*map(str, range(len(HOSTILE))), *UNREADABLE],
)
def test_a_text_that_is_no_request_raises_a_value_error(text: str, name: str | None) -> None:
    """Its name can stand in a stat's name, and on a page."""
    modules = {*sys.modules} - {name for name in sys.modules if name.startswith("encodings.")}
    with pytest.raises(Unreadable, match="not the text of a request") as caught:
        request_from_text(text, SPIDER)
    assert isinstance(caught.value, ValueError)
    assert re.fullmatch(r"[\w.]{1,80}", caught.value.name)
    assert name in (None, caught.value.name)
    new = {name for name in sys.modules.keys() - modules if not name.startswith("encodings.")}
    assert set() == new


def test_a_text_without_fingerprints_is_no_note() -> None:
    with pytest.raises(Unreadable, match="not a note") as caught:
        read_token(Note("x"), "session")
    assert "note" == caught.value.name


def test_a_lazy_module_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be executed."""
    spec: Any = importlib.util.find_spec("antigravity")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazy)
    monkeypatch.setitem(sys.modules, "antigravity", lazy)
    with pytest.raises(ValueError, match="not the text"):
        request_from_text(tagged("antigravity:Book", {}), SPIDER)
    assert type(lazy) is not ModuleType


def test_fields_of_an_item_are_not_set_through_its_properties() -> None:
    """No code runs."""
    made = request_from_text(tagged(f"{HERE}:Computed", {"x": 4}), SPIDER)
    assert isinstance(made.meta["x"], Computed)
