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
        "list": Entry("listing.list_filters", "Show the filters on a server."),
        "info": Entry("listing.info", "Show a filter, slice by slice."),
        "plan": Entry("plan", "Compute a filter's memory, or the Redis that a crawl needs."),
        "add": Entry("lookup.add", "Add the lines of files, and print the new ones."),
        "check": Entry("lookup.check", "Print the new lines of files, without adding them."),
        "rate": Entry("lookup.rate", "Measure how often a filter takes new items for seen."),
        "clear": Entry("listing.clear", "Forget all items of a filter."),
        "reconfigure": Entry(
            "reconfigure", "Give a filter other parameters, and keep what it has seen."
        ),
    },
    "Scrapy": {
        "push": Entry("pushing.push", "Give URLs to the crawlers of a Scrapy spider.", "scrapy"),
        "queue": Entry(
            "pushing.queue",
            "Show the crawlers of a Scrapy spider, and how many pages wait.",
            "scrapy",
        ),
    },
    "Moving data": {
        "import": Entry("importing", "Import what scrapy-redis or Scrapy has seen, or a file."),
        "export": Entry("export.export", "Write a filter into a file."),
        "restore": Entry("export.restore", "Restore a filter from an exported file."),
    },
    "Watching": {
        "metrics": Entry(
            "watching.metrics", "Serve the metrics of filters, for Prometheus.", "metrics"
        ),
        "report": Entry("watching.report", "Write an HTML page about filters.", "cli"),
        "doctor": Entry(
            "development.doctor", "Say what is wrong with a Scrapy project's settings.", "scrapy"
        ),
    },
    "Pages and counts": {
        "pages": Entry("pages", "Store pages by URL in WARC files, and read them.", "pages"),
        "count": Entry("count", "Count distinct members exactly, and combine counters."),
    },
    "Development": {
        "demo": Entry(
            "development.demo", "Let a fleet of crawlers share a site, then run again.", "demo"
        ),
        "completion": Entry(
            "development.completion", "Print a script that completes commands in a shell."
        ),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def install(name: str) -> str:
    """Return how to install the extra that a command, or a part of it, needs."""
    return f"pip install 'tbloom[{COMMANDS[name].extra or 'distinct'}]'"
