"""The file of ``tbloom export`` and ``tbloom restore``: a tar, compressed with gzip.

Its members are the filter's parts, each under ``SHARD/LABEL/NUMBER`` with the bytes of Redis' string, and
``manifest.json``, which tbloom writes at the end::

    {"format": 3, "name": "news", "parameters": "{...}", "time": 1557316800000, "expires": ..., "fingerprinter": "",
     "shards": [{"shard": 0, "layout": "", "config_expires": ..., "layout_expires": ..., "register_expires": ...}],
     "parts": [{"shard": 0, "label": "20190507", "number": 0, "expires": 1557835200000, "size": 3218517}]}

Times are in ms since the epoch, by the server's clock; -2 stands for a missing key. ``parameters`` are the text on the
server, ``layout`` too but for its version, so servers of all versions can take them. The file has no names of keys: the
filter may get another name. Fields that a reader does not know are ignored. The checksum and the length of gzip show that
a file is whole.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, get_type_hints

from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tbloom.bloom.config import Config

FORMAT = 3
#: What a file of format 2 begins with.
_OLDER = b'{"tbloom":'
#: Bytes per request, which keep neither server nor client busy for long.
CHUNK = 1 << 20
#: The limit of a filter's keys in a file, and of the manifest (bytes).
MAX_PARTS = 400_000
_MAX_MANIFEST = 64 * CHUNK
_MANIFEST = "manifest.json"
_LEVEL = 1  # of gzip: higher levels hardly compress bits better


class Shard(NamedTuple):
    """A shard's layout without its version, and when its keys other than parts expire."""

    shard: int
    layout: str
    config_expires: int
    layout_expires: int
    register_expires: int


class Part(NamedTuple):
    """One key of a slice: its place, when it expires, and its size in bytes."""

    shard: int
    label: str
    number: int
    expires: int
    size: int

    @property
    def place(self) -> tuple[str, int, int]:
        """The arguments of ``Keys.slice``."""
        return self.label, self.shard, self.number

    @property
    def member(self) -> str:
        """The name in the tar."""
        return f"{self.shard}/{self.label}/{self.number}"


class Header(NamedTuple):
    """Name and parameters of the filter, the time of the export, when the parameters expire, and what made the fingerprints."""

    name: str
    parameters: str
    time: int
    expires: int
    fingerprinter: str


class Manifest(NamedTuple):
    """All but the bytes of the parts."""

    header: Header
    shards: list[Shard]
    parts: list[Part]


class Writer:
    """Writes the parts, and the manifest at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0)
        self._parts: list[Part] = []

    def add(self, part: Part, pieces: Iterable[bytes]) -> None:
        """Writes a part. Raises CommandError where there are too many."""
        if len(self._parts) == MAX_PARTS:
            raise CommandError(f"the filter has too many keys: a file takes at most {MAX_PARTS:,}")
        self._parts.append(part)
        self._add(part.member, part.size, pieces)

    def end(self, header: Header, shards: list[Shard]) -> None:
        """Writes the manifest."""
        parts = [part._asdict() for part in self._parts]
        kept = [shard._asdict() for shard in shards]
        content = {"format": FORMAT, **header._asdict(), "shards": kept, "parts": parts}
        data = json.dumps(content).encode()
        self._add(_MANIFEST, len(data), [data])
        self._stream.write(bytes(2 * tarfile.BLOCKSIZE))
        self._stream.close()

    def _add(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        member = tarfile.TarInfo(name)
        member.size = size
        self._stream.write(member.tobuf())
        for piece in pieces:
            self._stream.write(piece)
        self._stream.write(bytes(-size % tarfile.BLOCKSIZE))


class Reader:
    """Reads a file, any number of times; errors have its ``name``."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def manifest(self) -> Manifest:
        """The manifest; raises CommandError where the file is not whole."""
        found, data = list[tuple[str, int]](), b""
        with self._refusing():
            for name, size, stream in self._members():
                if name == _MANIFEST and size <= _MAX_MANIFEST:
                    data = stream.read(size)
                else:
                    found.append((name, size))
            values = json.loads(data)
            if values["format"] != FORMAT:
                raise self._other_format(values["format"])
            parts = [Part(**checked_fields(Part, part)) for part in values["parts"]]
            if found != [(part.member, part.size) for part in parts]:
                raise ValueError
            shards = [Shard(**checked_fields(Shard, shard)) for shard in values["shards"]]
            return Manifest(Header(**checked_fields(Header, values)), shards, parts)

    def parts(self, manifest: Manifest) -> Iterator[tuple[Part, Iterator[bytes]]]:
        """Each part with its bytes, in pieces, which must be read before the next part."""
        # Another program's tar may have the manifest anywhere.
        members = (member for member in self._members() if member[0] != _MANIFEST)
        for part, (_, size, stream) in zip(manifest.parts, members, strict=False):
            yield part, self._pieces(stream, size)

    def check(self, manifest: Manifest, config: Config) -> None:
        """Raises CommandError where the contents don't fit a filter with these parameters."""
        with self._refusing():
            if manifest.header.fingerprinter != checked(manifest.header.fingerprinter):
                raise ValueError
            layouts = {
                shard.shard: Layout(config, shard.layout)
                for shard in manifest.shards
                if 0 <= shard.shard < config.shards
            }
            window, time = config.window, manifest.header.time
            labels = {slice.label for slice in window.live(time) + window.ahead(time)}
            for part in manifest.parts:
                bits = layouts[part.shard].parts(part.label)[part.number].bits
                if part.label not in labels or part.number < 0 or part.size != key_bytes(bits):
                    raise ValueError
            places = [part.place for part in manifest.parts]
            if any(layout.generation for layout in layouts.values()):
                raise ValueError
            if len(layouts) != len(manifest.shards) or len(set(places)) != len(places):
                raise ValueError

    def _members(self) -> Iterator[tuple[str, int, gzip.GzipFile]]:
        """Name and size of each member of the tar, with the stream at its first byte."""
        self._file.seek(0)
        with self._refusing(), gzip.GzipFile(fileobj=self._file, mode="rb") as stream:
            if stream.peek(len(_OLDER)).startswith(_OLDER):
                raise self._other_format("2 or lower")
            count = 0
            while any(block := stream.read(tarfile.BLOCKSIZE)):
                member = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
                count += 1
                if not member.isreg() or count > MAX_PARTS + 1:
                    raise ValueError
                end = stream.tell() + member.size + -member.size % tarfile.BLOCKSIZE
                yield member.name, member.size, stream
                for _ in self._pieces(stream, end - stream.tell()):
                    pass
            while stream.read(CHUNK):  # up to the checksum
                pass

    def _pieces(self, stream: gzip.GzipFile, left: int) -> Iterator[bytes]:
        while left > 0:
            with self._refusing():
                piece = stream.read(min(left, CHUNK))
                if not piece:
                    raise EOFError
            left -= len(piece)
            yield piece

    def _other_format(self, number: object) -> CommandError:
        return CommandError(
            f"{self._name}: written in format {number} by another version of tbloom; this one reads format {FORMAT}: "
            "restore it with that version, and export it again; nothing was restored"
        )

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turns an error into a CommandError that says what is wrong with the file."""
        try:
            yield
        except EOFError:
            raise CommandError(f"{self._name}: cut off; nothing was restored") from None
        except (gzip.BadGzipFile, zlib.error, RecursionError, *_WRONG) as error:
            if isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" in str(error):
                reason = "not a file by 'tbloom export'"
            else:
                reason = "damaged, or not a file by 'tbloom export'"
            raise CommandError(f"{self._name}: {reason}; nothing was restored") from None
        except OSError as error:
            raise CommandError(f"{self._name}: {error.strerror or error}") from None


def checked_fields(kind: type[NamedTuple], values: dict[str, Any]) -> dict[str, Any]:
    """The known fields of a record; raises an error where one is missing, or of another type."""
    hints = get_type_hints(kind)
    found = {field: values[field] for field in hints}
    if any(type(value) is not hints[field] for field, value in found.items()):
        raise TypeError
    return found


#: The errors that wrong records raise.
_WRONG = (
    *(AttributeError, LookupError, TypeError, ValueError, OverflowError),
    *(TBloomError, tarfile.TarError),
)
