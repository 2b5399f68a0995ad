"""Tables of figures: for JSON, and in pages that a person has written around them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A table of figures."""

    #: The section that measures it, and, after a hyphen, which of its tables it is.
    name: str
    #: Each column's title and format; a column without a format has words, or whatever stands in it.
    columns: dict[str, str]
    rows: list[list[Any]]

    def markdown(self) -> str:
        """The table for a page; None is an empty cell."""
        formats = self.columns.values()
        cells = [
            [
                "" if cell is None else format(cell, of)
                for cell, of in zip(row, formats, strict=True)
            ]
            for row in self.rows
        ]
        rule = ["---:" if of else "---" for of in formats]
        return "\n".join(f"| {' | '.join(line)} |" for line in [self.columns, rule, *cells])

    def records(self) -> list[dict[str, Any]]:
        """The rows for JSON, with the figures as they were measured."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def marked(page: str) -> list[str]:
    """The names of the parts of a page that a command fills in."""
    return re.findall(r"<!--table:([\w-]+)-->", page)


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts in the places of the former ones. All else stays as it is."""

    def part(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        return f"{begin}\n\n{parts[name]}\n\n{end}" if name in parts else found[0]

    return re.sub(r"(<!--table:([\w-]+)-->)(.*?)(<!--end-->)", part, page, flags=re.DOTALL)


def amount(size: float, step: int = 1000) -> str:
    """Bytes for a reader, such as 3.23 GB; ``step`` is from unit to unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < step:
            return f"{size:.3g} {unit}"
        size /= step
    return f"{size:.3g} TB"
