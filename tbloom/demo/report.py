"""The figures of the demo, measured and promised, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

_KB = 1024


@dataclass(frozen=True, slots=True)
class Numbers:
    """The result of the demo. None: not known of a live site, or the run was skipped."""

    site: str
    redis: str
    period_seconds: int
    slices: int
    capacity: int
    error_rate: float
    pages_on_site: int | None
    #: Pages fetched by each crawler in the first run.
    fetched_by_crawler: list[int]
    fetched_twice: int
    missed: int | None
    dead_links: int
    fetched_again_inside_window: int
    #: The second run ended before the first page left the window.
    second_run_in_time: bool
    fetched_after_window: int | None
    fetched_twice_after_window: int
    missed_after_window: int | None
    #: Links checked in the first run, and how many the filter had seen.
    links: int
    duplicates: int
    filter_items: int
    filter_bytes: int
    set_bytes: int

    @property
    def fetched(self) -> int:
        """Pages fetched in the first run."""
        return sum(self.fetched_by_crawler)

    def problems(self) -> list[str]:
        """A sentence for each figure that is not as promised."""
        if not self.second_run_in_time:
            sentence = (
                "The second run ended after the first pages had left the window, so its figure "
                "has no meaning: set a longer --period."
            )
            return [sentence]
        broken = {
            f"{self.fetched_twice} pages were fetched twice in the first run.": self.fetched_twice,
            f"{self.missed} pages were missed in the first run.": self.missed,
            f"{self.fetched_again_inside_window} pages were fetched again inside the window.": (
                self.fetched_again_inside_window
            ),
            f"{self.fetched_twice_after_window} pages were fetched twice after the window.": (
                self.fetched_twice_after_window
            ),
            f"{self.missed_after_window} pages were not fetched again after the window.": (
                self.missed_after_window
            ),
            "No page was fetched after the window.": not self.fetched_after_window,
        }
        return [sentence for sentence, is_so in broken.items() if is_so]


def to_json(numbers: Numbers) -> str:
    """The figures, with the problems."""
    problems = numbers.problems()
    values = dataclasses.asdict(numbers)
    return json.dumps({**values, "ok": not problems, "problems": problems}, indent=2)


def show(numbers: Numbers, console: Console) -> None:
    """Prints the table, and the problems below it."""
    table = Table(title="What was fetched", title_justify="left", min_width=60)
    table.add_column("")
    table.add_column("measured", justify="right")
    table.add_column("promised", justify="right")
    for row in _rows(numbers):
        table.add_row(*row)
    console.print()
    console.print(table)
    problems = numbers.problems()
    for problem in problems:
        console.print(Text(problem, style="bold red"), soft_wrap=True)
    if not problems:
        console.print(Text("Every figure is as promised.", style="bold green"))


def _rows(numbers: Numbers) -> list[tuple[str | Text, ...]]:
    crawlers = enumerate(numbers.fetched_by_crawler, 1)
    rows: list[tuple[str | Text, ...]] = []
    if numbers.pages_on_site is not None:
        rows.append(("Pages on the site", f"{numbers.pages_on_site:,}", ""))
    rows.append((Text("First run", style="bold"), "", ""))
    rows += [(f"  pages fetched by crawler {i}", f"{pages:,}", "") for i, pages in crawlers]
    rows.append(_row("  pages fetched twice", numbers.fetched_twice, 0))
    if numbers.missed is not None:
        rows.append(_row("  pages missed", numbers.missed, 0))
    if numbers.dead_links:
        rows.append(("  dead links", f"{numbers.dead_links:,}", ""))
    rows.append((Text("Second run, inside the window", style="bold"), "", ""))
    again = numbers.fetched_again_inside_window
    in_time = numbers.second_run_in_time
    rows.append(
        _row("  pages fetched", again, 0) if in_time else ("  pages fetched", "too late", "")
    )
    rows.append((Text("Third run, after the window", style="bold"), "", ""))
    rows.append(_after(numbers))
    rows.append((Text("Links checked in the first run", style="bold"), f"{numbers.links:,}", ""))
    if numbers.links:
        rows.append(("  duplicates", f"{numbers.duplicates / numbers.links:.1%}", ""))
    rows.append((Text(f"Redis memory for {numbers.filter_items:,} URLs", style="bold"), "", ""))
    rows.append(
        (f"  in tbloom's filter (room for {numbers.capacity:,})", _size(numbers.filter_bytes), "")
    )
    rows.append(("  in scrapy-redis' set", _size(numbers.set_bytes), ""))
    return rows


def _after(numbers: Numbers) -> tuple[str | Text, ...]:
    label = "  pages fetched"
    if numbers.fetched_after_window is None:
        return label, "not run", ""
    if numbers.pages_on_site is None:
        return label, f"{numbers.fetched_after_window:,}", "> 0"
    return _row(label, numbers.fetched_after_window, numbers.pages_on_site)


def _row(label: str, measured: int, promised: int) -> tuple[str | Text, ...]:
    style = "green" if measured == promised else "bold red"
    return label, Text(f"{measured:,}", style=style), f"{promised:,}"


def _size(size: int) -> str:
    return f"{size / _KB:,.1f} KB" if size < _KB * _KB else f"{size / _KB / _KB:,.1f} MB"
