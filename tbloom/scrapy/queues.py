"""The name of a spider's queue of left pages: it has the spider's arguments, so that crawls of other pages have other queues."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping
from typing import Any

#: No longer text of a spider's arguments is read.
_LONGEST_ARGUMENTS = 10_000
#: What Python writes of an object without a text of its own.
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def queue_of(spider: str, arguments: Mapping[str, Any], project: str = "") -> str:
    """Return the queue of a spider's left pages. ``project``: see ``Crawl.project``.

    Arguments that begin with ``_`` say nothing of the crawl, such as scrapyd's ``_job``. Neither do objects, whose texts change from
    run to run.
    """
    own = f"{project}:{spider}" if project else spider
    texts = _texts(arguments).items()
    given = [f"({name!r}, {text})" for name, text in sorted(texts) if text is not None]
    return f"{own}\n[{', '.join(given)}]" if given else own


def unnamed(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that the queue's name leaves out, because they are objects."""
    return [name for name, text in _texts(arguments).items() if text is None]


def _texts(arguments: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the text of each argument that counts; None: it has an object's address."""
    texts = dict[str, str | None]()
    for name, value in arguments.items():
        if not name.startswith("_"):
            try:
                texts[name] = _text(value)
            except _HasAddressError:
                texts[name] = None
            except RecursionError:  # it contains itself
                texts[name] = repr(value)
    return texts


class _HasAddressError(Exception):
    """The text of a value has the address of an object."""


def _text(value: Any) -> str:
    """Return the value's ``repr``, with sets in order. Raise _HasAddressError if it changes from run to run."""
    kind = type(value)
    if kind is list:
        return f"[{', '.join(map(_text, value))}]"
    if kind is tuple:
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    if kind is dict:
        return f"{{{', '.join(f'{_text(key)}: {_text(part)}' for key, part in value.items())}}}"
    if kind in (set, frozenset) and value:
        parts = f"{{{', '.join(sorted(map(_text, value)))}}}"
        return parts if kind is set else f"frozenset({parts})"
    text = repr(value)
    if not isinstance(value, str | bytes) and _ADDRESS.search(text):
        raise _HasAddressError
    return text


def arguments_in(queue: str) -> dict[str, str] | None:
    """Return the spider's arguments in a queue's name, as texts; None: they can't be read."""
    written = queue.partition("\n")[2]
    try:
        given = literal_eval(written[:_LONGEST_ARGUMENTS]) if written else []
        return {str(name): value if type(value) is str else repr(value) for name, value in given}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
