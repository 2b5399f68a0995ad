"""Output files that appear only when they are complete."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.streams import check_output

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def writing(file: str) -> Iterator[BinaryIO]:
    """Yields a temporary file beside it, renamed at the end; ``-`` is standard output."""
    try:
        if file == "-":
            check_output()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = Path(file)
        if target.exists() and not target.is_file():  # a device such as /dev/null
            with target.open("wb") as opened:
                yield opened
            return
        target = target.resolve()  # the target of a link
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
    except BrokenPipeError:  # main() reports it
        raise
    except OSError as error:
        place = "standard output" if file == "-" else file
        raise CommandError(f"{place}: {error.strerror or error}") from None
    except RuntimeError as error:  # a link to itself; an OSError from Python 3.13 on
        raise CommandError(f"{file}: {error}") from None
