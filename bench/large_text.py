"""The tables and sentences on a hundred gigabytes of pages, and on stores that were only computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from table import Table

from tbloom.cli.commands.pages import planning
from tbloom.cli.commands.pages.planning import PagesPlan

Of = dict[str, Any]

_WAYS = {
    "read": "random read of 64 KB of these files",
    "get": "`get`",
    "get_warm": "`get`, the index in memory",
    "get_many": "`get_many` of 100 pages",
    "in": "`in`",
    "not_in": "`in`, not there",
}
#: Bytes of a record without its body, for the small pages: they have no headers.
_WITHOUT_HEADERS = 370
#: Bytes of bodies, and processors, of the stores that are only computed.
_COMPUTED, _CORES = (10**12, 10**13), 2


def text(of: Of) -> str:
    """What was measured once; a ``note`` says what was different."""
    like, ways = of["like"], of["ways"]
    return TEMPLATE.format(
        when=of["when"][:10],
        machine=of["machine"],
        load=f"{of['load']:.1f}",
        note=of.get("note", ""),
        pages=f"{of['pages']:,}",
        gigabytes=f"{of['body_bytes'] / 1e9:.1f}",
        made=f"{like['made']:.2f}",
        real=f"{like['real']:.2f}",
        facts=_facts(of).markdown(),
        gets=f"{of['gets']:,}",
        rounds=of["rounds"],
        ways=_ways(of).markdown(),
        all=f"{of['gets'] * of['rounds']:,}",
        get=f"{ways['get']['total']:.1f}",
        read=f"{ways['read']['total']:.1f}",
        times=f"{ways['get']['total'] / ways['read']['total']:.2f}",
    )


def planned(growth: Of, body_bytes: float, small: Of, large: Of) -> str:
    """The plan beside the stores that were measured, and beyond them."""
    return PLANNED.format(
        compared=compared(growth, body_bytes, small, large).markdown(),
        kilobytes=f"{body_bytes / 1000:.0f}",
        computed=_computed(body_bytes).markdown(),
        cores=_CORES,
    )


def _facts(of: Of) -> Table:
    pages, parts = of["pages"], of["part_seconds"]
    each = pages / len(parts)
    rows = [
        ["put: pages/s", f"{pages / sum(parts):,.0f}"],
        ["each tenth: pages/s", ", ".join(f"{each / seconds:,.0f}" for seconds in parts)],
        ["put: MB/s of bodies", f"{of['body_bytes'] / sum(parts) / 1e6:,.0f}"],
        ["WARC files: GB", f"{of['segment_bytes'] / 1e9:.2f}"],
        ["of them", f"{of['segments']:,}"],
        ["bytes on disk per page", f"{of['disk_bytes'] / pages:,.0f}"],
        ["index: MB", f"{of['index_bytes'] / 1e6:.1f}"],
        [
            "memory of the writer before, and after: MB",
            f"{of['memory_before'] / 1e6:.0f}, {of['memory'] / 1e6:.0f}",
        ],
        ["opening: ms", f"{of['opening']['clean'] * 1e3:.1f}"],
        ["opening after kill -9: ms", f"{of['opening']['killed'] * 1e3:.1f}"],
        *(
            [f"{way}: s ({pages / of[key]:,.0f} pages/s)", f"{of[key]:,.0f}"]
            for way, key in (("verify", "verify_seconds"), ("rebuild", "rebuild_seconds"))
            if key in of
        ),
        ["index after the rebuild: MB", f"{of['rebuilt_index_bytes'] / 1e6:.1f}"],
    ]
    return Table("", [f"{pages:,} pages", ""], rows)


def _ways(of: Of) -> Table:
    rows = [
        [
            _WAYS[way],
            f"{cost['total']:.1f}",
            f"{cost['seconds'] * 1e6:,.0f}",
            f"{cost['slow'] * 1e6:,.0f}",
            f"{cost['cpu'] * 1e6:,.0f}",
            f"{cost['read'] / 1000:.1f}",
            f"{cost['ratio']:.2f}",
        ]
        for way, cost in of["ways"].items()
    ]
    header = ["", "s", "us", "1 in 100 is slower: us", "of it CPU: us", "KB from the disk", "x"]
    return Table("", header, rows)


def compared(growth: Of, body_bytes: float, small: Of, large: Of) -> Table:
    """Stores as they were planned, and as they were measured."""

    def row(what: str, plan: PagesPlan, segments: float, index: float) -> list[str]:
        return [
            f"{plan.pages:,} {what}",
            *(
                cell
                for made, found in ((plan.segment_bytes, segments), (plan.index_bytes, index))
                for cell in (f"{made / 1e6:,.1f}", f"{found / 1e6:,.1f}", f"{found / made:.2f}")
            ),
        ]

    def rows() -> Iterator[list[str]]:
        for of in growth["rows"]:
            plan = planning.plan(of["pages"], body_bytes)
            yield row("real", plan, of["bytes"] - of["index_bytes"], of["index_bytes"])
        # Random hex digits: each byte has 4 bits.
        plan = planning.plan(
            small["pages"], small["body_bytes"], ratio=2, head_bytes=_WITHOUT_HEADERS
        )
        yield row("small", plan, small["segment_bytes"], small["index_bytes"])
        plan = planning.plan(
            large["pages"], large["body_bytes"] / large["pages"], ratio=large["like"]["made"]
        )
        yield row("made", plan, large["segment_bytes"], large["index_bytes"])

    header = [
        "pages",
        "WARC files, planned: MB",
        "measured",
        "x",
        "index, planned: MB",
        "measured",
        "x",
    ]
    return Table("", header, [*rows()])


def _computed(body_bytes: float) -> Table:
    plans = [
        planning.plan(round(size / body_bytes), body_bytes, cores=_CORES) for size in _COMPUTED
    ]
    rows = [
        [name, *(form(plan) for plan in plans)]
        for name, form in (
            ("pages", lambda plan: f"{plan.pages:,}"),
            ("WARC files: TB", lambda plan: f"{plan.segment_bytes / 1e12:.2f}"),
            ("of them", lambda plan: f"{plan.segments:,}"),
            ("index: GB", lambda plan: f"{plan.index_bytes / 1e9:.1f}"),
            ("rebuild: h", lambda plan: f"{plan.rebuild_seconds / 3600:.1f}"),
            ("verify: h", lambda plan: f"{plan.verify_seconds / 3600:.1f}"),
            ("copy: h", lambda plan: f"{plan.copy_seconds / 3600:.1f}"),
        )
    ]
    return Table("", ["bodies", *(f"{size / 1e12:.0f} TB" for size in _COMPUTED)], rows)


TEMPLATE = """\
`python bench/pages_large.py 100e9 /folder`, in an hour, and 20 GB of disk there

Measured once, on {when}, on {machine}, load {load} before. {pages} pages with {gigabytes} GB of bodies, made from pieces of those of Python's documentation,
none like another: the store's compressor makes them {made} times shorter, and the real ones {real} times. The time to make them does not count. {note}

{facts}

{rounds} rounds; in each, {gets} pages are asked for in each way, drawn at random, none of them twice; each body is compared with what was stored.
Before that, the files are dropped from the page cache (with `posix_fadvise`; *KB from the disk*, of `/proc/self/io`, shows it), and the store is opened anew.
Medians per page; *x* is the median of the rounds' ratios to the random reads, at multiples of 64 KB, in the same round.

{ways}

All {all} gets took {get} s, as many random reads {read} s: {times} times as long. A `get` reads a page of the index (4 KB) and the record.
"""

PLANNED = """\
What [`tbloom pages plan`](pages.md#how-large) computes, and what was measured; *x* is measured to planned:

{compared}

Not measured, only computed, for pages of {kilobytes} KB, a disk that reads 200 MB/s, and {cores} cores:

{computed}
"""
