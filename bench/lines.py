"""``tbloom add`` of a file of lines, compared with ``add_many`` and ``redis-cli --pipe``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.contest import in_batches
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom


def measure(server: Server, *, lines: int = 1_000_000) -> list[Table]:
    """Return the duration (s), and the processor time of client and server (s), for new lines and for seen ones."""
    urls = [f"https://example.com/page/{n}" for n in range(lines)]
    with TemporaryDirectory() as folder:
        file, commands = Path(folder) / "lines", Path(folder) / "commands"
        file.write_text("".join(f"{url}\n" for url in urls))
        commands.write_text("".join(f"SADD set {url}\r\n" for url in urls))
        command = Path(sys.executable).parent / "tbloom"
        add = [command, "add", "lines", file, "--url", server.url, "--quiet"]
        pipe = [shutil.which("redis-cli") or "redis-cli", "-u", server.url, "--pipe"]
        rows = []
        for name, run in (
            ("`tbloom add --create`, new", lambda: _run([*add, "--create"])),
            ("`tbloom add`, seen", lambda: _run(add)),
            ("`add_many`, new", lambda: _add_many(server, urls)),
            ("`add_many`, seen", lambda: _add_many(server, urls)),
            ("`redis-cli --pipe`, SADD, new", lambda: _run(pipe, commands)),
            ("`redis-cli --pipe`, SADD, seen", lambda: _run(pipe, commands)),
        ):
            rows.append([name, *_spent(server, run)])
    server.empty()
    return [
        Table("lines", {"": "", "time (s)": ".1f", "client (s)": ".1f", "server (s)": ".1f"}, rows)
    ]


def _run(words: list[str | Path], stdin: Path | None = None) -> None:
    with (stdin or Path("/dev/null")).open("rb") as file:
        subprocess.run(words, stdin=file, stdout=subprocess.DEVNULL, check=True)


def _add_many(server: Server, urls: list[str]) -> None:
    with TimeBloom.from_url(server.url, "many") as seen:
        in_batches(seen.add_many)(urls)


def _spent(server: Server, run: Callable[[], None]) -> tuple[float, float, float]:
    """Return the duration (s), and the processor time of this process with its children, and of the server (s)."""

    def now() -> tuple[float, float, float]:
        cpu = server.client.info("cpu")
        return time.perf_counter(), sum(os.times()[:4]), cpu["used_cpu_user"] + cpu["used_cpu_sys"]

    before = now()
    run()
    clock, client, busy = (after - begin for after, begin in zip(now(), before, strict=True))
    return clock, client, busy
