"""The tables and sentences on the page store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import large_text
from table import Table

Of = dict[str, Any]

#: What ``pages_small.py`` has found.
SMALL = Path(__file__).with_name("pages_small.json")
#: What ``pages_large.py`` has found.
LARGE = Path(__file__).with_name("pages_large.json")
#: Two of those that are compared (see ``pages_peers``).
OURS = "tbloom, `PageCacheStorage`"
FILES = "`FilesystemCacheStorage`"


def among(of: Of, pages: int) -> Of:
    """The figures of the store of this number of pages; raises LookupError."""
    return {row["pages"]: row for row in of["growth"]["rows"]}[pages]


def tables(of: Of) -> list[Table]:
    """The section's."""
    return [
        _gets(of["growth"]),
        _sizes(of["growth"]),
        _through(of["through"]),
        _peers(of["peers"]),
        _disk(of["peers"]),
        _sliced(of["sliced"]),
        _compressors(of["compressors"]),
        _codecs(of["codecs"]),
    ]


def text(of: Of) -> str:
    """The section, as Markdown."""
    gets, sizes, through, peers, disk, sliced, compressors, codecs = tables(of)
    growth, largest = of["growth"], of["growth"]["rows"][-1]
    small, large = (json.loads(path.read_text()) for path in (SMALL, LARGE))
    return TEMPLATE.format(
        bodies=of["bodies"],
        kilobytes=f"{of['body_bytes'] / 1000:.0f}",
        pages=", ".join(f"{row['pages']:,}" for row in growth["rows"]),
        rounds=growth["rounds"],
        asked=f"{growth['gets']:,}",
        remembered=_remembered(largest["bytes"] - largest["index_bytes"], largest["remembered"]),
        gets=gets.markdown(),
        sizes=sizes.markdown(),
        looked_through=f"{of['through']['pages']:,}",
        through=through.markdown(),
        rebuilt=f"{of['through']['index_bytes'] / of['through']['pages']:.0f}",
        small=of_small(small),
        large=large_text.text(large),
        planned=large_text.planned(growth, of["body_bytes"], small, large),
        cached=f"{of['peers']['pages']:,}",
        cached_rounds=of["peers"]["rounds"],
        part=f"{of['peers']['part']:,}",
        from_disk=of["peers"]["from_disk"],
        dbm=of["peers"]["dbm"],
        peers=peers.markdown(),
        disk=disk.markdown(),
        faster=" ".join(faster(of["peers"])),
        sliced_pages=f"{of['sliced']['pages']:,}",
        sliced=sliced.markdown(),
        compressors=compressors.markdown(),
        codecs=codecs.markdown(),
        dearer=_dearer(of["compressors"]),
    )


def faster(of: Of) -> Iterator[str]:
    """A sentence on each way in which one of Scrapy's storages is faster."""
    rows = {row["name"]: row for row in of["rows"]}
    own = rows[OURS]
    for way, verb in (
        ("put", "to store a page"),
        ("get", "to get one"),
        ("cold", "to get one from the disk"),
    ):
        names = [
            f"{name} ({own[way] / row[way]:.1f} x)"
            for name, row in rows.items()
            if not name.startswith("tbloom") and row[way] < own[way]
        ]
        if names:
            yield f"Faster than `PageCacheStorage` {verb}: {', '.join(names)}."
        else:
            yield f"None of them is faster {verb}."


def _remembered(size: int, remembered: int | None) -> str:
    known = "it is not known how much" if remembered is None else f"{remembered / 1e9:.2f}"
    return (
        f"the segments have {size / 1e9:.2f} GB; {known} of that was in the system's page cache "
        "before the first round."
    )


def _dearer(of: Of) -> str:
    """Why no other level."""
    rows = {row["name"]: row for row in of["rows"]}
    own, finest, usual = rows[of["ours"]], rows["ISA-L, level 3"], rows["zlib, level 6"]
    return (
        f"ISA-L's level 3 takes {finest['deflate'] / own['deflate']:.1f} times as long as tbloom's for "
        f"{100 * (1 - finest['bytes'] / own['bytes']):.0f} % fewer bytes; zlib's usual level 6 "
        f"{usual['deflate'] / own['deflate']:.0f} times as long for {100 * (1 - usual['bytes'] / own['bytes']):.0f} %."
    )


def _gets(of: Of) -> Table:
    rows = [
        [
            f"{row['pages']:,}",
            f"{of['gets'] * row['get']:.2f}",
            f"{row['get'] * 1e6:.1f}",
            f"{row['ratio']:.2f}",
            *(f"{row[figure] * 1e6:.1f}" for figure in ("in", "not_in", "miss", "cold")),
        ]
        for row in of["rows"]
    ]
    header = [
        *("pages", f"{of['gets']:,} gets: s", "get: us", "x"),
        *("in: us", "in, not there: us", "get, not there: us", "get from the disk: us"),
    ]
    return Table("Pages drawn at random, of many", header, rows, words=0)


def _sizes(of: Of) -> Table:
    rows = [
        [
            f"{row['pages']:,}",
            f"{row['put'] * 1e6:,.0f}",
            f"{row['disk_bytes'] / row['pages']:,.0f}",
            f"{row['index_bytes'] / row['pages']:.0f}",
            f"{row['segments']}",
            *(f"{row['opening'][how] * 1e3:.1f}" for how in ("clean", "killed")),
        ]
        for row in of["rows"]
    ]
    header = [
        *("pages", "put: us", "bytes on disk per page", "of them index", "segments"),
        *("opening: ms", "after kill -9: ms"),
    ]
    return Table("What they take, and how long they take to open", header, rows, words=0)


def _through(of: Of) -> Table:
    rows = [
        [
            name,
            f"{row['jobs']}",
            f"{row[way]:.1f}",
            f"{of['pages'] / row[way]:,.0f}",
            f"{of['bytes'] / row[way] / 1e6:,.0f}",
        ]
        for way, name in (("rebuild", "`PageStore.rebuild`"), ("verify", "`verify`"))
        for row in of["rows"]
    ]
    header = ["", "processes", "s", "pages/s", "MB/s"]
    return Table(f"All of {of['pages']:,} pages", header, rows)


def _peers(of: Of) -> Table:
    rows = [
        [
            row["name"],
            *(
                cell
                for way in ("put", "get", "cold")
                for cell in (
                    *([f"{1 / row[way]:,.0f}"] if way != "cold" else []),
                    f"{row[way] * 1e6:,.0f}",
                    f"{row[way + '_ratio']:.2f}",
                )
            ),
        ]
        for row in of["rows"]
    ]
    header = [
        *("", "put: pages/s", "us", "x files", "get: pages/s", "us", "x files"),
        *("get from the disk: us", "x files"),
    ]
    return Table(f"Scrapy's cache: rates with {of['pages']:,} pages", header, rows)


def _disk(of: Of) -> Table:
    files = next(row["bytes"] for row in of["rows"] if row["name"] == FILES)
    rows = [
        [
            row["name"],
            f"{row['bytes'] / 1e6:,.1f}",
            f"{row['bytes'] / of['pages']:,.0f}",
            f"{files / row['bytes']:.1f}",
            f"{row['files']:,}",
            f"{row['folders']:,}",
        ]
        for row in of["rows"]
    ]
    header = ["", "MB on disk", "bytes per page", "files take x as much", "files", "folders"]
    return Table(f"Scrapy's cache: {of['pages']:,} pages on disk", header, rows)


def _sliced(of: Of) -> Table:
    rows = [
        [
            f"{row['slices']} ({_PERIODS[row['granularity']]})",
            f"{row['get'] * 1e6:.1f}",
            f"{row['miss'] * 1e6:.1f}",
        ]
        for row in of["rows"]
    ]
    header = ["slices", "get: us", "in, not there: us"]
    return Table(f"{of['pages']:,} pages in slices", header, rows)


_PERIODS = {None: "for ever", "d": "days", "h": "hours"}


def _compressors(of: Of) -> Table:
    rows = [
        [
            f"{row['name']}{', tbloom' if row['name'] == of['ours'] else ''}",
            *(f"{row[way] * 1e6:,.0f}" for way in ("deflate", "inflate")),
            f"{row['bytes']:,.0f}",
        ]
        for row in of["rows"]
    ]
    return Table("A page, compressed", ["", "deflate: us", "inflate: us", "bytes"], rows)


def _codecs(of: Of) -> Table:
    rows = [
        [
            f"`{plain['name']}`",
            *(f"{row[way] * 1e6:,.0f}" for row in both for way in ("deflate", "inflate")),
            *(f"{row['bytes']:,.0f}" for row in both),
        ]
        for both in zip(of["plain"]["rows"], of["packed"]["rows"], strict=True)
        for plain in both[:1]
    ]
    header = [
        *("", "to a record: us", "from it: us", "gzipped by the server: to: us", "from: us"),
        *("bytes", "gzipped by the server: bytes"),
    ]
    return Table("A page's record", header, rows)


def of_small(of: Of) -> str:
    """What was measured once."""
    pages, parts = of["pages"], of["part_seconds"]
    each = pages / len(parts)
    rows = [
        ["build: pages/s", f"{pages / sum(parts):,.0f}"],
        ["first and last tenth: pages/s", f"{each / parts[0]:,.0f} and {each / parts[-1]:,.0f}"],
        ["bytes on disk per page", f"{of['disk_bytes'] / pages:,.0f}"],
        ["index: bytes per page", f"{of['index_bytes'] / pages:.1f}"],
        ["rebuilt index: bytes per page", f"{of['rebuilt_index_bytes'] / pages:.1f}"],
        [f"{of['gets']:,} random gets: s", f"{of['get'] * of['gets']:.2f}"],
        ["get: us", f"{of['get'] * 1e6:.1f}"],
        ["in: us", f"{of['in'] * 1e6:.1f}"],
        ["in, not there: us", f"{of['not_in'] * 1e6:.1f}"],
        ["opening: ms", f"{of['opening']['clean'] * 1e3:.1f}"],
        ["opening after kill -9: ms", f"{of['opening']['killed'] * 1e3:.1f}"],
        ["rebuild: s", f"{of['rebuild_seconds']:,.0f}"],
        ["rebuild: pages/s", f"{pages / of['rebuild_seconds']:,.0f}"],
    ]
    table = Table("", [f"{pages:,} pages with bodies of {of['body_bytes']} bytes", ""], rows)
    return (
        f"Measured once, on {of['when'][:10]}, on {of['machine']}; the gets are medians of "
        f"{of['rounds']} rounds; {_remembered(of['segment_bytes'], of.get('remembered'))}\n\n{table.markdown()}"
    )


TEMPLATE = """\
`make bench ARGS="--only pages"`, in about ten minutes, and 20 GB of disk

`PageStore`, with the {bodies} HTML pages of Debian's `python3.11-doc`, {kilobytes} KB each on average, stored repeatedly under different URLs,
with eight headers.

### By number of pages

Stores of {pages} pages, without slices, are open side by side. {rounds} rounds; in each, every store is asked for {asked} different pages,
drawn at random, and then for pages that it does not have. Medians per call; *x* is the median of the rounds' ratios to the smallest store.
All segments have been read once before. Of the largest store: {remembered} *From the disk*: the segments (not the index) were dropped from the page cache once.

{gets}

Disk use in blocks that the file system has allocated. *Opening* is opening to write, after `close`, and after a writer's `kill -9`; medians of 5.

{sizes}

A rebuild reads the headers of all records; `verify` decompresses all records and compares digests. {looked_through} pages,
read from the disk, in one process and in two; MB of segments. The rebuilt index takes {rebuilt} bytes a page.

{through}

### Ten million

`python bench/pages_small.py 10_000_000`, in about half an hour

{small}

### A hundred gigabytes

{large}
### Planned

{planned}
### As Scrapy's cache

`PageCacheStorage` compared with Scrapy's own storages, each through `store_response` and `retrieve_response`, as `HttpCacheMiddleware` calls them,
and `PageStore` itself. {cached} pages, stored in {cached_rounds} rounds of {part}, and then as many gets drawn at random; each round measures all of them. Medians; *x files*
is the rate to that of `FilesystemCacheStorage`, Scrapy's default, as median of the rounds' ratios. `DbmCacheStorage` uses what this Python has,
`{dbm}`. None waits for the disk at each page. *From the disk*: all their files were dropped from the page cache before each of {cached_rounds} rounds of {from_disk}.

{peers}

{disk}

{faster} Of Scrapy's own, only `HTTPCACHE_GZIP` compresses, and all of it fits into the system's page cache here. What Scrapy's own
storages lack: they do not forget old pages (an expired page is fetched again, but keeps its space until then), and other tools can't read them.

### Slices

{sliced_pages} pages, as many in each slice. A search begins at the newest slice, so a get reads half of the slices on average, and
a miss all of them.

{sliced}

### Codecs

A page's record made and read, in memory; with the body as it is, and as a server has gzipped it. `gzip` stores a body
uncompressed that is compressed already.

{codecs}

### Why ISA-L

The bodies alone, as deflate; any gzip can read it. {dearer}

{compressors}
"""
