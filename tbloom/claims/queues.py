"""The name of a spider's queue of left pages: it has the spider's arguments, so that crawls of other pages have other queues.

It stands here because the room for Scrapy and the command line both need it, and the command line runs without Scrapy.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from typing import Any

#: No longer text of a spider's arguments is read.
_LONGEST_ARGUMENTS = 10_000


def queue_of(spider: str, arguments: Mapping[str, Any], project: str = "") -> str:
    """Return the queue of a spider's left pages. ``project``: see ``Crawl.project``.

    Arguments that begin with ``_`` say nothing of the crawl, such as scrapyd's ``_job``. Neither do those of ``unnamed``.
    """
    own = f"{project}:{spider}" if project else spider
    named = [name for name in arguments if not name.startswith("_")]
    given = [(name, arguments[name]) for name in sorted(named) if _is_plain(arguments[name])]
    return f"{own}\n{given}" if given else own


def unnamed(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that the queue's name leaves out, because their texts may change from run to run."""
    return [n for n, value in arguments.items() if not (n.startswith("_") or _is_plain(value))]


def _is_plain(value: Any) -> bool:
    """Return whether a value is a text, a number or None, or a list, a tuple or a dict of these."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.items()))
    return value is None or type(value) in (str, bytes, int, float, bool)


def options_of(arguments: Mapping[str, str]) -> list[str]:
    """Return the arguments of a spider as options."""
    return [word for pair in arguments.items() for word in ("-a", "=".join(pair))]


def arguments_in(queue: str) -> dict[str, str] | None:
    """Return the spider's arguments in a queue's name, as texts; None: they can't be read."""
    written = queue.partition("\n")[2]
    try:
        given = literal_eval(written[:_LONGEST_ARGUMENTS]) if written else []
        return {str(name): value if type(value) is str else repr(value) for name, value in given}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
