"""The figures of one run, docs/benchmarks.json, and the pages that are filled from it: ``python -m bench --fill``.

A page has places for tables, ``<!--table:calls-->...<!--end-->``, and for single figures,
``<!--figure:calls; add; bytes logged-->267<!--end-->``, which name a table, the first cell of a row (without backticks), and
the title of a column. A fourth word is a format to use in place of the column's. ``<!--table:run-->`` is the line about the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench.tables import Table

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "benchmarks.json"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_PLACE = re.compile(r"(<!--(table|figure):([^>]+)-->)(.*?)(<!--end-->)", re.DOTALL)


class Run(NamedTuple):
    """All tables of a run, by their names, and the line about its machine, versions and date."""

    about: str
    tables: dict[str, Table]


def read() -> Run:
    """Return the run of the file."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    tables = {name: Table(name, **of) for name, of in kept["tables"].items()}
    return Run(kept["about"], tables)


def store(tables: Iterable[Table], about: str) -> None:
    """Replace the file by that of a run, and fill the pages."""
    kept = {
        table.name: {
            "columns": table.columns,
            "rows": [[*map(_rounded, row)] for row in table.rows],
        }
        for table in tables
    }
    text = json.dumps({"about": about, "tables": kept}, indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")
    fill()


def fill() -> None:
    """Fill all pages."""
    run = read()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, run), encoding="utf-8")


def filled(page: str, run: Run) -> str:
    """Return the page with the figures of this run in its places."""

    def part(place: re.Match[str]) -> str:
        begin, kind, named, _, end = place.groups()
        if kind == "table":
            shown = run.about if named == "run" else run.tables[named].markdown()
            return f"{begin}\n\n{shown}\n\n{end}"
        name, row, column, *given = named.split("; ")
        own = given or [run.tables[name].columns[column]]
        return f"{begin}{run.tables[name].row(row)[column]:{own[0]}}{end}"

    return _PLACE.sub(part, page)


def without_places(page: str) -> str:
    """Return what a page says outside of its places."""
    return _PLACE.sub("", page)


def marked(page: str) -> list[str]:
    """Return the names of the tables that the page shows, or of which it has figures."""
    return [named.partition(";")[0] for _, _, named, _, _ in _PLACE.findall(page)]


def _rounded(cell: Any) -> Any:
    return float(f"{cell:.6g}") if isinstance(cell, float) else cell
