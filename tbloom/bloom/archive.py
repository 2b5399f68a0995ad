"""The file of an exported filter.

The file is a tar, compressed with gzip. Its members are the filter's parts, each under ``SHARD/LABEL/NUMBER`` with the
bytes of Redis' string, and at the end ``manifest.json``::

    {"format": 1, "name": "news", "parameters": "{...}", "fingerprinter": "", "layouts": [""],
     "items": {"0/20190508/0": 1}}

``parameters`` are the text on the server. ``layouts`` are too, except for their versions, one for each shard; so servers of
all versions can take them. ``items`` are the numbers of items in the parts. When a part expires follows from its slice. The
file has no names of keys, because the filter may get another name. Fields that a reader does not know are ignored. The
checksum and the length of gzip, and the manifest, show that a file is whole.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from tbloom.bloom.config import Config
from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.errors import ConfigMismatch, TBloomError

FORMAT = 1
MANIFEST = "manifest.json"
_LEVEL = 1  # of gzip: higher levels hardly compress bits better
#: The errors that wrong values in a manifest raise, and those of a file that is not whole.
_WRONG = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, *_WRONG)


class Part(NamedTuple):
    """One key of a slice, when it leaves the window (ms), its size (bytes), and the number of its items."""

    label: str
    shard: int
    number: int
    expires: int
    size: int
    items: int = 0


def parts_at(config: Config, layouts: Sequence[Layout], now: int) -> dict[str, Part]:
    """Return the parts that the filter can have now, oldest first, by their names in the file.

    A slice later than the current one exists if a clock was set back.
    """
    window = config.window
    return {
        f"{shard}/{slice.label}/{number}": Part(
            slice.label, shard, number, window.expires(slice), key_bytes(part.bits)
        )
        for slice in window.live(now) + window.ahead(now)
        for shard, layout in enumerate(layouts)
        for number, part in enumerate(layout.parts(slice.label))
    }


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


@contextmanager
def writing(file: BinaryIO) -> Iterator[Callable[[str, bytes], None]]:
    """Yield what writes a member into the file: its name, and its bytes. The manifest, without which it is not whole, comes last."""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:

        def add(name: str, data: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))

        yield add


class Archive:
    """An archive that is whole."""

    def __init__(self, name: str, tar: tarfile.TarFile) -> None:
        self._name = name
        self._tar = tar
        self.manifest: Manifest = _manifest(name, tar)
        self._members = {member.name: member for member in tar if member.name != MANIFEST}

    def __len__(self) -> int:
        """Return the number of parts in the file."""
        return len(self._members)

    def layouts(self, config: Config) -> list[Layout]:
        """Return the layout of each shard of the filter."""
        layouts = [Layout(config, text, n) for n, text in enumerate(self.manifest.layouts)]
        if len(layouts) != config.shards:
            raise self._damaged()
        return layouts

    def live_parts(self, config: Config, layouts: Sequence[Layout], now: int) -> dict[Part, str]:
        """Return the parts that have not left the window, with their names. Raise TBloomError if there are none."""
        places, items = parts_at(config, layouts, now), self.manifest.items
        live = {
            places[name]._replace(items=items.get(name, 0)): name
            for name in self._members
            if name in places
        }
        if any(part.size != self._members[name].size for part, name in live.items()):
            raise self._damaged()
        if not live:
            raise TBloomError(f"{self._name}: all of its slices have left the window")
        return live

    def read(self, name: str) -> bytes:
        """Return the bytes of a part."""
        return self._tar.extractfile(self._members[name]).read()  # type: ignore[union-attr] # a file

    def _damaged(self) -> TBloomError:
        return _damaged(self._name)


@contextmanager
def reading(file: BinaryIO | str) -> Iterator[Archive]:
    """Yield the archive in a file. Raise TBloomError if it is not whole, ConfigMismatch if it has another format."""
    name = file if isinstance(file, str) else str(file.name)
    with tempfile.TemporaryFile() as copy:
        try:
            with gzip.open(file) as packed:
                shutil.copyfileobj(packed, copy)
            copy.seek(0)
            archive = Archive(name, tarfile.open(fileobj=copy, mode="r:"))  # noqa: SIM115 - of ``copy``, which is closed
        except _DAMAGED:
            raise _damaged(name) from None
        yield archive


def _damaged(name: str) -> TBloomError:
    return TBloomError(f"{name}: damaged, or not a file by 'tbloom export'; nothing was imported")


def _manifest(name: str, tar: tarfile.TarFile) -> Manifest:
    member = tar.extractfile(MANIFEST)
    values = json.load(member) if member else {}
    number = values["format"]
    if type(number) is int and number != FORMAT:
        raise ConfigMismatch(name, {"layout": (number, FORMAT)})
    found = Manifest(**{field: values[field] for field in Manifest.__annotations__})
    texts = [found.name, found.parameters, found.fingerprinter, *found.layouts]
    if type(number) is not int or not all(isinstance(text, str) for text in texts):
        raise ValueError
    if not all(type(count) is int and count >= 0 for count in found.items.values()):
        raise ValueError
    if found.fingerprinter != checked(found.fingerprinter):
        raise ValueError
    return found
