"""The figures of the demo as a table, beside what tbloom promises."""

from __future__ import annotations

from typing import Any

from tbloom.cli.kit.formats import counted, size
from tbloom.cli.kit.output import table


def promises(figures: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return the figures with a promise: what each says, the measured value, and the promised one."""
    again, after = figures["fetched_again_inside_window"], figures["fetched_after_window"]
    return [
        ("First run: pages fetched twice", figures["fetched_twice"], 0),
        ("First run: pages missed", figures["missed"], 0),
        ("First run: pages that could not be fetched", figures["failed"], 1),
        ("Second run, inside the window: pages fetched (the one that had failed)", again, 1),
        ("Third run, after the window: pages fetched", after, figures["pages_on_site"]),
        ("Third run: pages missed", figures["missed_after_window"], 0),
    ]


def problems(figures: dict[str, Any]) -> list[str]:
    """Return a sentence for each figure that is not as promised."""
    if not figures["second_run_in_time"]:
        return ["The second run did not end within the window: set a longer --period."]
    return [
        f"{title}: {measured:,}, not {promised:,}."
        for title, measured, promised in promises(figures)
        if measured != promised
    ]


def text(figures: dict[str, Any]) -> str:
    """Return the table."""
    by_crawler = enumerate(figures["fetched_by_crawler"], 1)
    duplicates = f"{figures['duplicates'] / max(1, figures['links']):.1%}"
    room = f"  in tbloom's filter (room for {figures['capacity']:,})"
    rows = [
        ("Pages on the site", f"{figures['pages_on_site']:,}", ""),
        *(
            (f"First run: pages fetched by crawler {n}", f"{pages:,}", "")
            for n, pages in by_crawler
        ),
        *((title, f"{got:,}", f"{promised:,}") for title, got, promised in promises(figures)),
        ("Dead links", f"{figures['dead_links']:,}", ""),
        ("Links and start pages checked in the first run", f"{figures['links']:,}", ""),
        ("  duplicates", duplicates, ""),
        (f"Redis memory for {counted(figures['filter_items'], 'URL')}", "", ""),
        (room, size(figures["filter_bytes"]), ""),
        ("  in scrapy-redis' set", size(figures["set_bytes"]), ""),
    ]
    headings = ("What was fetched", "measured", "promised")
    return table([dict(zip(headings, row, strict=True)) for row in rows], left=headings[:1])
