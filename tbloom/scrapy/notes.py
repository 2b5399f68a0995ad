"""A note of a request: the text from which another crawler restores it after its own crawler has died.

A note restores exactly what was there, or is refused: types count, not only values. (A list in two places becomes two
equal ones.) It is JSON, in which ``{"!kind": ...}`` is a value that JSON lacks: ``{"!shop:Book": {"title": "Emma"}}``.
A client that can write to Redis can't run code here: a note names classes that have been imported, of few kinds
(`_is_open`), and their objects get their attributes back without ``__init__`` or ``__setstate__``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
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
from scrapy.http import Headers
from scrapy.utils.request import request_from_dict
from w3lib.url import safe_url_string

from tbloom.scrapy.meta import CLAIM

_MAX_CHARACTERS = 1 << 16
#: JSON has smaller integers as they are: Python limits the digits of those that it reads.
_BIG = 1 << 63
#: The class of a link's text, which CrawlSpider keeps in the meta of its requests.
_LinkText: Any = type(etree.XPath("string()")(etree.Element("a")))


def _moment(value: Any) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.tzinfo, value.fold]


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
    ZoneInfo: (lambda value: value.key, ZoneInfo),
    _LinkText: (str, _LinkText),
}
_MAKERS = {kind.__name__: make for kind, (_, make) in _KINDS.items()}


class NotNotable(ValueError):
    """No note can restore the value at ``path`` (``meta['item']``), which is of the class ``kind``."""

    def __init__(self, kind: type[Any], problem: str = "", path: str = "") -> None:
        self.kind = _name(kind).replace(":", ".").removeprefix("builtins.")
        self.problem, self.path = problem, path

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
    text = _text(request, spider)
    if len(text) > _MAX_CHARACTERS:
        raise NotNotable(type(request), " too long for a note", "request")
    if not _is_ordinary(request):
        # Its class may change what it is given, and keep more.
        other = _restore(text, spider)
        kept = type(request), text, _rest(request)
        if (type(other), _text(other, spider), _rest(other)) != kept:
            raise NotNotable(type(request), " that comes back changed", "request")
    return text


def _restore(text: str, spider: Spider) -> Request:
    if len(text) > _MAX_CHARACTERS or not text.isascii():
        raise ValueError(f"expected {_MAX_CHARACTERS} ASCII characters or less")
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


def _text(request: Request, spider: Spider) -> str:
    for name in ("callback", "errback"):
        method = getattr(request, name)
        if method and getattr(method, "__self__", None) not in (spider, type(spider)):
            raise NotNotable(type(method), ", not a method of the spider", name)
    fields = request.to_dict(spider=spider)
    fields["meta"] = {key: value for key, value in request.meta.items() if key != CLAIM}
    if type(request) is not Request:  # a class that may have other defaults
        fields["_class"] = _name(type(request))
    else:
        for name, default in _DEFAULTS.items():
            if type(fields[name]) is type(default) and fields[name] == default:
                del fields[name]
    values = _Writer().write_all(fields.items(), "{}")
    return json.dumps(dict(zip(fields, values, strict=True)))


def _rest(request: Request) -> str:
    """What the request holds besides its public attributes."""
    state = {name: value for name, value in _state(request).items() if name not in _STATE}
    headers = request.headers
    return json.dumps(_Writer().write([state, _name(type(headers)), headers.encoding]))


def _is_ordinary(request: Request) -> bool:
    """Whether it is clear that the request comes back as it is; to try takes five times as long."""
    headers = request.headers
    return (
        type(request) is Request
        and getattr(request, "__dict__", {}).keys() <= _STATE
        and (request.method, request.body, request.cookies, request.flags) == ("GET", b"", {}, [])
        and (request.encoding, headers.encoding) == ("utf-8", "utf-8")
        and type(request.priority) is int
        and type(headers) is Headers
        and (not headers or Headers(headers) == headers)
        and request.url == safe_url_string(request.url)
    )


class _Writer:
    """Writes values as JSON has them, and no more than a note takes: lists of the same lists multiply without end."""

    def __init__(self) -> None:
        self._left = _MAX_CHARACTERS

    def write(self, value: Any) -> Any:
        """The value as JSON has it."""
        kind = type(value)
        self._left -= len(value) if kind is str else 1
        if self._left < 0:
            raise NotNotable(kind, " too long for a note")
        if kind in (bool, float, NoneType) or (kind is int and -_BIG < value < _BIG):
            return value
        if kind is str and not _has_pair(value):
            return value
        if kind is list:
            return self.write_all(enumerate(value))
        if kind is dict and {*map(type, value)} <= {str}:
            keys = "".join(value)
            if "!" not in keys and not _has_pair(keys):
                return dict(zip(value, self.write_all(value.items()), strict=True))
        if not _is_whole(value, kind):
            raise NotNotable(kind)
        if kind in _KINDS:
            name, content = kind.__name__, self.write(_KINDS[kind][0](value))
        else:
            is_member = issubclass(kind, Enum)
            name, content = _name(kind), self.write(value.name if is_member else _state(value))
        if kind in (set, frozenset):  # equal ones may have other orders
            content.sort(key=repr)
        return {f"!{name}": content}

    def write_all(self, pairs: Iterable[tuple[Any, Any]], form: str = "[{!r:.40}]") -> list[Any]:
        """The values of the pairs; a key leads to its value in errors."""
        written, key = [], None
        try:
            for key, value in pairs:  # noqa: B007 - the error names the last
                written.append(self.write(value))
        except NotNotable as error:
            error.path = form.format(key) + error.path
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


def _is_whole(value: Any, kind: Any) -> bool:
    """Whether what a note says of the value is all that there is to it."""
    if kind is _LinkText:  # with its parent comes a document
        return value.getparent() is None
    if kind is ZoneInfo:  # or it has been made from a file
        return ZoneInfo(value.key) is value
    if kind in _KINDS or not _is_open(kind) or _find_class(_name(kind)) is not kind:
        return kind in _KINDS
    if issubclass(kind, Enum):  # or it is several flags
        return kind.__members__.get(value.name) is value
    return not hasattr(value, "_attrs_cached_hash")  # another process has other hashes


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
        # No other kind of module: it may import another one when it is looked into.
        has_names = type(found) is ModuleType or isinstance(found, type)
        found = vars(found).get(part) if has_names else None
    return found if isinstance(found, type) else NoneType


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _has_pair(text: str) -> bool:
    """Whether JSON would read two characters of the text as one."""
    return not text.isascii() and bool(re.search("[\ud800-\udbff][\udc00-\udfff]", text))


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


_DEFAULTS = Request("data:,").to_dict()
_STATE = _state(Request("data:,")).keys()
