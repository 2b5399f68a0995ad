"""Where the time of an add goes, in the client and on the server: ``make bench-profile``.

Times depend on the machine, and the profiler adds some; read the shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import redis
from contenders import Run, after_a_week, in_batches, one_by_one
from pyinstrument import Profiler
from pyinstrument.renderers import ConsoleRenderer
from serving import APART, TOGETHER, command_stats, fresh, measure, placed
from streams import BATCH, rounds_of

#: (s) How often the profiler looks.
INTERVAL = 0.0002
#: Functions with a smaller share are left out.
SMALLEST = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with (
        fresh() as (server, client),
        after_a_week(server.url, client, "profile", arguments.capacity) as seen,
    ):
        stream = rounds_of("profile", arguments.items)
        ways = {
            "add, one by one": one_by_one(seen.add),
            f"add_many of {BATCH}": in_batches(seen.add_many),
        }
        for name, run in ways.items():
            run(next(stream)[0])  # warms up
            for placement in (APART, TOGETHER):
                with placed(server, placement):
                    cost, _ = measure(client, run, next(stream)[0])
                print(
                    f"\n{name}, client and server have {placement}, us per item: {cost.elapsed:.1f}, of it "
                    f"{cost.client:.1f} in the client's process; the server's process: {cost.server:.1f}, of it "
                    f"{cost.commands:.1f} in commands"
                )
            print(commands(client, arguments.items))
            with placed(server, TOGETHER):
                print(profile(run, next(stream)[0]))


def commands(client: redis.Redis, items: int) -> str:
    """What the server was asked for since the statistics were reset, per item; a script's own time too."""
    stats = command_stats(client)
    script = stats.get("evalsha")
    lines = [f"{'command':16} {'per item':>9} {'us each':>8} {'us per item':>12}"]
    for name, values in sorted(stats.items(), key=lambda each: -each[1]["usec"]):
        calls, usec = values["calls"] / items, values["usec"] / items
        lines.append(f"{name:16} {calls:9.3f} {values['usec'] / values['calls']:8.2f} {usec:12.2f}")
    if script:
        inside = sum(values["usec"] for values in stats.values()) - script["usec"]
        own = (script["usec"] - inside) / items
        lines.append(f"evalsha without the commands inside it: {own:.2f} us per item")
    return "\n".join(lines)


def profile(run: Run, items: Sequence[str]) -> str:
    """The client's functions, with their shares of the time from call to answer."""
    profiler = Profiler(interval=INTERVAL)
    with profiler:
        run(items)
    shown = ConsoleRenderer(
        unicode=True,
        show_all=True,
        time="percent_of_total",
        processor_options={"filter_threshold": SMALLEST},
    )
    return profiler.output(shown)


if __name__ == "__main__":
    main()
