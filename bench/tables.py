"""The figures as tables, for the terminal and for the page."""

from __future__ import annotations

from typing import Any

from counts import AGAIN
from distinct import ratios
from pages_text import tables as _pages  # noqa: F401 - see ``of``
from startup import REDIS
from table import Table

NONE = "this server has no RedisBloom"
HAVE = "client and server have"
COSTS = ["us", "client us", "x SADD's", "commands us", "server us", "bytes"]


def about(found: dict[str, Any]) -> str:
    """The machine and the versions, one line each."""
    run = found["about"]
    names = [f"{name} {version or 'not there'}" for name, version in run["versions"].items()]
    return f"{run['machine']}, load {run['load_before']:.1f}\n{', '.join(names)}"


def of(section: str, found: dict[str, Any]) -> list[Table]:
    """The section's tables."""
    tables: list[Table] = globals()[f"_{section}"](found[section])
    return tables


def _adding(of: dict[str, Any]) -> list[Table]:
    groups: dict[str, list[list[str]]] = {}
    by_server: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for row in of["rows"]:
        placement, name, share = row["placement"], row["name"], f"{row['duplicates']} %"
        if row["on"] == of["servers"][0]:
            cells = [_rate(row), *_cells(row, ratio=2), *_costs(row)]
            groups.setdefault(placement, []).append([name, share, *cells])
        line = by_server.setdefault(placement, {}).setdefault((name, share), {})
        line[row["on"]] = f"{row['ratio']:.2f} x, {row['commands']:.1f} us"
    header = ["", "duplicates", "items/s", "x SADD", *COSTS]
    tables = [Table(f"An add: {HAVE} {where}", header, rows, 2) for where, rows in groups.items()]
    header = ["", "duplicates", *of["servers"]]
    for where, lines in by_server.items() if of["servers"][1:] else ():
        rows = [
            [*key, *(cells.get(on, "") for on in of["servers"])] for key, cells in lines.items()
        ]
        tables.append(Table(f"An add on several servers: {HAVE} {where}", header, rows, words=2))
    return tables


def _asyncio(of: dict[str, Any]) -> list[Table]:
    groups: dict[str, list[list[str]]] = {}
    for row in of["rows"]:
        cells = [_rate(row), *_cells(row, ratio=2, to_one=2), *_costs(row)]
        groups.setdefault(row["placement"], []).append([row["name"], f"{row['count']}", *cells])
    header = ["", "at once", "items/s", "x SADD", "x one", *COSTS]
    return [Table(f"Adds at once: {HAVE} {where}", header, rows) for where, rows in groups.items()]


def _rate(row: dict[str, Any]) -> str:
    return f"{1e6 / row['elapsed']:,.0f}"


def _costs(row: dict[str, Any]) -> list[str]:
    """The cells under ``COSTS``."""
    return _cells(row, elapsed=1, client=1, client_ratio=2, commands=1, server=1, sent=0)


def _cells(row: dict[str, Any], **digits: int) -> list[str]:
    """These figures of a row, each with so many digits."""
    return [f"{row[name]:.{count}f}" for name, count in digits.items()]


def _steps(of: dict[str, Any]) -> list[Table]:
    rows = [[str(row["size"]), row["name"], *_cells(row, seen=1, new=1)] for row in of["rows"]]
    header = ["items in a call", "", "commands us, seen", "commands us, new"]
    return [Table("The steps of an add, per item", header, rows, words=2)]


def _race(of: dict[str, Any]) -> list[Table]:
    tables = []
    for placement in dict.fromkeys(row["placement"] for row in of["rows"]):
        rows = [
            [
                row["name"],
                row["calls"],
                _rate(row),
                *_cells(row, ratio=2, elapsed=1, client=1, commands=2, server=1),
            ]
            for row in of["rows"]
            if row["placement"] == placement
        ]
        if not any(row[0].startswith("RedisBloom") for row in rows):
            rows.append(["RedisBloom", NONE, *[""] * 6])
        header = ["", "called", "items/s", "x SADD", "us", "client us", "commands us", "server us"]
        title = f"New or seen? Client and server have {placement}"
        tables.append(Table(title, header, rows, words=2))
    return tables


def _footprint(of: dict[str, Any]) -> list[Table]:
    sadd = next(row["bytes"] for row in of["rows"] if row["name"] == "scrapy-redis: SADD")
    rows = [
        [row["name"], f"{row['bytes']:.1f}", f"{sadd / row['bytes']:.1f}", *_mistakes(row)]
        for row in of["rows"]
    ]
    if not any(row[0].startswith("RedisBloom") for row in rows):
        rows.append([f"RedisBloom: {NONE}", *[""] * 4])
    header = ["", "bytes per item", "SADD is x as much", "mistakes", "rate"]
    return [Table(f"Memory and mistakes with {of['items']:,} items", header, rows)]


def _mistakes(row: dict[str, Any]) -> list[str]:
    if row["asked"] is None:
        return ["none, it is exact", "0"]
    return [f"{row['mistakes']:,} of {row['asked']:,}", f"{row['mistakes'] / row['asked']:.1e}"]


def _startup(of: dict[str, Any]) -> list[Table]:
    seconds = of["seconds"]
    rows = [[name, f"{s:.3f}", f"{s / seconds[REDIS]:.2f}"] for name, s in seconds.items()]
    return [Table("Start-up", ["", "s", f"x {REDIS}"], rows)]


def _capacities(of: dict[str, Any]) -> list[Table]:
    rows = [
        [
            f"{row['capacity']:,}",
            *_cells(row, shards=0, elapsed=1, commands=1, bits=2, allocated_bits=2),
        ]
        for row in of["rows"]
    ]
    header = ["capacity", "shards", "us per add", "commands us", "bits", "allocated bits"]
    return [Table("add in filters of other sizes; bits per item and slice", header, rows)]


def _hashes(of: dict[str, Any]) -> list[Table]:
    rows = [
        [
            f"{row['hashes']}{', the default' if row['hashes'] == of['chosen'] else ''}",
            *_cells(row, bits=1),
            *_cells(row["one"], commands=1, client=1, elapsed=1),
            *_cells(row["many"], commands=1, client=1),
        ]
        for row in of["rows"]
    ]
    header = [
        *("hashes", "bits per item", "add: commands us", "client us", "us"),
        *("add_many: commands us", "client us"),
    ]
    return [Table("The number of hashes", header, rows)]


def _longest(of: dict[str, Any]) -> list[Table]:
    row = [f"{of['items']:,}", f"{of['times']}", f"{of['calls']}", f"{of['longest']:.2f}"]
    header = ["items", "times", "script calls", "longest (ms)"]
    return [Table("add_many: the longest script call", header, [row])]


def _imports(of: dict[str, Any]) -> list[Table]:
    rows = [
        [row["title"], f"{row['rate']:,.0f}", f"{row['server']:.1f}", f"{row['longest']:.1f}"]
        for row in of["rows"]
    ]
    header = ["into", "items/s", "server us", "longest command (ms)"]
    return [Table(f"tbloom import of a set of {of['items']:,}", header, rows)]


def _exact(of: dict[str, Any]) -> list[Table]:
    tables = [_exact_memory(of), _exact_growth(of), _exact_fields(of)]
    speed = of["speed"]
    for placement in dict.fromkeys(row["placement"] for row in speed["rows"]):
        rows = [
            [
                row["name"],
                *_cells(row["new"], elapsed=1, ratio=2, commands=1, server=1),
                *_cells(row["seen"], elapsed=1, ratio=2, commands=1, server=1),
            ]
            for row in speed["rows"]
            if row["placement"] == placement
        ]
        header = [
            *("", "new: us", "x SADD", "commands us", "server us"),
            *("seen: us", "x SADD", "commands us", "server us"),
        ]
        title = f"Exactly: new items, then the same again. Client and server have {placement}"
        tables.append(Table(title, header, rows))
    return [*tables, _exact_dead(of["dead"])]


def _exact_memory(of: dict[str, Any]) -> Table:
    used = {(row["server"], row["name"], row["items"]): row["bytes"] for row in of["memory"]}
    rows = []
    for server, name in dict.fromkeys((row["server"], row["name"]) for row in of["memory"]):
        cells = []
        for size in of["sizes"]:
            own, sadd = (used.get((server, one, size)) for one in (name, "scrapy-redis: SADD"))
            cells += [f"{own:.1f}", f"{own / sadd:.2f}"] if own and sadd else ["", ""]
        rows.append([name, server, *cells])
    header = ["", "on"]
    for size in of["sizes"]:
        header += [f"bytes per item, {size:,} items", "x SADD"]
    return Table("Memory of what remembers exactly", header, rows, words=2)


def _exact_growth(of: dict[str, Any]) -> Table:
    rows = [
        [f"{row['items']:,}", f"{row['items'] / row['buckets']:.0f}", f"{row['bytes']:.1f}"]
        for row in of["growth"]
    ]
    header = ["items", "in a bucket", "bytes per item"]
    return Table("ExactFilter while its items double", header, rows, words=0)


def _exact_fields(of: dict[str, Any]) -> Table:
    rows = [
        [
            row["name"],
            row["server"],
            f"{row['limit'] // 2} to {row['limit']}",
            f"{row['bytes']:.1f}",
        ]
        for row in of["fields"]
    ] or [["no server here has HPEXPIREAT", "", "", ""]]
    header = ["", "on", "in a bucket", "bytes per item"]
    title = f"An expiry for each item, {of['sizes'][0]:,} items: two ways"
    return Table(title, header, rows, words=2)


def _exact_dead(of: dict[str, Any]) -> Table:
    rows = [
        [
            f"{row['adds']:,}",
            f"{row['live']:,}",
            f"{row['dead']:,}",
            f"{row['dead'] / row['live']:.2f}",
            f"{row['bytes'] / 1e6:.1f}",
            *("" if row[name] is None else f"{row[name]:.2f}" for name in ("typical", "longest")),
        ]
        for row in of["rows"]
    ]
    header = [
        *("single adds", "live", "dead", "dead / live", "MB"),
        *("held: median (ms)", "longest (ms)"),
    ]
    title = f"Dead entries: 90 % of {of['items']:,} have expired, in {of['buckets']:,} buckets"
    return Table(title, header, rows, words=0)


def _distinct(of: dict[str, Any]) -> list[Table]:
    return [
        _distinct_memory(of),
        _mapping(of["mapping"]),
        _distinct_costs(of, "verbs", "Counting", ["count", "and", "or", "xor", "andnot"]),
        _ratios(of),
        _distinct_costs(
            of,
            "adds",
            "Adding",
            ["add, new", "add, again", "add_many, new", "add_many, again"],
            digits=1,
        ),
        _daily(of["daily"]),
        _first(of["first"]),
    ]


def _distinct_memory(of: dict[str, Any]) -> Table:
    by_scenario: dict[str, dict[str, Any]] = {}
    for row in of["rows"]:
        by_scenario.setdefault(row["scenario"], {})[row["name"]] = row
    names = [name for name in dict.fromkeys(row["name"] for row in of["rows"]) if name != AGAIN]
    rows = []
    for scenario, by_name in by_scenario.items():
        one = by_name[names[0]]
        error = by_name[names[-1]]["error"]
        rows.append(
            [
                scenario,
                f"{one['ids']:,}",
                *(f"{by_name[name]['bytes']:,}" for name in names),
                f"{one['bytes'] / one['ids']:.1f}",
                *(f"{100 * error[verb]:+.2f}" for verb in ("count", "or")),
            ]
        )
    header = [
        *("", "ids", *(f"{name}, bytes" for name in names)),
        *(f"{names[0]}, bytes per id", "HyperLogLog's count: % off", "its OR: % off"),
    ]
    return Table(f"Memory of ids up to {of['space']:,}", header, rows)


def _ratios(of: dict[str, Any]) -> Table:
    verbs = ["and", "or", "xor", "andnot"]
    parts = {(row["scenario"], row["name"]): row["verbs"].get("and", {}) for row in of["rows"]}
    longest = {
        (row["scenario"], row["name"]): max(cost["longest"] for cost in row["verbs"].values())
        for row in of["rows"]
    }
    rows = [
        [
            scenario,
            name,
            *(f"{times[verb]:.2f}" for verb in verbs),
            f"{longest[scenario, name] / 1000:.2f}",
            *(f"{parts[scenario, name][where]:,.0f}" for where in ("client", "server", "commands")),
        ]
        for scenario, name, times in ratios(of)
    ]
    header = ["", "", *map(str.upper, verbs), "longest command, ms"]
    header += ["AND: client us", "server us", "of these, commands us"]
    return Table("A counter's time as a multiple of BITOP and BITCOUNT", header, rows, words=2)


def _mapping(of: dict[str, Any]) -> Table:
    rows = [
        [
            f"{row['members']:,}",
            f"{row['members'] / row['buckets']:.0f}",
            f"{row['bytes']:.1f}",
            f"{of['by_hand']:.1f}" if row["members"] == of["members"] else "",
        ]
        for row in of["growth"]
    ]
    header = ["members", "in a bucket", "bytes per member", "in one hash, by hand"]
    return Table("The mapping", header, rows, words=0)


def _distinct_costs(
    of: dict[str, Any], what: str, title: str, verbs: list[str], digits: int = 0
) -> Table:
    rows = [
        [
            row["scenario"],
            row["name"],
            *(
                cell
                for cost in (row[what].get(verb) for verb in verbs)
                for cell in (
                    (f"{cost['elapsed']:,.{digits}f}", f"{cost['commands']:,.1f}")
                    if cost
                    else ("", "")
                )
            ),
        ]
        for row in of["rows"]
        if what in row
    ]
    shown = [verb.upper() if verb in ("and", "or", "xor", "andnot") else verb for verb in verbs]
    header = ["", "", *(cell for verb in shown for cell in (f"{verb}: us", "commands us"))]
    return Table(title, header, rows, words=2)


def _daily(of: dict[str, Any]) -> Table:
    counts = [*of["rows"][0]["verbs"]]
    rows = [
        [
            row["scenario"],
            row["name"],
            f"{row['bytes'] / 1e6:.2f}",
            *(
                cell
                for cost in map(row["verbs"].get, counts)
                for cell in (
                    [f"{cost[figure] / 1000:,.2f}" for figure in ("elapsed", "longest")]
                    if cost
                    else ("", "")
                )
            ),
        ]
        for row in of["rows"]
    ]
    header = ["", "", "MB", *(cell for count in counts for cell in (f"{count}: ms", "longest ms"))]
    return Table(f"{of['days']} daily slices", header, rows, words=2)


def _first(of: dict[str, Any]) -> Table:
    rows = [
        [name, *_cells(of[way], elapsed=1, client=1, commands=1, server=1)]
        for way, name in (("add", "`add`"), ("add_many", "`add_many` of 500, per member"))
    ]
    header = ["", "us", "client us", "commands us", "server us"]
    return Table("A member that has no id yet", header, rows)


def _local(of: dict[str, Any]) -> list[Table]:
    rows = [
        [
            row["name"],
            row["way"],
            *(f"{row['empty']:,.0f}", f"{row['half']:,.0f}", f"{1e6 / row['half']:.2f}"),
        ]
        for row in of["rows"]
    ]
    header = ["", "called", "items/s, empty", "items/s, half full", "us, half full"]
    sizes = [[name, f"{size:.1f}"] for name, size in of["bytes"].items()]
    return [
        Table("Without a server: new items", header, rows, words=2),
        Table("Without a server: memory", ["", "bytes per item"], sizes),
    ]


def _linkrace(of: dict[str, Any]) -> list[Table]:
    rows = [
        [row["name"], row["placement"], _rate(row), *_cells(row, ratio=1, elapsed=1, server=1)]
        for row in of["rows"]
    ]
    header = ["", "client and server have", "links/s", "x SADD", "us", "server us"]
    return [Table(f"{of['links']:,} links on {of['pages']} pages", header, rows, words=2)]


def _links(of: dict[str, Any]) -> list[Table]:
    lines = [
        [
            f"{1000 * line['delay']:g}",
            f"{1000 * line['straight']:.3f}",
            f"{1000 * line['round_trip']:.3f}",
            f"{1000 * (line['round_trip'] - line['straight'] - 2 * line['delay']):.3f}",
        ]
        for line in of["lines"]
    ]
    ways = list(dict.fromkeys(row["way"] for row in of["rows"]))
    waited = {(row["way"], row["delay"]): row["waited"] for row in of["rows"]}
    delays = [line["delay"] for line in of["lines"]]
    rows = [[way, *(f"{waited[way, delay]:,.1f}" for delay in delays)] for way in ways]
    title = f"Seconds of waiting for Redis, for {of['links']:,} links on {of['pages']} pages"
    return [
        Table(title, ["", *(f"{1000 * delay:g} ms away" for delay in delays)], rows),
        Table(
            "The line",
            ["delay each way (ms)", "PING straight (ms)", "PING over it (ms)", "its own part (ms)"],
            lines,
        ),
    ]
