"""A PostgreSQL server of Debian's package, for one test module."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import guard
from tests.helpers.making import missing


@contextmanager
def postgres() -> Iterator[str]:
    """The folder of a running server's socket. Skip the test if there is no server, or no user who may run it."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    try:
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        programs = []
    if not programs:
        missing("Debian's package postgresql")
    folder = tempfile.mkdtemp(prefix="tbloom-pg-")
    os.chown(folder, user.pw_uid, user.pw_gid)
    # As root, the server does not start.
    other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    who = other if os.geteuid() == 0 else {}
    data = f"{folder}/data"
    words = [programs[-1] / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder, **who)  # type: ignore[call-overload]
    options = ["-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(  # type: ignore[call-overload]
        [programs[-1] / "postgres", "-D", data, *options],
        stderr=subprocess.DEVNULL, cwd=folder, start_new_session=True, **who,
    )  # fmt: skip
    guard.watch(server.pid)
    try:
        ready = [programs[-1] / "pg_isready", "--quiet", "-h", folder]
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None
            time.sleep(0.1)
        yield folder
    finally:
        server.terminate()
        guard.reap(server)
        shutil.rmtree(folder)
