"""A file that is there once it is whole, and not before."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def writing(file: str) -> Iterator[BinaryIO]:
    """Writes the file under another name beside it, which is changed at the end; ``-`` is standard output."""
    try:
        if file == "-":
            if sys.stdout is None:
                raise CommandError("standard output is closed")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = Path(file)
        if target.exists() and not target.is_file():  # /dev/null must not be replaced
            with target.open("wb") as opened:
                yield opened
            return
        target = target.resolve()  # what a link leads to
        new = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
        try:
            with new.open("xb") as opened:
                if target.exists():
                    shutil.copymode(target, new)
                yield opened
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
    except BrokenPipeError:  # who read our output has left
        raise
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from None
    except RuntimeError as error:  # from Python 3.13 on an OSError: a link that leads to itself
        raise CommandError(f"{file}: {error}") from None
