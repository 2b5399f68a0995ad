"""The file of all measured figures, and the pages that are filled from it: ``python -m bench --fill``.

A page has places for tables, ``<!--table:race-->...<!--end-->``, and for single figures,
``<!--figure:written; add; bytes-->267<!--end-->``, which name a table, the first cell of a row (without backticks), and the
title of a column. A fourth word is a format to use in place of the column's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.tables import Table

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "benchmarks.json"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_PLACE = re.compile(r"(<!--(table|figure):([^>]+)-->)(.*?)(<!--end-->)", re.DOTALL)


class Result(NamedTuple):
    """A table, and how it was measured: the command, date and machine, whether this was idle, and a note for readers."""

    table: Table
    about: dict[str, Any]

    def markdown(self, machine: str | None = None) -> str:
        """Return the table, and what a reader has to know about it. Leave out the machine if it is ``machine``."""
        about = self.about
        other = about.get("machine") if about.get("machine") != machine else None
        busy = "while other programs ran" if about.get("idle") is False else None
        facts = ", ".join(filter(None, [about.get("date"), other, busy]))
        remark = " ".join(filter(None, [facts and f"*{facts}.*", about.get("note")]))
        return "\n\n".join(filter(None, [self.table.rows and self.table.markdown(), remark]))


Results = dict[str, Result]


def read() -> Results:
    """Return the results by the names of their tables."""
    results = {}
    for name, about in json.loads(FILE.read_text(encoding="utf-8")).items():
        results[name] = Result(Table(name, about.pop("columns"), about.pop("rows")), about)
    return results


def store(tables: Iterable[Table], **about: Any) -> None:
    """Replace these tables in the file, and fill the pages."""
    results = read()
    results |= {table.name: Result(table, about) for table in tables}
    kept = {
        name: {**about, "columns": table.columns, "rows": [[*map(_rounded, r)] for r in table.rows]}
        for name, (table, about) in sorted(results.items())
    }
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    fill()


def fill() -> None:
    """Fill all pages."""
    results = read()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, results), encoding="utf-8")


def filled(page: str, results: Mapping[str, Result]) -> str:
    """Return the page with the figures of these results in its places."""
    tables = {name: result.table for name, result in results.items()}
    machine = results["versions"].about.get("machine")
    parts = {name: result.markdown(machine) for name, result in results.items()}
    parts["versions"] = results["versions"].markdown()

    def part(place: re.Match[str]) -> str:
        begin, kind, named, _, end = place.groups()
        if kind == "table":
            return f"{begin}\n\n{parts[named]}\n\n{end}"
        name, row, column, *given = named.split("; ")
        own = given or [tables[name].columns[column]]
        return f"{begin}{tables[name].row(row)[column]:{own[0]}}{end}"

    return _PLACE.sub(part, page)


def marked(page: str) -> list[str]:
    """Return the names of the tables that the page shows, or of which it has figures."""
    return [named.partition(";")[0] for _, _, named, _, _ in _PLACE.findall(page)]


def _rounded(cell: Any) -> Any:
    return float(f"{cell:.6g}") if isinstance(cell, float) else cell
