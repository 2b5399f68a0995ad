"""Where the time of a new item of a batch goes: the client's part, and the script of ``add``, with a step left out."""

from __future__ import annotations

import time
from itertools import count
from statistics import median
from typing import Any

import redis

from bench.contenders import after_a_week, arguments
from bench.contest import fingerprints, in_batches
from bench.serving import TOGETHER, Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom.hasher import digests_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import Parts
from tbloom.engine.scripts import Script

#: What the script may do without, and what stands in its place.
STEPS = {
    "older slices": (
        " and not first_with(sizes, columns, items, at, first, first + 1)",
        "",
    ),
    "insert": ("      insert(part, part_bytes, start, block, items, at, rows)\n", ""),
}
#: Items in a script call.
SIZE = 50


class _Recorder(redis.Redis):
    """Keeps the words of the last command."""

    sent: tuple[Any, ...] = ()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent = args
        return super().execute_command(*args, **options)


def scripts() -> dict[str, str]:
    """The script, as it is, without anything, and without a step."""
    whole = Script("bloom/add").text
    assert all(whole.count(old) == 1 for old, _ in STEPS.values())
    left_out = {name: whole.replace(*change) for name, change in STEPS.items()}
    return {"all": whole, "empty": "return {1, 0}", **left_out}


def table(server: Server, capacity: int, rounds: int, items: int) -> Table:
    """Processor time for each new item, which other programs on the machine hardly lengthen: medians of the rounds."""
    with (
        after_a_week(server, "steps", capacity) as seen,
        _Recorder.from_url(server.url) as recorder,
        server.placed(TOGETHER),
    ):
        TimeBloom(recorder, "steps", **arguments(capacity)).add("one")
        _, _, number_of_keys, *rest = recorder.sent
        keys, (token, constants, _) = rest[:number_of_keys], rest[number_of_keys:]
        lane = token.split()[1]
        parts = Parts([("", part, 0) for part in Layout(seen.config).parts("the usual")])
        numbers = count(10**9)

        def new_items() -> list[str]:
            return fingerprints(f"new {next(numbers)}", items)

        def spent(text: str) -> float:
            sha = server.client.script_load(text)

            def run(given: Any) -> None:
                for at in range(0, len(given), SIZE):
                    packed = parts.packed(digests_of(given[at : at + SIZE]))
                    given_as = f"{next(numbers):x} {lane.decode()}"
                    server.client.evalsha(sha, len(keys), *keys, given_as, constants, packed)

            return server.measure(run, new_items())[0].server

        def one_round() -> list[float]:
            given, start = new_items(), time.process_time()
            digests = digests_of(given)
            digested = time.process_time()
            parts.packed(digests)
            packed = time.process_time()
            digest, pack = 1e6 * (digested - start) / items, 1e6 * (packed - digested) / items
            client = server.measure(in_batches(seen.add_many), new_items())[0].client
            whole, empty, *without = map(spent, scripts().values())
            steps = [whole - rest for rest in without]
            script = [*steps, whole - empty - sum(steps)]
            return [digest, pack, client - digest - pack, empty, *script]

        # The first round warms up.
        figures = [*zip(*[one_round() for _ in range(rounds + 1)][1:], strict=True)]
    server.empty()
    names = ["client: digest", "client: pack", "client: prepare, send, receive, parse"]
    names += ["server: receive, parse, answer", *(f"script: {step}" for step in STEPS)]
    names.append("script: the rest")
    rows: list[list[Any]] = [[name, median(of)] for name, of in zip(names, figures, strict=True)]
    return Table("adding-profile", {"": "", "us": ".1f"}, rows)
