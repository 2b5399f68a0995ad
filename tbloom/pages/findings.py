"""What an import finds in archives, and what becomes of it: one table, which decides for all."""

from __future__ import annotations

from collections import Counter
from enum import Enum


class Fate(Enum):
    """What becomes of a record."""

    #: It is no page, and not worth a line.
    PASSED = "passed over"
    #: It is stored, and counted by name.
    STORED = "stored, counted"
    #: It is not stored, but counted by name.
    SKIPPED = "skipped, counted"
    #: It is not stored, counted by name, and its place is printed: the import has failed in part.
    PRINTED = "skipped, counted, printed"
    #: The file is not read on, and that is printed, too.
    END = "the end of the file, printed"


#: Kinds of records that are no pages (ISO 28500); a revisit is one if its body is found.
KINDS = frozenset({"continuation", "conversion", "metadata", "request", "resource", "revisit", "warcinfo"})  # fmt: skip
DENIED, TRUNCATED, TOO_LONG = "wrong digest", "truncated", "longer than max_body"
DAMAGED, CODING = "damaged", "unknown encoding"
UNREADABLE, UNFINISHED = "unreadable file", "not read to the end"
NOT_HTTP, LONG_HEADERS, OLD = "not HTTP", "long headers", "outside the window"

#: What becomes of each finding. (Where a name goes on, as in "status 304", its first word is the key.)
FATES: dict[str, Fate] = {
    # The warcinfo of tbloom's own exports.
    "own warcinfo": Fate.PASSED,
    # The payload is not what its digest says, and the block's digest does not tell of damage: tools disagree about payloads.
    DENIED: Fate.STORED,
    **dict.fromkeys(KINDS, Fate.SKIPPED),
    "other": Fate.SKIPPED,
    NOT_HTTP: Fate.SKIPPED,
    "not GET": Fate.SKIPPED,
    "in several records": Fate.SKIPPED,
    # WARC-Truncated, or shorter than its headers, its Content-Length or its chunks say.
    TRUNCATED: Fate.SKIPPED,
    # Interim responses (1xx), partial content (206), not modified (304).
    "status": Fate.SKIPPED,
    TOO_LONG: Fate.SKIPPED,
    LONG_HEADERS: Fate.SKIPPED,
    OLD: Fate.SKIPPED,
    # By the store, with the name of the argument.
    "refused:": Fate.SKIPPED,
    # Printed for the first one of a file.
    CODING: Fate.PRINTED,
    # A place where no record can be read, or a record whose digest, date or key is wrong.
    DAMAGED: Fate.PRINTED,
    UNREADABLE: Fate.END,
    # The library has ended, and the file goes on.
    UNFINISHED: Fate.END,
}


class Account:
    """Counts findings by name, as the table says."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        #: What is printed.
        self.places: list[str] = []
        self._said = set[str]()

    def add(self, kind: str, where: str = "", *, once: str = "") -> None:
        """Count a finding. ``where`` is printed if the table says so; of equal ``once``, the first."""
        fate = FATES[kind if kind in FATES else kind.partition(" ")[0]]
        if fate is Fate.PASSED:
            return
        (self.noted if fate is Fate.STORED else self.skipped)[kind] += 1
        if fate in {Fate.PRINTED, Fate.END} and not (once and once in self._said):
            self.places.append(where)
        self._said.add(once)
