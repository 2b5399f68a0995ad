"""Writes docs/benchmarks.md, and the plots beside it, from the figures of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import goals
import overview
import pages_text
import tables
import template
from contenders import ADD, ADD_MANY, SADD
from counts import BITMAP, COUNTER, SET
from distinct import slower
from streams import BATCH
from table import Table

from tbloom.bloom.sizing import COLUMNS, choose, load_at
from tbloom.cli.kit.charts import Bar, chart

Found = dict[str, Any]


def write(found: Found, path: Path, *, in_full: bool) -> Iterator[Path]:
    """The page, and its plots in the same folder. Not ``in_full``: the parts of it that were measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, svg in plots(found).items() if in_full else ():
        plot = path.parent / f"benchmarks-{name}.svg"
        plot.write_text(svg, encoding="utf-8")
        yield plot
    former = None if in_full else path.read_text(encoding="utf-8")
    path.write_text(text(found, former), encoding="utf-8")
    yield path


def plots(found: Found) -> dict[str, str]:
    """By name, each an SVG."""
    race, links = found["race"], found["links"]
    placement = race["rows"][0]["placement"]
    rated = sorted(
        (row for row in race["rows"] if row["placement"] == placement),
        key=lambda row: -row["ratio"],
    )
    rates = [
        (
            heading,
            [
                Bar(row["name"], row["ratio"], _times(row["ratio"]))
                for row in rated
                if is_batched(row["name"]) == batched
            ],
        )
        for heading, batched in (("one by one", False), (f"in batches of {BATCH}", True))
    ]
    memory = [
        Bar(row["name"], row["bytes"], f"{row['bytes']:.1f}")
        for row in sorted(found["footprint"]["rows"], key=lambda row: row["bytes"])
    ]
    waits = [
        (
            f"{1000 * line['delay']:g} ms away",
            [
                Bar(row["way"], row["waited"], _duration(row["waited"]))
                for row in links["rows"]
                if row["delay"] == line["delay"]
            ],
        )
        for line in links["lines"]
    ]
    return {
        "rate": chart(
            "Items per second, to those of SADD one by one",
            f"more is better; client and server have {placement}; logarithmic scale",
            rates,
            log=True,
        ),
        "memory": chart("Bytes per item", "less is better", [("", memory)], log=False),
        "waiting": chart(
            f"Waiting for Redis, for {links['links']:,} links (s)",
            "less is better; logarithmic scale",
            waits,
            log=True,
        ),
    }


def is_batched(name: str) -> bool:
    """Whether the contender takes many items at once."""
    return f" {BATCH}" in name


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"


def text(found: Found, former: str | None = None) -> str:
    """The page. What was not measured is as on the ``former`` page."""
    fields: Found = {
        "when": found["about"]["when"][:10],
        "goals": _goals(found, former or ""),
        "machine": _machine(found, former),
        "bits_by_hashes": bits_by_hashes(),
    }
    for section, of in found.items():
        if section in SPECIAL:
            fields |= SPECIAL[section](found)
        elif section not in ("quick", "about"):
            fields[section] = _all(tables.of(section, found))
        if isinstance(of, dict):
            numbers = {name: figure for name, figure in of.items() if isinstance(figure, int)}
            fields |= {f"{section}_{name}": f"{figure:,}" for name, figure in numbers.items()}
    if found.keys() >= {"race", "footprint"}:
        fields["overview"] = overview.table(found).markdown()
        fields |= {"faster": " ".join(faster(found)), "smaller": " ".join(smaller(found))}
    return template.filled(fields, former)


def _all(of: list[Table]) -> str:
    """The tables; with titles, if there are several."""
    if len(of) == 1:
        return of[0].markdown()
    return "\n\n".join(f"**{table.title}:**\n\n{table.markdown()}" for table in of)


def _goals(found: Found, former: str) -> str:
    """The table of goals. A goal that was not measured now is as on the former page."""
    lines = goals.table(found).markdown().splitlines()
    kept = {line.split(" | ")[0]: line for line in former.partition("## Goals")[2].splitlines()}
    return "\n".join(
        kept.get(line.split(" | ")[0], line) if "| not measured |" in line else line
        for line in lines
    )


def _machine(found: Found, former: str | None) -> str:
    """The machine, and which sections were measured at another time."""
    about = found["about"]
    again = about.get("again", {})
    if former is None:
        versions = [
            f"{name} {number or '(not there)'}" for name, number in about["versions"].items()
        ]
        load = f"{about['load_before']:.1f} before and {about['load_after']:.1f} after"
        machine = f"{about['machine']}, load {load}: {', '.join(versions)}."
    else:
        machine = former.partition("## The machine\n")[2].strip()
        elsewhere = "" if machine.startswith(about["machine"]) else f", on {about['machine']}"
        days = dict.fromkeys(found.keys() - {"quick", "about"}, about["when"][:10]) | again
        again = {name: day if ", on " in day else day + elsewhere for name, day in days.items()}
    for name, when in sorted(again.items()):
        note = f" (`--only {name}` was measured by itself on "
        machine = f"{re.sub(re.escape(note) + r'.*?[.][)]', '', machine)}{note}{when}.)"
    return machine


def _capacities(found: Found) -> Found:
    sizes = {row["capacity"]: row for row in found["capacities"]["rows"]}
    million = sizes.get(1_000_000, sizes[max(sizes)])
    return {
        "capacities": _all(tables.of("capacities", found)),
        "million_bits": f"{million['bits']:.1f}",
        "million_allocated": f"{million['allocated_bits']:.1f}",
    }


def _local(found: Found) -> Found:
    speed, memory = tables.of("local", found)
    return {"local": speed.markdown(), "local_memory": memory.markdown()}


def _links(found: Found) -> Found:
    (waiting, line), of = tables.of("links", found), found["links"]
    seen = f"{100 * (1 - of['distinct'] / of['links']):.1f}"
    return {"waiting": waiting.markdown(), "line": line.markdown(), "seen": seen}


def _exact(found: Found) -> dict[str, str]:
    of = found["exact"]
    memory, growth, fields, *speed, dead = tables.of("exact", found)
    return {
        "exact_first": f"{of['sizes'][0]:,}",
        "exact_memory": memory.markdown(),
        "exact_growth": growth.markdown(),
        "exact_fields": fields.markdown(),
        "exact_stock": f"{of['speed']['stock']:,}",
        "exact_rounds": of["speed"]["rounds"],
        "exact_items": f"{of['speed']['items']:,}",
        "exact_speed": _all(speed),
        "exact_dead_items": f"{of['dead']['items']:,}",
        "exact_dead": dead.markdown(),
    }


def _distinct(found: Found) -> dict[str, str]:
    of = found["distinct"]
    memory, mapping, counting, ratio, adding, daily, first = tables.of("distinct", found)
    return {
        "distinct_memory": memory.markdown(),
        "distinct_mapping": mapping.markdown(),
        "distinct_counting": counting.markdown(),
        "distinct_ratio": ratio.markdown(),
        "distinct_slower": "\n".join(
            f"- {peer}: {'; '.join(where)}." for peer, where in slower(of)
        ),
        "distinct_daily": daily.markdown(),
        **{
            f"distinct_daily_{name}": of["daily"][name]
            for name in ("days", "week", "rounds", "slow")
        },
        "distinct_longest": _longest(of["daily"]["rows"]),
        "distinct_adding": adding.markdown(),
        "distinct_first": first.markdown(),
    }


def _longest(rows: list[dict[str, Any]]) -> str:
    """A sentence on the longest wait while slices are counted."""
    costs = {
        name: [cost for row in rows if row["name"] == name for cost in row["verbs"].values()]
        for name in (COUNTER, BITMAP, SET)
    }
    longest = {name: max(cost["longest"] for cost in each) / 1000 for name, each in costs.items()}
    sent = max(cost["commands_sent"] for cost in costs[COUNTER])
    return (
        f"The longest of these commands held the server for {longest[COUNTER]:.1f} ms (in the median of the counts), and a count took up to {sent}; "
        f"the longest command was {longest[BITMAP]:.1f} ms for bitmaps, and {longest[SET]:,.0f} ms for a `SET`."
    )


#: Sections of which the page shows more than their tables and numbers.
SPECIAL: dict[str, Callable[[Found], Found]] = {
    "capacities": _capacities,
    "exact": _exact,
    "distinct": _distinct,
    "local": _local,
    "links": _links,
    "pages": lambda found: {"pages": pages_text.text(found["pages"])},
}


def faster(found: Found) -> Iterator[str]:
    """A sentence on each peer that is faster than tbloom in the same way of asking."""
    rows = found["race"]["rows"]
    placement = rows[0]["placement"]
    ratio = {row["name"]: row["ratio"] for row in rows if row["placement"] == placement}
    for own, called, batched in (
        (ADD, "`add`", False),
        (ADD_MANY, f"`add_many` of {BATCH}", True),
    ):
        peers = {
            name: value / ratio[own]
            for name, value in ratio.items()
            if not name.startswith("tbloom") and is_batched(name) == batched
        }
        names = [f"{name} ({by:.1f} x)" for name, by in peers.items() if by > 1]
        if names:
            yield f"Faster than {called}: {_list(names)}."


def smaller(found: Found) -> Iterator[str]:
    """A sentence on the peers that take less memory than tbloom."""
    rows = {row["name"]: row["bytes"] for row in found["footprint"]["rows"]}
    own = rows.pop("tbloom, 7 slices")
    names = [f"{name} ({size:.1f} bytes)" for name, size in rows.items() if size < own]
    if names:
        yield f"Smaller than tbloom: {_list(names)}."
    yield f"`SADD` takes {rows[SADD] / own:.0f} times as much."


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[:-1] else names)


def bits_by_hashes() -> str:
    """Bits per item, by hashes and by the rate of a slice (1e-2, 1e-4, 1e-6 over a window of 7 that may grow)."""
    rates = 7.1e-4, 7.1e-6, 7.1e-8
    chosen = [choose(10**9, rate).hashes for rate in rates]
    rows = []
    for hashes in range(8, 21):
        bits = [f"{hashes * COLUMNS / load_at(rate, hashes):.1f}" for rate in rates]
        marked = [f"**{b}**" if k == hashes else b for b, k in zip(bits, chosen, strict=True)]
        rows.append([str(hashes), *marked])
    header = ["hashes", *(f"{rate:.1e}".replace("e-0", "e-") for rate in rates)]
    return Table("", header, rows, words=0).markdown()
