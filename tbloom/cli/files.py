"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path

from tbloom.cli.errors import CommandError


def write(file: str, data: bytes) -> None:
    """The file has all of the data, or is as it was."""
    path = Path(file)
    try:
        if path.exists() and not path.is_file():  # such as /dev/null, which must not be replaced
            path.write_bytes(data)
            return
        path = path.resolve()  # a link stays one
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_bytes(data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
