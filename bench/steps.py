"""What each step of one script call takes: the script of ``add``, ended early or with a step left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, product
from statistics import median
from typing import Any

import redis

from bench.contenders import after_a_week, arguments
from bench.contest import fingerprints
from bench.serving import TOGETHER, Server
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
        (BATCH, "all"): whole,
        **{(BATCH, name): whole.replace(*change) for name, change in left_out.items()},
    }


def table(server: Server, capacity: int, rounds: int, items: int) -> Table:
    """The server's time in each script, per item, for seen and new items: medians of interleaved rounds."""
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

        def spent(sha: str, size: int, given: Sequence[str]) -> float:
            def run(items: Sequence[str]) -> None:
                for at in range(0, len(items), size):
                    packed = parts.packed(digests_of(items[at : at + size]))
                    server.client.evalsha(sha, len(keys), *keys, next(numbers), *middle, packed)

            return server.measure(run, given)[0].commands

        times: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for _, (key, text) in product(range(rounds + 1), scripts().items()):
            sha = server.client.script_load(text)
            new = [f"new {next(fresh)}" for _ in range(items)]
            both = spent(sha, key[0], known), spent(sha, key[0], new)
            times.setdefault(key, []).append(both)
    server.empty()
    # The first round warms up.
    rows = [[*key, *map(median, zip(*of[1:], strict=True))] for key, of in times.items()]
    return Table("adding-steps", {"items": "d", "": "", "seen: us": ".1f", "new: us": ".1f"}, rows)
