"""What can be imported into a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tbloom.pages.page import Page

#: The kind of what can't be read.
DAMAGED = "damaged"


class Skipped(NamedTuple):
    """Something in a source that is not imported."""

    #: What is counted: "request", "revisit", ``DAMAGED``, ...
    kind: str
    #: Of damage: the file, the offset, and what is wrong.
    where: str = ""


class Source(Protocol):
    """Pages to import; those of one address in the order in which they were fetched.

    They need not be checked: the importer skips and counts what the store refuses.
    """

    @property
    def name(self) -> str:
        """What is read, for people."""

    @property
    def unit(self) -> str:
        """The unit of ``done`` and ``total``, such as "bytes"."""

    @property
    def done(self) -> int:
        """How much of it has been read."""

    @property
    def total(self) -> int | None:
        """How much there is; None: that is not known."""

    def __iter__(self) -> Iterator[Page | Skipped]:
        """The pages, and what is skipped."""
