"""The figures of the demo, measured and promised, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from tbloom.cli.kit.formats import size

if TYPE_CHECKING:
    from rich.console import Console


def promises(figures: dict[str, Any]) -> list[tuple[str, int, int]]:
    """The figures that must be as promised: what each says, measured and promised."""
    again, after = figures["fetched_again_inside_window"], figures["fetched_after_window"]
    return [
        ("First run: pages fetched twice", figures["fetched_twice"], 0),
        ("First run: pages missed", figures["missed"], 0),
        ("Second run, inside the window: pages fetched", again, 0),
        ("Third run, after the window: pages fetched", after, figures["pages_on_site"]),
        ("Third run: pages missed", figures["missed_after_window"], 0),
    ]


def problems(figures: dict[str, Any]) -> list[str]:
    """A sentence for each figure that is not as promised."""
    if not figures["second_run_in_time"]:
        return ["The second run did not end within the window: set a longer --period."]
    return [
        f"{title}: {measured:,}, not {promised:,}."
        for title, measured, promised in promises(figures)
        if measured != promised
    ]


def show(figures: dict[str, Any], console: Console) -> None:
    """Prints the table."""
    table = Table("", title="What was fetched", title_justify="left", min_width=60)
    table.add_column("measured", justify="right")
    table.add_column("promised", justify="right")
    table.add_row("Pages on the site", f"{figures['pages_on_site']:,}", "")
    for number, pages in enumerate(figures["fetched_by_crawler"], 1):
        table.add_row(f"First run: pages fetched by crawler {number}", f"{pages:,}", "")
    for title, measured, promised in promises(figures):
        style = "green" if measured == promised else "bold red"
        table.add_row(title, Text(f"{measured:,}", style=style), f"{promised:,}")
    table.add_row("Dead links", f"{figures['dead_links']:,}", "")
    table.add_row("Links and start pages checked in the first run", f"{figures['links']:,}", "")
    table.add_row("  duplicates", f"{figures['duplicates'] / max(1, figures['links']):.1%}", "")
    table.add_row(f"Redis memory for {figures['filter_items']:,} URLs", "", "")
    room = f"  in tbloom's filter (room for {figures['capacity']:,})"
    table.add_row(room, size(figures["filter_bytes"]), "")
    table.add_row("  in scrapy-redis' set", size(figures["set_bytes"]), "")
    console.print()
    console.print(table)
