"""The crawler processes of an experiment."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from tbloom.cli.kit.errors import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

_SILENCE_SECONDS = 5.0
_MAX_SILENCES = 36


class Fleet:
    """Crawler processes that begin together; a context manager, which ends them.

    :param settings: Scrapy settings of the crawlers.
    :param check: called while the crawlers send nothing; raises if they can't go on.
    """

    def __init__(
        self,
        size: int,
        settings: Mapping[str, Any],
        check: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._check = check
        self._size = size
        self._processes: list[subprocess.Popen[str]] = []
        self._stderr: list[IO[str]] = []
        self._messages: SimpleQueue[tuple[int, dict[str, Any]]] = SimpleQueue()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            for index in range(self._size):
                self._start(index)
            ready = 0
            while ready < self._size:
                ready += "ready" in self._next()[1]
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def crawl_once(self, advance: Callable[[int], None]) -> list[str]:
        """Lets crawlers that make several crawls make one; returns its pages.

        :raises CommandFailed: where a crawler fails, none sends a message for long, or a page could not be fetched.
        """
        self._go()
        pages: list[str] = []
        asking, asked = self._size, 0
        while asking or len(pages) < asked:
            message = self._next()[1]
            if "asked" in message:
                asking -= 1
                asked += message["asked"]
            elif "failed" in message:
                raise CommandFailed(f"{message['failed']}: {message['reason']}")
            elif "page" in message:
                pages.append(message["page"])
                advance(len(pages))
        return pages

    def complaint(self, index: int) -> str:
        """The last line that a crawler wrote to stderr."""
        self._stderr[index].seek(0)
        lines = [line.strip() for line in self._stderr[index] if line.strip()]
        return lines[-1] if lines else "no error message"

    def _go(self) -> None:
        for process in self._processes:
            if process.stdin:
                process.stdin.write("go\n")
                process.stdin.flush()

    def _start(self, index: int) -> None:
        stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._stderr.append(stderr)
        settings = json.dumps({**self._settings, "DEMO_CRAWLER": str(index + 1)})
        process = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-m", "tbloom.paper.crawler", settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            # Ctrl-C goes to the parent only, which ends its children itself.
            start_new_session=True,
        )
        self._processes.append(process)
        threading.Thread(target=self._listen, args=(index, process), daemon=True).start()

    def _listen(self, index: int, process: subprocess.Popen[str]) -> None:
        """Runs in a thread: puts the messages of a crawler, and its end, into the queue."""
        for line in process.stdout or ():
            with contextlib.suppress(ValueError):  # a line by a library
                message = json.loads(line)
                if isinstance(message, dict):
                    self._messages.put((index, message))
        self._messages.put((index, {"ended": process.wait()}))

    def _next(self) -> tuple[int, dict[str, Any]]:
        """The next message of a crawler, with the crawler's index."""
        for _ in range(_MAX_SILENCES):
            with contextlib.suppress(Empty):
                index, message = self._messages.get(timeout=_SILENCE_SECONDS)
                if not message.get("ended"):
                    return index, message
                self._check()
                raise CommandFailed(
                    f"crawler {index + 1} failed with exit code {message['ended']}: "
                    f"{self.complaint(index)}"
                )
            self._check()
        raise CommandFailed(
            f"no message from the crawlers for {_SILENCE_SECONDS * _MAX_SILENCES:.0f} s"
        )

    def _stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):  # it ended before it read its stdin
                if process.stdin:
                    process.stdin.close()
            process.kill()
            process.wait()
        for stderr in self._stderr:
            stderr.close()
