"""The crawler processes of a run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tbloom.cli.kit.errors import CommandFailed
from tbloom.demo import guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Crawler:
    """A crawler process."""

    def __init__(self, settings: Mapping[str, Any], output: IO[str]) -> None:
        self._output = output
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-m", "tbloom.demo.crawler", json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Python imports from the current folder first, which may be a clone of tbloom.
            cwd=Path(sys.executable).parent,
            start_new_session=True,  # Ctrl-C goes to the parent only, which ends its children itself
        )
        guard.watch(self.process.pid)

    def stats(self) -> dict[str, Any]:
        """Return Scrapy's stats, the only output of a crawl that succeeded. Raise CommandFailed for any other."""
        self._output.seek(0)
        lines = self._output.read().splitlines() or ["no message"]
        with contextlib.suppress(ValueError):
            stats: dict[str, Any] = json.loads(lines[-1])
            if len(lines) == 1 and stats.get("finish_reason") == "finished":
                return stats
            lines = lines[:-1] or [f"the crawl ended as {stats.get('finish_reason')!r}"]
        raise CommandFailed(f"a crawler failed: {lines[-1]}")


@contextlib.contextmanager
def fleet(settings: Sequence[Mapping[str, Any]]) -> Iterator[list[Crawler]]:
    """Yield a running crawler for each of the settings. At the end, kill those that still run."""
    with contextlib.ExitStack() as stack:
        crawlers = []
        for each in settings:
            output = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            crawlers.append(Crawler(each, output))
            stack.callback(guard.reap, crawlers[-1].process)
            stack.callback(crawlers[-1].process.kill)
        yield crawlers
