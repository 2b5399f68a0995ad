"""``tbloom list``, ``info`` and ``clear``; filters as text and JSON, with advice to their owner."""

from __future__ import annotations

import dataclasses
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import click

from tbloom.bloom.info import FilterInfo, SliceInfo
from tbloom.cli.commands.targets import on_server
from tbloom.cli.kit import formats, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.filters import Server
from tbloom.cli.kit.output import sentence, table, warnings

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Info

#: An error rate of up to this many times the promised one counts as kept.
KEPT = 1.1
#: How full the current slice is (0 to 1) when a filter that doesn't grow warns.
_NEARLY_FULL = 0.95


@click.command(cls=Command, example="tbloom list")
@on_server
@options.as_json
def list_filters(server: Server) -> int:
    """Show the filters on a server.

    Mappings of distinct counters are left out: see 'tbloom count list'. Exit code 1: a filter can't be read.
    """
    found: list[Info]
    infos = server.each(server.names(), methodcaller("info"), also_exact=True)
    found, code = output.readable(infos)
    # Slow for thousands of filters, and only JSON needs it.
    shown = [*map(as_dict, found)] if output.is_on("json") else found
    output.show(shown, lambda: _list(found))
    if not found and not code:
        output.say(f"no filters on {server.place}")
    elif harmed := [info.name for info in found if info.warnings]:
        output.say(f"Warnings about {', '.join(harmed)}: see 'tbloom info'")
    return code


@click.command(cls=Command, example="tbloom info news")
@options.name
@on_server
@options.as_json
def info(name: str, server: Server) -> None:
    """Show a filter, slice by slice.

    NAME is a filter, or a spider of the project in whose folder you are. An exact filter, which has no slices, is shown too. To see it live: watch -n 5 tbloom info NAME.
    """
    found = server.any_filter(name).info()
    output.show(as_dict(found), lambda: as_text(found))


@click.command(cls=Command, example="tbloom clear news --yes")
@options.name
@on_server
@options.yes
def clear(name: str, server: Server) -> None:
    """Forget all items of a filter.

    Parameters are forgotten too. Crawlers may go on meanwhile: to them, every item is new again.
    """
    seen = server.any_filter(name)
    items = formats.counted(seen.info().items, "item")
    output.confirm(f"Forget the {items} of {name!r} on {server.place}?", "nothing was deleted")
    seen.clear()
    output.say(f"Cleared {name!r}")


def _list(found: list[Info]) -> str:
    rows = []
    for info in found:
        window, capacity, rate = "exact", "", "none"
        if isinstance(info, FilterInfo):
            window = formats.window(len(info.slices), info.granularity)
            capacity = f"{info.capacity:,}" if info.capacity else "auto"
            rate = formats.rate(info.error_rate)
        rows.append(
            {
                "filter": info.name,
                "window": window,
                "capacity": capacity,
                "shards": f"{info.shards}",
                "items": f"{info.items:,}",
                "memory": formats.size(info.bytes),
                "error rate": rate,
            }
        )
    return table(rows, left=("filter", "window"))


def advice(info: FilterInfo) -> list[str]:
    """Return the filter's warnings, and what its owner should change. A slice that grows needs no change."""
    found = list(info.warnings)
    current = info.slices[-1]
    full = current.items / info.made_for(current)
    if full >= _NEARLY_FULL and not info.grow:
        found.append(
            f"slice {current.label} is {100 * full:.0f} % full, and doesn't grow: new items are refused then"
        )
    if info.error_rate > KEPT * info.promised_error_rate:
        found.append(
            f"the error rate is {formats.rate(info.error_rate)}, more than the promised "
            f"{formats.rate(info.promised_error_rate)}"
        )
    return found


def as_dict(info: Info) -> dict[str, Any]:
    """Return the fields of ``info``, with totals and advice; for an exact filter, also its kind."""
    if not isinstance(info, FilterInfo):
        return {"kind": "exact", **dataclasses.asdict(info)}
    totals = {name: getattr(info, name) for name in ("items", "bytes", "error_rate")}
    return {**dataclasses.asdict(info), "warnings": advice(info), **totals}


def as_text(info: Info) -> str:
    """Return parameters, slices, totals and advice as text. Empty slices are only counted."""
    shards = f", {info.shards} shards" if info.shards > 1 else ""
    if not isinstance(info, FilterInfo):
        held = f"{formats.counted(info.items, 'item')}, {formats.size(info.bytes)}{shards}"
        first = sentence(f"{info.name}: an exact filter: {held}")
        return "\n".join([first, *warnings(info.warnings)])
    slices = [slice for slice in info.slices if slice.items or slice is info.slices[-1]]
    hidden = len(info.slices) - len(slices)
    lines = [sentence(_parameters(info) + shards), "", _table(info, slices)]
    if hidden:
        text = f"{formats.counted(hidden, 'empty slice')} not shown"
        lines.append(sentence(text))
    return "\n".join([*lines, *warnings(advice(info))])


def window_text(info: FilterInfo) -> str:
    """Return the window in words: ``7 slices of a day (UTC)``."""
    if info.granularity is None:
        return "never forgets"
    period = formats.PERIODS.get(info.granularity, info.granularity)
    return f"{formats.counted(len(info.slices), 'slice')} of {period} ({info.tz})"


def _parameters(info: FilterInfo) -> str:
    made_for = "capacity auto"
    if info.capacity is not None:
        hashes = "1 hash" if info.hashes == 1 else f"{info.hashes} hashes"
        made_for = f"{info.capacity:,} items a slice, {info.bits:,} bits, {hashes}"
    elif info.granularity is None:
        made_for = "grows"
    claims = f", {formats.counted(info.claims, 'claim')}" if info.claims else ""
    rate = formats.rate(info.promised_error_rate)
    return f"{info.name}: {window_text(info)}, {made_for}, error rate at most {rate}{claims}"


def _table(info: FilterInfo, slices: list[SliceInfo]) -> str:
    totals = {
        "slice": "window",
        "items": f"{info.items:,}",
        "error rate": formats.rate(info.error_rate),
        "memory": formats.size(info.bytes),
    }
    rows = [
        {
            "slice": slice.label,
            "expires": formats.moment(slice.expires),
            "items": f"{slice.items:,}",
            "full": f"{100 * slice.items / info.made_for(slice):.0f} %",
            "parts": f"{slice.parts}",
            "error rate": formats.rate(slice.error_rate),
            "memory": formats.size(slice.bytes),
        }
        for slice in slices
    ]
    return table(rows, left=("slice", "expires"), totals=totals)
