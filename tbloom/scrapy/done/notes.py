"""Notes: the texts that are kept with claims, from which other crawlers make the requests."""

from __future__ import annotations

from scrapy import Request, Spider

from tbloom.scrapy.done.page import Token
from tbloom.scrapy.done.serialize import request_from_text, request_to_text

#: The kinds of notes. A running request is queued or in work: any crawl takes it over once its own crawl has died. A left page has
#: failed: the next crawl takes it over as it begins.
RUNNING, LEFT = "running", "left"


def prefix_of(spider: Spider, kind: str) -> str:
    """Return the beginning of a spider's notes of a kind; another spider has other callbacks."""
    return f"{kind} {spider.name}\n"


def write_note(request: Request, token: Token, spider: Spider, kind: str) -> str:
    """Return the note of a request. Raise NotSerializable if none can restore it."""
    head = str(token._replace(session="0"))  # whoever takes it over has another one
    return f"{prefix_of(spider, kind)}{head}\n{request_to_text(request, spider)}"


def read_token(note: str) -> Token:
    """Return the token of a note, without a session. Raise ValueError if the text is no note."""
    head = [*note.split("\n", 2), ""][1]
    token = Token.read(head)
    if token is None:
        raise ValueError(f"not a note: {note[:100]!r}")
    return token._replace(fingerprints=(*dict.fromkeys(token.fingerprints),))


def read_request(note: str, spider: Spider) -> Request:
    """Return the request of a note. Raise ValueError if it can't be restored."""
    return request_from_text([*note.split("\n", 2), "", ""][2], spider)
