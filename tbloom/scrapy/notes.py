"""A note of a request: the text from which another crawler restores it after its own crawler has died.

A note restores exactly what was there, or is refused: types count, not only values. (A list in two places becomes two
equal ones.) It is JSON, in which ``{"!kind": ...}`` is a value that JSON lacks: ``{"!shop:Book": {"title": "Emma"}}``.
A client that can write to Redis can't run code here: a note names classes that have been imported, of few kinds
(`_is_open`), and their objects get their attributes back without ``__init__`` or ``__setstate__``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import MemberDescriptorType, MethodType, ModuleType, NoneType
from typing import Any
from zoneinfo import ZoneInfo

from lxml import etree  # type: ignore[import-untyped]
from scrapy import Item, Request, Spider
from scrapy.utils.request import request_from_dict

from tbloom.scrapy.settings import CLAIM

_MAX_BYTES = 1 << 16
#: JSON has smaller integers as they are: Python limits the digits of those that it reads.
_BIG = 1 << 63
#: The class of a link's text, which CrawlSpider keeps in the meta of its requests.
_LinkText: Any = type(etree.XPath("string()")(etree.Element("a")))


def _moment(value: Any) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.tzinfo, value.fold]


def _zone(value: ZoneInfo) -> str:
    if ZoneInfo(value.key) is not value:  # it has been made from a file
        raise NotNotable(ZoneInfo)
    return value.key


def _link_text(value: Any) -> str:
    if value.getparent() is not None:  # and a document
        raise NotNotable(_LinkText)
    return str(value)


#: What is written of a value of each class, and how it becomes the value again.
_KINDS: dict[type[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    dict: (lambda value: [*map(list, value.items())], dict),
    bytes: (lambda value: value.decode("latin-1"), lambda text: text.encode("latin-1")),
    int: (hex, lambda text: int(text, 16)),
    Decimal: (str, Decimal),
    date: (date.isoformat, date.fromisoformat),
    datetime: (_moment, lambda p: datetime.fromisoformat(p[0]).replace(tzinfo=p[1], fold=p[2])),
    time: (_moment, lambda p: time.fromisoformat(p[0]).replace(tzinfo=p[1], fold=p[2])),
    timedelta: (lambda v: [v.days, v.seconds, v.microseconds], lambda parts: timedelta(*parts)),
    timezone: (lambda value: [*value.__getinitargs__()], lambda parts: timezone(*parts)),
    ZoneInfo: (_zone, ZoneInfo),
    _LinkText: (_link_text, _LinkText),
}
_MAKERS = {kind.__name__: make for kind, (_, make) in _KINDS.items()}


class NotNotable(ValueError):
    """No note can restore the value at ``path`` (``meta['item']``), which is of the class ``kind``."""

    def __init__(self, kind: type[Any], problem: str = "", path: str = "") -> None:
        self.kind: str = _name(kind).replace(":", ".").removeprefix("builtins.")
        self.problem: str = problem
        self.path: str = path

    def __str__(self) -> str:
        return f"{self.path} is a {self.kind}{self.problem}"


def note_request(request: Request, spider: Spider) -> str:
    """The text of the request alone. Raises NotNotable if it could not be restored exactly."""
    try:
        return _note(request, spider)
    except NotNotable:
        raise
    except Exception as error:  # classes of the project raise what they like
        raise NotNotable(type(request), f": {error}", "request") from error


def restore_request(text: str, spider: Spider) -> Request:
    """The request of a note. Raises ValueError if it can't be restored."""
    try:
        return _restore(text, spider)
    except Exception as error:  # classes of the project raise what they like
        raise ValueError(f"not the note of a request: {error}") from error


def _note(request: Request, spider: Spider) -> str:
    fields = request.to_dict(spider=spider)
    fields["meta"] = {key: value for key, value in request.meta.items() if key != CLAIM}
    kind = type(request)
    if kind is Request:  # another class may have other defaults
        for name, default in _DEFAULTS.items():
            if type(fields[name]) is type(default) and fields[name] == default:
                del fields[name]
    else:
        fields["_class"] = _name(kind)
    if fields.keys() - _PLAIN or getattr(request, "__dict__", {}).keys() - _STATE:
        _check(request, fields, spider)
    text = json.dumps(_Writer().write_all(fields, "{}"), ensure_ascii=False)
    if len(text.encode()) > _MAX_BYTES:  # and half a character has no bytes
        raise NotNotable(type(request), " too long for a note", "request")
    return text


def _restore(text: str, spider: Spider) -> Request:
    if len(text) > _MAX_BYTES:
        raise ValueError(f"expected {_MAX_BYTES} characters or less")
    fields = json.loads(text, object_hook=_read)
    fields["_class"] = kind = _find_class(fields.get("_class", _name(Request)))
    # Scrapy would encode other URLs, for minutes if they are long.
    if not issubclass(kind, Request) or not fields["url"].isascii():
        raise ValueError(f"expected a class of requests and a URL in ASCII, got {kind}")
    fields.get("meta", {}).pop(CLAIM, None)
    request = request_from_dict(fields, spider=spider)
    if not {type(request.callback), type(request.errback)} <= {MethodType, NoneType}:
        raise TypeError("expected methods of the spider as callback and errback")
    return request


def _check(request: Request, fields: dict[str, Any], spider: Spider) -> None:
    """Raises NotNotable if Scrapy makes another request of the fields: a class may change what it is given, or keep more."""
    kind = type(request)
    if _find_class(_name(kind)) is not kind:
        raise NotNotable(kind, " that can't be imported", "request")
    other = request_from_dict({**fields, "_class": kind}, spider=spider)
    more = (_state(request).keys() | _state(other).keys()) - _STATE
    for name in (*kind.attributes, *more):
        before = fields.get("meta", {}) if name == "meta" else getattr(request, name, None)
        after = getattr(other, name, None)
        if type(before) is not type(after) or before != after:
            raise NotNotable(type(before), " that comes back changed", name)


class _Writer:
    """Writes values as JSON has them, and no more than a note takes: lists of the same lists multiply without end."""

    def __init__(self) -> None:
        self._left = _MAX_BYTES

    def write(self, value: Any) -> Any:
        """The value as JSON has it."""
        kind = type(value)
        self._left -= len(value) if kind is str else 1
        if self._left < 0:
            raise NotNotable(kind, " too long for a note")
        if kind in (bool, float, str, NoneType) or (kind is int and -_BIG < value < _BIG):
            return value
        if kind is list:
            return [*map(self.write, value)]
        if kind is dict and {*map(type, value)} <= {str} and "!" not in "".join(value):
            return self.write_all(value)
        if kind in _KINDS:
            name, content = kind.__name__, self.write(_KINDS[kind][0](value))
        else:
            name, content = _name(kind), self.write(_content(value, kind))
        if kind in (set, frozenset):  # equal ones may have other orders
            content.sort(key=repr)
        return {f"!{name}": content}

    def write_all(self, values: dict[str, Any], form: str = "[{!r:.40}]") -> dict[str, Any]:
        """The values by their names, which errors have."""
        written, name = dict[str, Any](), ""
        try:
            for name, value in values.items():
                written[name] = self.write(value)
        except NotNotable as error:
            error.path = form.format(name) + error.path
            raise
        return written


def _read(value: dict[str, Any]) -> Any:
    """The value that an object of JSON stands for."""
    name = next(iter(value), "")
    if not name.startswith("!"):
        return value
    if name[1:] in _MAKERS:
        return _MAKERS[name[1:]](value[name])
    kind = _find_class(name[1:])
    if not _is_open(kind):
        raise TypeError(f"expected an item or a member of an Enum, got {kind}")
    if issubclass(kind, Enum):
        return kind.__members__[value[name]]
    made, slots = (Item if issubclass(kind, Item) else object).__new__(kind), _slots(kind)
    for key, part in value[name].items():
        if key in slots:
            slots[key].__set__(made, part)
        else:
            vars(made)[key] = part
    return made


def _content(value: Any, kind: Any) -> Any:
    """A member's name, or an object's attributes."""
    if _is_open(kind) and _find_class(_name(kind)) is kind:
        if issubclass(kind, Enum):
            name = value.name
            if kind.__members__.get(name) is value:  # else it is several flags
                return name
        elif not hasattr(value, "_attrs_cached_hash"):  # another process has other hashes
            return _state(value)
    raise NotNotable(kind)


def _is_open(kind: Any) -> bool:
    """Whether the class is an Enum, or its objects are nothing but their attributes."""
    is_item = issubclass(kind, Item) or is_dataclass(kind) or hasattr(kind, "__attrs_attrs__")
    is_made = kind.__new__ in (object.__new__, Item.__new__) and not hasattr(kind, "__del__")
    # What is only equal to itself has no copy.
    return issubclass(kind, Enum) or (is_item and is_made and kind.__eq__ is not object.__eq__)


def _find_class(name: str) -> type[Any]:
    """The class of this name ("module:qualname") if it has been imported, or else NoneType."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        # No other kind of module: it may import another one when it is looked into, as isinstance() does.
        has_names = type(found) is ModuleType or issubclass(type(found), type)
        found = vars(found).get(part) if has_names else None
    return found if isinstance(found, type) else NoneType


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _state(value: Any) -> dict[str, Any]:
    """The attributes in the object's ``__dict__`` and its slots."""
    state = dict(getattr(value, "__dict__", {}))
    for name, slot in _slots(type(value)).items():
        with suppress(AttributeError):  # an empty one
            state[name] = slot.__get__(value)
    return state


def _slots(kind: type[Any]) -> dict[str, Any]:
    members = [member for base in reversed(kind.__mro__) for member in vars(base).items()]
    return {name: slot for name, slot in members if isinstance(slot, MemberDescriptorType)}


#: The fields that Scrapy's constructor takes as they are; to try it takes as long as the rest of a note.
_PLAIN = {"url", "callback", "errback", "headers", "dont_filter", "meta", "cb_kwargs"}
_DEFAULTS = Request("data:,").to_dict()
_STATE = _state(Request("data:,")).keys()
