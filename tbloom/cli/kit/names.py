"""The names of filters that a shell offers when the user presses Tab."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tbloom.cli.kit.errors import VARIABLES

if TYPE_CHECKING:
    import click

LOCAL = "redis://localhost:6379/0"
#: How long a list is offered again (s): a user presses Tab several times for one name.
_SECONDS = 30.0
#: How long each reply is waited for (s): longer than that, the shell seems to hang.
_WAIT_SECONDS = 0.5


def complete(context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the filters on the server that begin so; none where it does not answer."""
    url = context.params.get("server") or next(filter(None, map(os.environ.get, VARIABLES)), LOCAL)
    return [name for name in _names(url) if name.startswith(incomplete) and name.isprintable()]


def _names(url: str) -> list[str]:
    """The names, from a file if it is new enough, else from the server."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tbloom"
    file = folder / f"{hashlib.sha256(url.encode(errors='replace')).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError):
        if time.time() - file.stat().st_mtime < _SECONDS:
            return [str(name) for name in json.loads(file.read_text(encoding="utf-8"))]
    from tbloom.cli.kit.filters import connect  # noqa: PLC0415 - the file is read without redis-py

    limits = f"socket_timeout={_WAIT_SECONDS}&socket_connect_timeout={_WAIT_SECONDS}"
    address = url if "timeout=" in url else f"{url}{'&' if '?' in url else '?'}{limits}"
    with connect(address, "") as server:
        found = server.names()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return found
