"""Tables of figures."""

from __future__ import annotations

from typing import Any, NamedTuple


class Table(NamedTuple):
    """A table of figures."""

    #: The section that measures it; after a hyphen, the table within the section.
    name: str
    #: The title and the format of each column. The format of text is empty.
    columns: dict[str, str]
    rows: list[list[Any]]

    def markdown(self) -> str:
        """Return the table in Markdown. A None is an empty cell."""
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
        """Return the rows as dicts, by the titles of the columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def row(self, name: str) -> dict[str, Any]:
        """Return the row with this first cell, backticks aside."""
        [found] = [
            row for row in self.rows if str(row[0]).replace("`", "") == name.replace("`", "")
        ]
        return dict(zip(self.columns, found, strict=True))


def amount(size: float, step: int = 1000) -> str:
    """Return a number of bytes for a reader, such as ``3.23 GB``. A unit is ``step`` of the next smaller one."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < step:
            return f"{size:.3g} {unit}"
        size /= step
    return f"{size:.3g} TB"
