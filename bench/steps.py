"""What each step of one script call takes: the script of ``add``, ended early or with a step left out; and what a new item
of a batch takes besides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count, product
from statistics import median
from typing import Any

import redis

from bench.contenders import after_a_week, arguments
from bench.contest import fingerprints, in_batches
from bench.serving import TOGETHER, Cost, Server, medians
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom.hasher import digests_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import Parts
from tbloom.engine.scripts import Script

#: Steps of the script, each with the words before which it ends.
STEPS = {
    "its functions": "local lane_key, config_key",
    "arguments, token, clock": "if now < begins",
    "parameters and layout": "-- First all looks",
    "sizes of the parts": "for at = 1, #items",
}
#: What a batch may do without, and what stands in its place.
PARTS = {
    "older slices": (" or first_with(groups, items, at, FIRST_PART)", ""),
    "insert": ("local refusal = note_new(", "local refusal = nil and note_new("),
}
BATCH = 50


class _Recorder(redis.Redis):
    """Keeps the words of the last command."""

    words: tuple[Any, ...] = ()

    def execute_command(self, *words: Any, **options: Any) -> Any:
        self.words = words
        return super().execute_command(*words, **options)


def scripts() -> dict[tuple[int, str], str]:
    """The scripts, by the number of items in a call, and what they do."""
    whole = Script("bloom/add").text
    ended = {
        f"up to {name}": (words, "do return {1, 0} end\n" + words) for name, words in STEPS.items()
    }
    left_out = {f"all but {name}": change for name, change in PARTS.items()}
    assert all(whole.count(old) == 1 for old, _ in [*ended.values(), *left_out.values()])
    return {
        (1, "an empty script"): "return {1, 0}",
        **{(1, name): whole.replace(*change) for name, change in ended.items()},
        (1, "all"): whole,
        (BATCH, "an empty script"): "return {1, 0}",
        (BATCH, "all"): whole,
        **{(BATCH, name): whole.replace(*change) for name, change in left_out.items()},
    }


def tables(server: Server, capacity: int, rounds: int, items: int) -> list[Table]:
    """The server's time in each script, per item, for seen and new items; and all that a new item takes in ``add_many``.
    Medians of interleaved rounds."""
    with (
        after_a_week(server, "steps", capacity) as seen,
        _Recorder.from_url(server.url) as recorder,
        server.placed(TOGETHER),
    ):
        TimeBloom(recorder, "steps", **arguments(capacity)).add("one")
        _, _, number_of_keys, *rest = recorder.words
        keys, (_, *middle, _) = rest[: int(number_of_keys)], rest[int(number_of_keys) :]
        known, fresh, numbers = fingerprints("steps", items), count(), count(10**9)
        seen.add_many(known)
        parts = Parts([("", part, 0) for part in Layout(seen.config).parts("the usual")])

        def spent(sha: str, size: int, given: Sequence[str]) -> Cost:
            def run(items: Sequence[str]) -> None:
                for at in range(0, len(items), size):
                    packed = parts.packed(digests_of(items[at : at + size]))
                    server.client.evalsha(sha, len(keys), *keys, next(numbers), *middle, packed)

            return server.measure(run, given)[0]

        def new_items() -> list[str]:
            return [f"new {next(fresh)}" for _ in range(items)]

        def client_costs(given: list[str]) -> tuple[float, float, float]:
            start = time.process_time()
            digests = digests_of(given)
            digested = time.process_time()
            parts.packed(digests)
            packed = time.process_time()
            whole = server.measure(in_batches(seen.add_many), given)[0].client
            return 1e6 * (digested - start) / items, 1e6 * (packed - digested) / items, whole

        times: dict[tuple[int, str], list[tuple[Cost, Cost]]] = {}
        of_client: list[tuple[float, float, float]] = []
        for _, (key, text) in product(range(rounds + 1), scripts().items()):
            sha = server.client.script_load(text)
            both = spent(sha, key[0], known), spent(sha, key[0], new_items())
            times.setdefault(key, []).append(both)
            if key == (BATCH, "all"):
                of_client.append(client_costs(new_items()))
    server.empty()
    # The first round warms up.
    spent_in = {key: [*map(medians, zip(*of[1:], strict=True))] for key, of in times.items()}
    digest, pack, client = map(median, zip(*of_client[1:], strict=True))
    # Processor time, which other programs on the machine do not lengthen much.
    batch = {name: new["server"] for (size, name), (_, new) in spent_in.items() if size == BATCH}
    left_out = {name: batch["all"] - batch[f"all but {name}"] for name in PARTS}
    empty = batch["an empty script"]
    profile = {
        "client: digest": digest,
        "client: pack": pack,
        "client: prepare, send, receive, parse": client - digest - pack,
        "server: receive, parse, answer": empty,
        **{f"script: {name}": spent for name, spent in left_out.items()},
        "script: the rest": batch["all"] - empty - sum(left_out.values()),
    }
    columns = {"items": "d", "": "", "seen: us": ".1f", "new: us": ".1f"}
    rows = [[*key, *(each["commands"] for each in both)] for key, both in spent_in.items()]
    return [
        Table("adding-steps", columns, rows),
        Table("adding-profile", {"": "", "us": ".1f"}, [[*row] for row in profile.items()]),
    ]
