"""Requests as texts: another crawler restores a request from the note that the filter keeps with its claim.

A note is a line with the page's fingerprints (and their version), and the text of the request.

Scrapy's ``Request.to_dict`` and ``request_from_dict`` say what a request is, itemadapter what an item has. The text is
JSON, in which ``{"!kind": ...}`` is a value that JSON lacks: ``{"!shop:Book": {"title": "Emma"}}``. These come back as
they were: the plain classes of the standard library in ``_KINDS``, members of an Enum, and items (Scrapy's, dataclasses,
attrs classes). A subclass of str comes back as a str, a time zone as its offset, a UUID without ``is_safe``. A list in two
places becomes two equal lists.

Who can write to Redis can't run code here. A text names only classes that are imported already, and only enums and items
(``_is_item``); it restores the fields of an item without calling ``__init__``, ``__setattr__`` or ``__setstate__``. Its
callbacks are methods of the spider.

A CrawlSpider keeps the number of a rule. So the text has the name of the rule's callback as well, in ``_rule``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from copy import copy
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from inspect import getattr_static
from pathlib import Path
from types import MemberDescriptorType, MethodType, ModuleType, NoneType
from typing import Any
from uuid import UUID

from scrapy import Item, Request, Spider
from scrapy.utils.request import request_from_dict

from tbloom import Note
from tbloom.scrapy.done.page import FINGERPRINTS, Token
from tbloom.scrapy.hooks.engine import host_of, rules_of
from tbloom.scrapy.links import plain
from tbloom.scrapy.settings import TOKEN

_MAX_BYTES = 1 << 16


def _time_text(moment: datetime) -> str:
    if moment.fold:
        raise NotSerializable("is the second of two equal hours (fold=1)")
    return moment.isoformat()


#: What JSON writes of a value of each class, and how it becomes the value again.
_KINDS: dict[type[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    dict: (lambda value: [*map(list, value.items())], dict),
    bytes: (partial(str, encoding="latin-1"), partial(bytes, encoding="latin-1")),
    date: (date.isoformat, date.fromisoformat),
    datetime: (_time_text, datetime.fromisoformat),
    timedelta: (lambda v: [v.days, v.seconds, v.microseconds], lambda parts: timedelta(*parts)),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    type(Path()): (str, Path),
}
_MAKERS = {kind.__name__: make for kind, (_, make) in _KINDS.items()}


class NotSerializable(ValueError):
    """No text can restore the request: ``path`` (``meta['item']``) has the value that stands in the way, ``problem`` says why."""

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem: str = problem
        self.path: str = path

    def __str__(self) -> str:
        return f"{self.path or 'the request'} {self.problem}"


class Unreadable(ValueError):
    """The spider can't restore the request of a note.

    ``name``: the method or the class that is missing, or else the error's class. It is short and has no spaces, whoever wrote the note.
    """

    def __init__(self, name: str, why: object) -> None:
        super().__init__(why)
        self.name: str = _NOT_OF_A_NAME.sub("", name.rpartition(":")[2])[:80] or "note"


def request_to_text(request: Request, spider: Spider) -> str:
    """Return the text of the request, without its token. Raise NotSerializable if it can't be restored."""
    try:
        fields = _to_dict(request, spider)
        fields["meta"] = {key: plain(value) for key, value in request.meta.items() if key != TOKEN}
        kind = type(request)
        if kind is Request:  # another class may have other defaults
            for name, default in _DEFAULTS.items():
                if type(fields[name]) is type(default) and fields[name] == default:
                    del fields[name]
        else:
            fields["_class"] = _name(kind)
        if fields.keys() - _PLAIN or _state(request).keys() - _REQUEST_STATE:
            _check(request, fields, spider)
        rules, number = rules_of(spider, fields.get("callback")), request.meta.get("rule")
        if rules and type(number) is int and number in range(len(rules)):
            fields["_rule"] = _name_of(rules[number].callback)
        text = _JSON.encode(_Writer().write_fields(fields, "{}"))
        if len(text.encode()) > _MAX_BYTES:  # encode() raises an error for half a surrogate pair
            raise NotSerializable(_TOO_LONG)  # noqa: TRY301 - as the writer does
    except NotSerializable:
        raise
    except Exception as error:  # classes of the project raise what they like
        raise NotSerializable(f"can't be serialised: {error}") from error
    return text


def request_from_text(text: str, spider: Spider) -> Request:
    """Return the request of a text. Raise Unreadable if it can't be restored."""
    try:
        return _from_text(text, spider)
    except Exception as error:  # classes of the project raise what they like
        name = error.name if isinstance(error, Unreadable) else type(error).__name__
        raise Unreadable(name, f"not the text of a request: {error}") from error


def write_note(
    request: Request, token: Token, spider: Spider, queue: str, *, one_owner: bool
) -> Note:
    """Return the note of a request, for the crawls of a queue. Raise NotSerializable if none can restore it.

    ``one_owner``: one crawler at a time works on pages of the host.
    """
    text = f"{token.text}\n{request_to_text(request, spider)}"
    return Note(text, queue, host_of(request), one_owner=one_owner, failures=token.failures)


def read_token(note: Note, session: str) -> Token:
    """Return the token of a note that the session has taken. Raise Unreadable if the text is no note."""
    head = FINGERPRINTS.fullmatch(note.text.partition("\n")[0])
    if head is None:
        raise Unreadable("note", f"not a note: {note.text[:100]!r}")
    fingerprints, version = head.groups("")
    known = (*dict.fromkeys(fingerprints.split()),)
    return Token(session, known, note.deaths, note.failures, version)


def look_in_note(item: bytes, head: str) -> bytes:
    """Return what the filter was searched for when an item was claimed whose note has this first line."""
    form = FINGERPRINTS.fullmatch(head)
    return item + bytes.fromhex(form[2] or "") if form else item


def _to_dict(request: Request, spider: Spider) -> dict[str, Any]:
    """Return what ``Request.to_dict`` returns."""
    # Of a copy, because Scrapy 2.19 makes a request's headers, cookies and flags when they are asked for, and then keeps them.
    try:
        copied = copy(request)
    except Exception:  # noqa: BLE001 - a class of the project may allow no copies
        return request.to_dict(spider=spider)
    # Scrapy looks for a method among all members of the spider, which takes longer than all else.
    for field in "callback", "errback":
        function = getattr(copied, field)
        name = function.__name__ if type(function) is MethodType else ""
        if name and getattr(spider, name, None) == function:
            setattr(copied, field, name)
    return copied.to_dict(spider=spider)


def _from_text(text: str, spider: Spider) -> Request:
    if len(text) > _MAX_BYTES:
        raise ValueError(f"expected {_MAX_BYTES} characters or less")
    fields = json.loads(text, object_hook=_read)
    if why := fields.get("_damaged"):
        raise Unreadable("note", f"the note is damaged: {why}")
    # Scrapy would import the class of a name.
    fields["_class"] = kind = _find_class(name := fields.get("_class", _name(Request)))
    if not issubclass(kind, Request):
        raise Unreadable(name, f"expected a class of requests, got {name}")
    # Scrapy would encode other URLs, for minutes if they are long.
    if not fields["url"].isascii():
        raise ValueError("expected a URL in ASCII")
    for field in ("callback", "errback"):
        method = str(fields.get(field) or "")
        if method and type(getattr(spider, method, None)) is not MethodType:
            raise Unreadable(method, f"the spider has no method {method!r}, which is the {field}")
    meta = fields.get("meta", {})
    meta.pop(TOKEN, None)
    rules = rules_of(spider, fields.get("callback"))
    if rules is not None and type(meta.get("rule")) is int:
        meta["rule"] = _find_rule(rules, meta["rule"], fields.get("_rule"))
    return request_from_dict(fields, spider=spider)


def _find_rule(rules: list[Any], number: int, callback: str | None) -> int:
    """Return the number of the rule that has the kept callback: the kept number, or else the first."""
    fit = [n for n, rule in enumerate(rules) if callback == _name_of(rule.callback)]
    if number in fit:
        return number
    # Of a lambda, the name does not say which one it is.
    if not (fit and str(callback).isidentifier()):
        raise Unreadable(callback or "rule", f"no rule of the spider has the callback {callback!r}")
    return fit[0]


def _name_of(callback: Any) -> str | None:
    """Return the name of a rule's callback, or of its class; None where there is none."""
    return callback and str(getattr(callback, "__name__", type(callback).__name__))


def _check(request: Request, fields: dict[str, Any], spider: Spider) -> None:
    """Raise NotSerializable if Scrapy makes a different request from the fields: its class may change them, or have further state."""
    kind = type(request)
    if _find_class(_name(kind)) is not kind:
        raise NotSerializable(f"is a {_name(kind)}, which can't be imported")
    made = request_from_dict({**fields, "_class": kind}, spider=spider)
    before, after = (_to_dict(each, spider) for each in (request, made))
    before["meta"] = after["meta"] = None  # less a token, as it was given
    more = _state(request).keys() | _state(made).keys()
    before |= {name: getattr(request, name, None) for name in more - _REQUEST_STATE}
    after |= {name: getattr(made, name, None) for name in more - _REQUEST_STATE}
    for name, value in before.items():
        if type(value) is not type(after[name]) or value != after[name]:
            raise NotSerializable(f"is changed by {_name(kind)}", name)


class _Writer:
    """Writes values as JSON has them, up to the size of a text: lists of the same lists multiply without end."""

    _left = _MAX_BYTES

    def write(self, value: Any) -> Any:
        """Return the value as JSON has it."""
        kind: Any = type(value)
        if kind is not str and isinstance(value, str) and not isinstance(value, Enum):
            value, kind = str(value), str
        self._left -= len(value) if kind is str else 1
        if self._left < 0:
            raise NotSerializable(_TOO_LONG)
        if kind in _SCALARS:
            return value
        if kind is list:
            return [*map(self.write, value)]
        if kind is dict and {*map(type, value)} <= {str} and "!" not in "".join(value):
            return self.write_fields(value)
        if kind in _KINDS:
            return {f"!{kind.__name__}": self.write(_KINDS[kind][0](value))}
        name = _name(kind)
        if _find_class(name) is kind:
            if issubclass(kind, Enum) and value in kind.__members__.values():  # not two flags
                return {f"!{name}": value.name}
            if _is_item(kind):
                return {f"!{name}": self.write_fields(_fields_of(value))}
        raise NotSerializable(f"is a {name.removeprefix('builtins:')}")

    def write_fields(self, values: dict[str, Any], form: str = "[{!r:.40}]") -> dict[str, Any]:
        """Return the values by their names, which errors have."""
        written, name = dict[str, Any](), ""
        try:
            for name, value in values.items():
                written[name] = self.write(value)
        except NotSerializable as error:
            error.path = form.format(name) + error.path
            raise
        return written


def _read(value: dict[str, Any]) -> Any:
    """Return the value of an object of JSON. Raise Unreadable with the name of the class that can't be made."""
    mark = next(iter(value), "")
    if not mark.startswith("!"):
        return value
    name, content = mark[1:], value[mark]
    try:
        if name in _MAKERS:
            return _MAKERS[name](content)
        kind = _find_class(name)
        if issubclass(kind, Enum):
            return kind.__members__[content]
        if _is_item(kind):
            return _make_item(kind, content)
    except Exception as error:  # classes of the project raise what they like
        raise Unreadable(name, f"{name}: {error}") from error
    raise Unreadable(name, f"{name}: expected an item or a member of an Enum, got {kind}")


def _adapter(kind: type[Any]) -> Any:
    """Return itemadapter's class for items of this class that have fields only; None: it is no such class."""
    # Only now, because itemadapter imports pydantic where there is one, which takes 8 MB.
    from itemadapter.adapter import (  # noqa: PLC0415
        AttrsAdapter,
        DataclassAdapter,
        ScrapyItemAdapter,
    )

    adapters = (ScrapyItemAdapter, DataclassAdapter, AttrsAdapter)
    return next((adapter for adapter in adapters if adapter.is_item_class(kind)), None)


def _is_item(kind: Any) -> bool:
    """Return whether the objects of the class are nothing but their fields: making one, or its end, runs no code of the class."""
    is_made = kind.__new__ in (object.__new__, Item.__new__) and not hasattr(kind, "__del__")
    return is_made and _adapter(kind) is not None


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the item's fields. Raise NotSerializable if it has more."""
    kind = type(value)
    fields = dict(_adapter(kind)(value))
    more = _state(value).keys() - (_ITEM_STATE if isinstance(value, Item) else fields.keys())
    if more:
        raise NotSerializable(f"is a {_name(kind)} with attributes that are no fields: {min(more)}")
    return fields


def _make_item(kind: Any, fields: dict[str, Any]) -> Any:
    """Make an item of its fields, without calling methods of its class."""
    made = kind.__new__(kind)
    if isinstance(made, Item):
        Item.__init__(made)
        for name, value in fields.items():
            Item.__setitem__(made, name, value)
        return made
    if unknown := fields.keys() - {*_adapter(kind).get_field_names_from_class(kind)}:
        raise KeyError(f"{kind} has no field {min(unknown)}")
    for name, value in fields.items():
        slot = getattr_static(kind, name, None)
        if isinstance(slot, MemberDescriptorType):
            slot.__set__(made, value)
        else:
            vars(made)[name] = value
    return made


def _find_class(name: str) -> type[Any]:
    """Return the class of this name ("module:qualname") if it has been imported, or else NoneType."""
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
    """Return the attributes in the object's ``__dict__`` and its slots."""
    state = object.__getstate__(value)
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {**(plain or {}), **(slots or {})}


_JSON = json.JSONEncoder(ensure_ascii=False)
_SCALARS = frozenset((bool, int, float, str, NoneType))
_NOT_OF_A_NAME = re.compile(r"[^\w.]")
_TOO_LONG = f"is too long: a text has at most {_MAX_BYTES} bytes"
#: The fields that Scrapy's constructor takes as they are; to try it takes as long as the rest.
_PLAIN = {"url", "callback", "errback", "headers", "dont_filter", "meta", "cb_kwargs", "encoding"}
_DEFAULTS = Request("data:,").to_dict()
_REQUEST_STATE, _ITEM_STATE = _state(Request("data:,")).keys(), _state(Item()).keys()
