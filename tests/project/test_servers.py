"""The servers that tests and the demo start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import started
from tests.helpers.making import needed

pytestmark = pytest.mark.check
ENDS = pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
#: Start a server, print its port, and wait. A forked child waits, too; it must not keep the guard's pipe open.
RUN = """
import os, time
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis
server = LocalRedis(BINARIES[MAIN])
server.start()
child = os.fork()
if child:
    print(server.port, child, flush=True)
time.sleep(600)
"""


def _wait_until_refused(address: Any) -> None:
    """Return once nothing listens at the address; pytest-timeout raises if that never happens."""
    kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    with suppress(ConnectionRefusedError):
        while True:
            with socket.socket(kind) as probe:
                probe.connect(address)
            time.sleep(0.01)


@ENDS
def test_a_server_ends_with_the_run_however_that_ends(number: signal.Signals) -> None:
    needed()
    words = [sys.executable, "-c", RUN]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as run:
        port, child = map(int, run.stdout.readline().split())
        run.send_signal(number)
        run.wait()
        try:
            _wait_until_refused(("127.0.0.1", port))
        finally:
            os.kill(child, signal.SIGKILL)


@ENDS
def test_nothing_of_the_demo_runs_on_however_it_ends(number: signal.Signals) -> None:
    """The crawlers have its output, which ends with the last of them."""
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    # (A socket's path is at most 107 bytes long.)
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        with started("demo", env={**environment, "TMPDIR": folder}) as demo:
            assert demo.stdout.readline().endswith(b", started for this run\n")
            [address] = Path(folder).glob("*/socket")
            assert demo.stdout.readline().startswith(b"Site:")
            assert demo.stdout.readline().startswith(b"Fleet:")
            demo.send_signal(number)
            demo.stdout.read()
        assert number == signal.SIGKILL or [] == [*Path(folder).iterdir()]
        if address.exists():
            _wait_until_refused(str(address))
