"""Crawls in processes forked from one that has imported Scrapy already, because that import takes a second.

    python -m tests.helpers.forked FD

For each job its client sends one end of a socket and the job's stdin, stdout and stderr over the socket FD. The job
itself comes over the job's own socket, and its process id and its exit code go back.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
#: The modules whose ``main`` can be run.
_RUNNABLE = ("tests.helpers.crawl", "tests.helpers.cachecrawl", "tests.helpers.docs_crawler")
#: What a crawl would import later, and packages with what it would import.
_IMPORTED = ["aiohttp", "queuelib", "tldextract", "scrapy_redis.scheduler", "tbloom.scrapy"]
_PACKAGES = ("core.downloader.handlers", "downloadermiddlewares", "spidermiddlewares", "extensions")


class Started:
    """What ``python -m module arguments`` starts, in a forked process; its methods are named as those of ``subprocess.Popen``."""

    def __init__(self, module: str, *arguments: str, stdin: str = "") -> None:
        self._client, its = socket.socketpair()
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 - closed by communicate
        self._files[0].write(stdin.encode())
        self._files[0].seek(0)
        ends = [its.fileno(), *(file.fileno() for file in self._files)]
        socket.send_fds(_server(), [b"job"], ends)
        its.close()
        cwd, env = str(Path.cwd()), {**os.environ}
        job = {"module": module, "arguments": arguments, "cwd": cwd, "env": env}
        self._client.sendall(json.dumps(job).encode() + b"\n")
        self._answers = self._client.makefile()
        self._pid, self._code = int(self._answers.readline()), None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        has_ended = self._code is not None or select.select([self._client], [], [], 0)[0]
        return self.wait() if has_ended else None

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._answers.readline())
        return self._code

    def communicate(self) -> tuple[str, str]:
        try:
            self.wait()
        except BaseException:  # pytest-timeout's
            self.kill()
            raise
        for file in self._files:
            file.seek(0)
        out, err = (file.read().decode() for file in self._files[1:])
        for end in (self._answers, self._client, *self._files):
            end.close()
        return out, err


def run(module: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What ``python -m module arguments`` answers, from a forked process."""
    job = Started(module, *arguments, stdin=stdin)
    out, err = job.communicate()
    return subprocess.CompletedProcess([module, *arguments], job.wait(), out, err)


@functools.cache
def _server() -> socket.socket:
    """The socket of this process's fork server, which ends when that socket is closed."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(its.fileno())], pass_fds=[its.fileno()], cwd=_ROOT
    )
    its.close()
    return mine


def _import() -> None:
    for module in _RUNNABLE:
        importlib.import_module(module)
    for package in _PACKAGES:
        inner = importlib.import_module(f"scrapy.{package}").__path__
        _IMPORTED.extend(
            module.name for module in pkgutil.iter_modules(inner, f"scrapy.{package}.")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of Scrapy's modules are deprecated
        for module in _IMPORTED:
            with suppress(ImportError):  # then a crawl does without it as well
                importlib.import_module(module)


def _serve(control: socket.socket) -> None:
    """Forks for each job a process that forks the job's and waits for it."""
    _import()
    gc.freeze()  # the forked processes need not look through all that
    assert "twisted.internet.reactor" not in sys.modules  # a forked reactor would not run
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the tests, which then end this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 4)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _keep(socket.socket(fileno=descriptors[0]), descriptors[1:])
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(client: socket.socket, descriptors: list[int]) -> None:
    with client.makefile() as lines:
        job = json.loads(lines.readline())
    process = os.fork()
    if process == 0:
        client.close()
        os._exit(_do(job, descriptors))
    client.sendall(f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _do(job: dict[str, Any], descriptors: list[int]) -> int:
    """Runs the job's module in this process; returns its exit code."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["env"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(job["cwd"])
    random.seed()
    module = sys.modules[job["module"]]
    sys.modules["__main__"] = module  # settings may name classes by it
    sys.argv = [job["module"], *job["arguments"]]
    try:
        module.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
