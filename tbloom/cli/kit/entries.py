"""The commands by name, in groups, with what each needs."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command: its module in ``commands``, and function if that is not ``command``; its purpose; the extra that all of it
    needs."""

    place: str
    help: str
    extra: str = ""


GROUPS = {
    "Filters": {
        "list": Entry("listing.list_filters", "Shows the filters on a server."),
        "info": Entry("listing.info", "Shows a filter, slice by slice."),
        "plan": Entry("plan", "Computes a filter's memory, or what fits into a given memory."),
        "add": Entry("lookup.add", "Adds the lines of files, and prints the new ones."),
        "check": Entry("lookup.check", "Prints the new lines of files, without adding them."),
        "rate": Entry("lookup.rate", "Measures how often a filter takes new items for seen."),
        "clear": Entry("listing.clear", "Forgets all items of a filter."),
        "reconfigure": Entry(
            "reconfigure", "Gives a filter other parameters, and keeps what it has seen."
        ),
    },
    "Moving data": {
        "import": Entry("importing", "Imports what scrapy-redis or Scrapy has seen, or a file."),
        "export": Entry("export.export", "Writes a filter into a file."),
        "restore": Entry("export.restore", "Restores a filter from an exported file."),
    },
    "Watching": {
        "metrics": Entry(
            "watching.metrics", "Serves the metrics of filters, for Prometheus.", "metrics"
        ),
        "report": Entry("watching.report", "Writes an HTML page about filters.", "cli"),
        "doctor": Entry(
            "development.doctor", "Says what is wrong with a Scrapy project's settings.", "scrapy"
        ),
    },
    "Pages and counts": {
        "pages": Entry("pages", "Stores pages by URL in WARC files, and reads them.", "pages"),
        "count": Entry("count", "Counts distinct members exactly, and combines counters."),
    },
    "Development": {
        "demo": Entry(
            "development.demo", "Crawls a site three times, and shows what was fetched.", "demo"
        ),
        "completion": Entry(
            "development.completion", "Prints a script that completes commands in a shell."
        ),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def install(name: str) -> str:
    """Return how to install the extra that a command, or a part of it, needs."""
    return f"pip install 'tbloom[{COMMANDS[name].extra or 'distinct'}]'"
