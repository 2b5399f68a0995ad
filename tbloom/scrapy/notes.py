"""A request as text, so that another crawler can go on with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider

#: Where a request's meta carries its claim.
CLAIM = "tbloom_claim"
_HEX = re.compile("(?:[0-9a-f]{2})+")
_DEFAULTS = Request("data:,").to_dict()


def prefix(spider: Spider) -> str:
    """How the notes of a spider's requests begin: another spider has other callbacks."""
    return f"{spider.name}\n"


def to_note(request: Request, fingerprints: list[str], spider: Spider) -> str:
    """The request, claimed by these fingerprints; '' if JSON can't carry it.

    JSON, not pickle: who can write to Redis must not be able to run code here.
    """
    try:
        fields = request.to_dict(spider=spider)
        fields |= {
            "meta": {key: value for key, value in request.meta.items() if key != CLAIM},
            "body": request.body.decode("latin-1"),
            "headers": {
                name.decode("latin-1"): [value.decode("latin-1") for value in values]
                for name, values in request.headers.items()
            },
        }
        fields = {
            key: value for key, value in fields.items() if value and value != _DEFAULTS.get(key)
        }
        fields[CLAIM] = fingerprints
        note = json.dumps(fields, separators=(",", ":"))
        # JSON makes lists of tuples, and str of all keys: such a request would come back as another one.
        if json.loads(note) != fields:
            return ""
    except (
        TypeError,
        ValueError,
    ):  # a callback that is not the spider's, or a value of any other type
        return ""
    return prefix(spider) + note


def from_note(note: str, spider: Spider) -> tuple[Request, list[str]]:
    """The request again, and its fingerprints. Raises ValueError where that can't be."""
    try:
        fields = json.loads(note.removeprefix(prefix(spider)))
        kind = fields.get("_class")
        if kind is not None and kind not in {f"{c.__module__}.{c.__name__}" for c in _kinds()}:
            raise ValueError(f"no kind of request that this spider knows: {kind!r}")
        fingerprints = fields.pop(CLAIM)
        if not are_fingerprints(fingerprints):
            raise ValueError(f"no fingerprints: {fingerprints!r}")
        fields["body"] = fields.get("body", "").encode("latin-1")
        return request_from_dict(fields, spider=spider), fingerprints
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not a request: {error}") from None


def are_fingerprints(value: object) -> bool:
    """Whether it is a list of fingerprints in hexadecimal: notes and queues may be written by others."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(fingerprint, str) and _HEX.fullmatch(fingerprint) for fingerprint in value
        )
    )


def _kinds(of: type[Request] = Request) -> Iterator[type[Any]]:
    """Request, and all of its subclasses that have been imported."""
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
