"""The code of layout 1, in a process of its own, beside today's: as long as git has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

#: The last commit of layout 1.
COMMIT = "a20bd8b"
VERBS = "add", "add_many"
ROOT = Path(__file__).parents[1]


class Older:
    """The process. It has a filter for each verb, and times itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        #: By verb.
        self.runs = {verb: partial(self._run, verb) for verb in VERBS}
        self._clock = 0.0, 0.0

    def clock(self) -> tuple[float, float]:
        """The time, and the processor time, of all calls so far."""
        return self._clock

    def _run(self, verb: str, items: Sequence[str]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([verb, items]), file=self._process.stdin, flush=True)
        answers, *clock = json.loads(self._process.stdout.readline())
        self._clock = tuple(clock)
        return answers


@contextmanager
def older(*of: str | int) -> Iterator[Older | None]:
    """On a server: its URL, the capacity. LocalBloom: the capacity, the items in each slice. None: not in git."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "archive", COMMIT, "tbloom", "lua", "bench"]
        archive = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            print(f"without layout 1: {archive.stderr.decode()}", file=sys.stderr)
            yield None
            return
        subprocess.run(["tar", "-xC", folder], input=archive.stdout, check=True)
        # Python looks for modules in a script's folder first.
        script = shutil.copy(__file__, Path(folder) / "bench" / "child.py")
        with subprocess.Popen(
            [sys.executable, script, *map(str, of)],
            env={**os.environ, "PYTHONPATH": folder},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            yield Older(process)


def main() -> None:
    """Answers each line, a verb and its items, with the answers and the clock."""
    runs = dict(zip(VERBS, _runs(*sys.argv[1:]), strict=True))
    elapsed = own = 0.0
    for line in sys.stdin:
        verb, items = json.loads(line)
        start, own_start = time.perf_counter(), time.process_time()
        answers = runs[verb](items)
        elapsed += time.perf_counter() - start
        own += time.process_time() - own_start
        print(json.dumps([answers, elapsed, own]), flush=True)


def _runs(first: str, second: str) -> list[Callable[[list[str]], Any]]:
    # All of these are layout 1's.
    import local  # noqa: PLC0415
    import redis  # noqa: PLC0415
    import window  # noqa: PLC0415
    from contenders import in_batches, one_by_one, tbloom_filter  # noqa: PLC0415

    if first.isdecimal():
        return [local._local(None, int(first), int(second), many) for many in (False, True)]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # see placed() in serving.py
    filters = [tbloom_filter(first, f"older {verb}", int(second)) for verb in VERBS]
    for seen in filters:
        seen.add("the first")
        with redis.Redis.from_url(first) as client:
            window.fill(client, seen)
    return [one_by_one(filters[0].add), in_batches(filters[1].add_many)]


if __name__ == "__main__":
    main()
