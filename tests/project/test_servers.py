"""The servers that tests start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.making import needed

#: Starts a server, says which, and waits; its forked child, which waits too, must not keep the server.
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


def _answers(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_the_run_however_that_ends(number: signal.Signals) -> None:
    needed()
    words = [sys.executable, "-c", RUN]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as run:
        port, child = map(int, run.stdout.readline().split())
        run.send_signal(number)
        run.wait()
        try:
            while _answers(port):  # pytest-timeout
                time.sleep(0.01)
        finally:
            os.kill(child, signal.SIGKILL)
