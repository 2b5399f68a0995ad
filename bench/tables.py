"""Tables of figures."""

from __future__ import annotations

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
        rule = "|".join("---:" if of else "---" for of in formats)
        head, *body = (f"| {' | '.join(line)} |" for line in [[*self.columns], *cells])
        return "\n".join([head, f"|{rule}|", *body])

    def records(self) -> list[dict[str, Any]]:
        """The rows by the titles of their columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def row(self, name: str) -> dict[str, Any]:
        """The row with this first cell, whose backticks do not count."""
        [found] = [
            row for row in self.rows if str(row[0]).replace("`", "") == name.replace("`", "")
        ]
        return dict(zip(self.columns, found, strict=True))


def amount(size: float, step: int = 1000) -> str:
    """Bytes for a reader, such as 3.23 GB; ``step`` is from unit to unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < step:
            return f"{size:.3g} {unit}"
        size /= step
    return f"{size:.3g} TB"
