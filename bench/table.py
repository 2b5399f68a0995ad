"""A table, for the terminal and for the page."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    #: Number of left-aligned columns of words; the others are numbers.
    words: int = 1

    def text(self) -> str:
        """For the terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        aligned = [
            "  ".join(
                cell.ljust(width) if i < self.words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, "-" * len(self.title), *aligned]).replace("`", "")

    def markdown(self) -> str:
        """For the page; the title is left to it."""
        rule = ["---" if i < self.words else "---:" for i in range(len(self.header))]
        lines = [self.header, rule, *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
