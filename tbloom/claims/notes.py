"""Notes: what a session leaves with an item, so that another one can do the work."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from tbloom.arguments import check_items, check_text
from tbloom.claims.packed import FAILURE, pack
from tbloom.errors import ConfigError

#: The length of a place (``lua/shared/claims.lua``).
PLACE = 14


class Note(NamedTuple):
    """A text that says what to do with an item, and for whom it is."""

    #: At most 65,536 characters; the item, for example.
    text: str
    #: The sessions that take items of this queue can do the work.
    queue: str = ""
    #: Left items of one host are taken together.
    host: str = ""
    #: The number of sessions that have died of the item.
    deaths: int = 0
    #: Whether one session at a time works on items of the host. What other sessions find of it is left to that one.
    one_owner: bool = False
    #: How often in a row the work has failed.
    failures: int = 0

    @property
    def place(self) -> str:
        """What a claim has before the text."""
        host = owned_host(self.host) if self.one_owner else short(self.host, 4)
        return f"{short(self.queue, 8)}{_digit(self.deaths)}{host}{_digit(self.failures)}"

    @property
    def stored(self) -> bytes:
        """The note as a claim has it: its place, and the text. A note without a text is none."""
        return self.place.encode() + pack(self.text) if self.text else b""


class History(NamedTuple):
    """What a claim with a note says of the item, as ``Note`` has it. It changes while the note stays."""

    queue: str = ""
    deaths: int = 0
    failures: int = 0
    #: Why the work has failed, in at most 80 characters; "": it has not. Then the item can be seen, and freed by others, while this
    #: session holds it (``Fleet``). It is kept in a note that is a JSON object.
    reason: str = ""
    #: When the work has failed (s since the epoch); 0: now, by the clock of the server, or of the machine if there is none.
    failed_at: int = 0
    #: What the error said, in one line of at most 200 characters; "": unknown.
    message: str = ""
    #: Where it was raised, in at most 80 characters; "": unknown.
    where: str = ""

    @property
    def stored(self) -> str:
        """The history as scripts have it."""
        return f"{short(self.queue, 8)}{_digit(self.deaths)}{_digit(self.failures)}"

    @property
    def failure(self) -> str:
        """The failure as scripts have it; "": there is none."""
        if not self.reason:
            return ""
        words = [plain(self.reason, 80), plain(self.message, 200), plain(self.where[-80:], 80)]
        while not words[-1]:
            words.pop()
        return json.dumps([self.failed_at, *words], ensure_ascii=False)


class Taken(NamedTuple):
    """The answer of ``take``."""

    #: The notes of the items that this session has claimed now, each with the number of sessions that have died of the item, and how
    #: often in a row the work on it has failed.
    notes: list[Note]
    #: The number of sessions that wait for items of the queue, with this one. Counted only if there are no notes.
    waiting: int = 0
    #: The number of other sessions that take items of the queue, and do not wait. They may leave some. Counted only if there are no notes.
    others: int = 0

    @property
    def is_over(self) -> bool:
        """True if nothing is left, and no other session works on items of the queue."""
        return not (self.notes or self.others)


def short(name: str, size: int) -> str:
    """Return a hash of the name, of ``size`` characters (a multiple of 4)."""
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=size * 3 // 4).digest()
    return urlsafe_b64encode(digest).decode()


def owned_host(host: str) -> str:
    """Return a host that has one owner at a time, as scripts have it. Some hosts may be one for them."""
    return f"={short(host, 4)[:3]}"


def stored_notes(digests: list[bytes], notes: Iterable[str | Note] | None) -> dict[bytes, bytes]:
    """Return the notes as they are stored, by their items' digests. Raise ConfigError unless there is a valid note for each item."""
    if notes is None:
        return {}
    given = enumerate(check_items(notes, "notes"))
    checked = [stored_note(note, f"notes[{i}]") for i, note in given]
    if len(checked) != len(digests):
        raise ConfigError("notes", notes, f"as many as there are items, {len(digests)}")
    # A repeated item gets its first note.
    return dict(zip(reversed(digests), reversed(checked), strict=True))


def stored_note(note: str | Note, argument: str = "note") -> bytes:
    """Return the note as it is stored. Raise ConfigError if it can't be."""
    made = note if isinstance(note, Note) else Note(note)
    check_text(made.text, argument)
    if made.queue:
        check_text(made.queue, "queue")
    return made.stored


def check_history(history: History) -> History:
    """Return the history. Raise ConfigError if one of its texts is none, or its queue can't be sent."""
    check_text(history.queue, "queue")
    for argument in ("reason", "message", "where"):
        if not isinstance(text := getattr(history, argument), str):
            raise ConfigError(argument, text, "a str")
    return history


def plain(text: str, most: int) -> str:
    """Return the text in one line, without the characters that would end it for a script. JSON makes at most 4 bytes of each."""
    kept = "".join(each if each.isprintable() else " " for each in text[:most])
    return kept.translate({ord("["): "(", ord("]"): ")"})


def with_failure(note: str, failure: str) -> str:
    """Return a note with a failure, in place of an earlier one, as ``lua/claims/history.lua`` does."""
    if not note.endswith("}") or note.endswith("{}"):
        return note
    return f'{FAILURE.sub("}", note)[:-1]}, "_failed": {failure}}}'


def _digit(number: int) -> int:
    """Return the number as a place has it, which has one digit for it."""
    return max(0, min(number, 9))
