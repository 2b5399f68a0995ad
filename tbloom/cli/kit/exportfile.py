"""The file of ``tbloom export`` and ``tbloom restore``: a tar, compressed with gzip.

Its members are the filter's parts, each under ``SHARD/LABEL/NUMBER`` with the bytes of Redis' string, and at the end
``manifest.json``::

    {"format": 5, "name": "news", "parameters": "{...}", "fingerprinter": "", "layouts": [""],
     "items": {"0/20190508/0": 1}}

``parameters`` are the text on the server, ``layouts`` too but for their versions, one for each shard; so servers of all
versions can take them. ``items`` are the numbers of items in the parts. When a part expires follows from its slice. The file has no names of keys: the filter may get
another name. Fields that a reader does not know are ignored. The checksum and the length of gzip, and the manifest, show
that a file is whole.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tbloom.bloom.fingerprinter import checked
from tbloom.cli.kit.errors import CommandError

if TYPE_CHECKING:
    from contextlib import ExitStack

FORMAT = 5
MANIFEST = "manifest.json"
LEVEL = 1  # of gzip: higher levels hardly compress bits better


@dataclass(frozen=True)
class Manifest:
    """All but the bytes of the parts."""

    name: str
    parameters: str
    fingerprinter: str
    #: Of each shard.
    layouts: list[str]
    #: Of each part.
    items: dict[str, int]
    format: int = FORMAT

    def write(self, tar: tarfile.TarFile) -> None:
        """Ends the file."""
        write_part(tar, MANIFEST, json.dumps(asdict(self)).encode())


def write_part(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Writes a member."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def opened(stack: ExitStack, file: str) -> tuple[Manifest, tarfile.TarFile]:
    """The manifest, and the tar, of a file (``-``: standard input), which the stack closes.

    Raises CommandError where the file is not whole.
    """
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    try:
        with gzip.open(sys.stdin.buffer if file == "-" else Path(file)) as packed:
            shutil.copyfileobj(packed, copy)
        copy.seek(0)
        tar = stack.enter_context(tarfile.open(fileobj=copy, mode="r:"))  # noqa: SIM115 - the same
        return _manifest(tar), tar
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, *_WRONG):
        raise damaged(file) from None


def damaged(file: str) -> CommandError:
    """The error for a file that is no export, or not a whole one."""
    return CommandError(
        f"{file}: damaged, or not a file by 'tbloom export' in format {FORMAT}; nothing was restored"
    )


#: The errors that wrong values in a manifest raise.
_WRONG = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


def _manifest(tar: tarfile.TarFile) -> Manifest:
    member = tar.extractfile(MANIFEST)
    values = json.load(member) if member else {}
    found = Manifest(**{name: values[name] for name in Manifest.__annotations__})
    texts = [found.name, found.parameters, found.fingerprinter, *found.layouts]
    if found.format != FORMAT or not all(isinstance(text, str) for text in texts):
        raise ValueError
    if not all(type(count) is int and count >= 0 for count in found.items.values()):
        raise ValueError
    if found.fingerprinter != checked(found.fingerprinter):
        raise ValueError
    return found
