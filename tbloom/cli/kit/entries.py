"""The commands by name, in groups, with what each needs."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command: its module in ``commands``, its purpose, the extra that all of it needs, and its name in the module."""

    module: str
    help: str
    extra: str = ""
    function: str = "command"


GROUPS = {
    "Filters": {
        "list": Entry("listing", "Shows the filters on a server.", function="list_filters"),
        "info": Entry("listing", "Shows a filter, slice by slice.", function="info"),
        "plan": Entry("plan", "Computes a filter's memory, or what fits into a given memory."),
        "add": Entry("lookup", "Adds the lines of files, and prints the new ones.", function="add"),
        "check": Entry(
            "lookup", "Prints the new lines of files, without adding them.", function="check"
        ),
        "rate": Entry(
            "lookup", "Measures how often a filter takes new items for seen.", function="rate"
        ),
        "clear": Entry("listing", "Forgets all items of a filter.", function="clear"),
        "reconfigure": Entry(
            "reconfigure", "Gives a filter other parameters, and keeps what it has seen."
        ),
    },
    "Moving data": {
        "import": Entry("importing", "Imports what scrapy-redis or Scrapy has seen, or a file."),
        "export": Entry("export", "Writes a filter into a file."),
        "restore": Entry("restore", "Restores a filter from an exported file."),
    },
    "Watching": {
        "metrics": Entry("metrics", "Serves the metrics of filters, for Prometheus.", "metrics"),
        "report": Entry("report", "Writes an HTML page about filters.", "cli"),
        "doctor": Entry(
            "development",
            "Says what is wrong with a Scrapy project's settings.",
            "scrapy",
            "doctor",
        ),
    },
    "Pages and counts": {
        "pages": Entry("pages", "Stores pages by URL in WARC files, and reads them.", "pages"),
        "count": Entry("count", "Counts distinct members exactly, and combines counters."),
    },
    "Development": {
        "demo": Entry(
            "development", "Crawls a site three times, and shows what was fetched.", "demo", "demo"
        ),
        "completion": Entry(
            "development", "Prints a script that completes commands in a shell.", "", "completion"
        ),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
#: The extras with what parts of commands need.
_PARTS = {"pyarrow": "arrow"}


def install(name: str, module: str = "") -> str:
    """How the extra is installed that a command needs, or a part of it, which needs the ``module``."""
    return f"pip install 'tbloom[{COMMANDS[name].extra or _PARTS.get(module, 'distinct')}]'"
