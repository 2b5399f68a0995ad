"""What each step of one script call takes: the script of ``add``, ended early or with a step left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from statistics import median
from typing import Any

import redis
from contenders import after_a_week, arguments
from serving import TOGETHER, measure, placed
from streams import fingerprints

from tbloom import TimeBloom
from tbloom.bloom.hasher import digests_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import Parts
from tbloom.demo.localredis import LocalRedis
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


def texts() -> dict[int, dict[str, str]]:
    """The scripts, by the number of items in a call."""
    whole = Script("bloom/add").text
    changes = {
        f"up to {name}": (words, "do return {1, 0} end\n" + words) for name, words in STEPS.items()
    }
    left_out = {f"all but {name}": change for name, change in PARTS.items()}
    assert all(whole.count(old) == 1 for old, _ in [*changes.values(), *left_out.values()])
    return {
        1: {
            "an empty script": "return {1, 0}",
            **{name: whole.replace(*change) for name, change in changes.items()},
            "all": whole,
        },
        BATCH: {
            "all": whole,
            **{name: whole.replace(*change) for name, change in left_out.items()},
        },
    }


def steps(
    server: LocalRedis, client: redis.Redis, *, capacity: int, rounds: int, items: int
) -> dict[str, Any]:
    """The server's time (us) in each script, per item, for seen and new items; on one core, medians of interleaved rounds."""
    with after_a_week(server.url, client, "steps", capacity) as seen:
        recorder = _Recorder.from_url(server.url)
        TimeBloom(recorder, "steps", **arguments(capacity)).add("one")
        _, _, number_of_keys, *rest = recorder.words
        keys, (_, *middle, _) = rest[: int(number_of_keys)], rest[int(number_of_keys) :]
        known, fresh, numbers = fingerprints("steps", items), count(), count(10**9)
        seen.add_many(known)
        parts = Parts([("", part, 0) for part in Layout(seen.config).parts("the usual")])

        def call(sha: str, some: Sequence[str]) -> Any:
            words = (next(numbers), *middle, parts.packed(digests_of(some)))
            return client.evalsha(sha, len(keys), *keys, *words)

        rows = []
        with placed(server, TOGETHER):
            for size, scripts in texts().items():
                times: dict[tuple[str, str], list[float]] = {}
                for _ in range(rounds + 1):
                    for name, text in scripts.items():
                        sha = client.script_load(text)
                        new = [f"new {next(fresh)}" for _ in range(items)]
                        for kind, these in (("seen", known), ("new", new)):
                            cost, _ = measure(
                                client,
                                lambda all, sha=sha, size=size: [
                                    call(sha, all[at : at + size])
                                    for at in range(0, len(all), size)
                                ],
                                these,
                            )
                            times.setdefault((name, kind), []).append(cost.commands)
                rows += [
                    {"size": size, "name": name}
                    | {kind: median(times[name, kind][1:]) for kind in ("seen", "new")}
                    for name in scripts
                ]
        recorder.close()
    client.flushall()
    return {"rounds": rounds, "items": items, "rows": rows}
