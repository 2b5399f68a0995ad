"""The file format of ``tbloom export`` and ``tbloom restore``.

The file is a gzip stream, whose checksum and length show that it is whole. The stream has records, a
line of JSON each; the record of a part is followed by the part's bytes::

    {"tbloom": {"format": 2, "name": "news", "parameters": "{...}", "time": 1557316800000, "expires": ...}}
    {"part": {"shard": 0, "label": "20190507", "number": 0, "expires": 1557835200000, "size": 3218517}}
    <3218517 bytes>
    {"shard": {"shard": 0, "layout": "", "config_expires": ..., "layout_expires": ..., "register_expires": ...}}
    {"part": {"shard": 0, "label": "20190508", "number": 0, "expires": 1557921600000, "size": 3218517}}
    <3218517 bytes>
    {"end": {"parts": 2}}

Times are in ms since the epoch, by the server's clock; -2 stands for a missing key. ``parameters`` are
the text on the server, ``layout`` too but for its version, and the bytes are those of Redis' strings, so servers of all
versions can take them. The file has no names of keys: the filter may get another name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, get_type_hints

from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from tbloom.bloom.config import Config

FORMAT = 2
#: Bytes per request, which keep neither server nor client busy for long.
CHUNK = 1 << 20
_LONGEST_LINE = 4 * CHUNK
#: The limit of all lines of a file together: some 380,000 keys.
MAX_LINES_BYTES = 32 * CHUNK
_LEVEL = 1  # of gzip: higher levels hardly compress bits better


_TOO_MANY = f"the records of a file take at most {MAX_LINES_BYTES} bytes"


class Header(NamedTuple):
    """Name and parameters of the filter, the time of the export, when the parameters expire, and what made the fingerprints."""

    format: int
    name: str
    parameters: str
    time: int
    expires: int
    fingerprinter: str = ""


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


class End(NamedTuple):
    """The end of the file, with the number of parts as a check."""

    parts: int


Record = Header | Shard | Part | End
_KINDS: dict[str, type[Record]] = {"tbloom": Header, "shard": Shard, "part": Part, "end": End}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_HINTS = {kind: get_type_hints(kind) for kind in _NAMES}


class Contents(NamedTuple):
    """All records of a file."""

    header: Header
    shards: list[Shard]
    parts: list[Part]


class Writer:
    """Writes the records of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0)
        self._left = MAX_LINES_BYTES

    def add(self, record: Record) -> None:
        """Writes a record; ``write`` follows for the bytes of a part. Raises CommandError where there are too many."""
        line = json.dumps({_NAMES[type(record)]: record._asdict()}, separators=(",", ":"))
        self._left -= len(line) + 1
        if self._left < 0:
            raise CommandError(f"the filter has too many keys: {_TOO_MANY}")
        self._stream.write(line.encode() + b"\n")

    def write(self, chunk: bytes) -> None:
        """Writes some of a part's bytes."""
        self._stream.write(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Reader:
    """Reads a file, any number of times; errors have its ``name``."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def contents(self) -> Contents:
        """All records; raises CommandError where the file is not whole."""
        records = [record for record, _ in self._records()]
        with self._refusing():
            header, *others, end = records
            shards = [record for record in others if isinstance(record, Shard)]
            parts = [record for record in others if isinstance(record, Part)]
            is_whole = end == End(len(parts)) and len(shards) + len(parts) == len(others)
            if not isinstance(header, Header) or not is_whole:
                raise ValueError
        return Contents(header, shards, parts)

    def parts(self) -> Iterator[tuple[Part, Iterator[bytes]]]:
        """Each part with its bytes, in pieces, which must be read before the next part."""
        for record, stream in self._records():
            if isinstance(record, Part):
                yield record, self._pieces(stream, record.size)

    def check(self, contents: Contents, config: Config) -> None:
        """Raises CommandError where the contents don't fit a filter with these parameters."""
        with self._refusing():
            if contents.header.fingerprinter != checked(contents.header.fingerprinter):
                raise ValueError
            layouts = {
                shard.shard: Layout(config, shard.layout)
                for shard in contents.shards
                if 0 <= shard.shard < config.shards
            }
            window, time = config.window, contents.header.time
            labels = {slice.label for slice in window.live(time) + window.ahead(time)}
            for part in contents.parts:
                bits = layouts[part.shard].parts(part.label)[part.number].bits
                if part.label not in labels or part.number < 0 or part.size != key_bytes(bits):
                    raise ValueError
            keys = (
                [shard.shard for shard in contents.shards],
                [part.place for part in contents.parts],
            )
            if any(layout.generation for layout in layouts.values()):
                raise ValueError
            if len(layouts) != len(keys[0]) or len(set(keys[1])) != len(keys[1]):
                raise ValueError

    def _records(self) -> Iterator[tuple[Record, gzip.GzipFile]]:
        """Each record, with the stream at the position after its line."""
        self._file.seek(0)
        left = MAX_LINES_BYTES
        with self._refusing(), gzip.GzipFile(fileobj=self._file, mode="rb") as stream:
            while line := stream.readline(_LONGEST_LINE):
                left -= len(line)
                if left < 0:
                    raise CommandError(f"{self._name}: {_TOO_MANY}; nothing was restored")
                record = self._record(line)
                end = stream.tell() + (record.size if isinstance(record, Part) else 0)
                yield record, stream
                for _ in self._pieces(stream, end - stream.tell()):
                    pass

    def _record(self, line: bytes) -> Record:
        [(name, fields)] = json.loads(line).items()
        found = fields.get("format", FORMAT)
        if found != FORMAT:
            raise CommandError(
                f"{self._name}: written in format {found!r}; this version of tbloom reads format {FORMAT}"
            )
        record = _KINDS[name](**fields)
        hints = _HINTS[type(record)]
        if any(type(value) is not hints[field] for field, value in record._asdict().items()):
            raise TypeError
        return record

    def _pieces(self, stream: gzip.GzipFile, left: int) -> Iterator[bytes]:
        while left > 0:
            with self._refusing():
                piece = stream.read(min(left, CHUNK))
                if not piece:
                    raise EOFError
            left -= len(piece)
            yield piece

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


#: The errors that wrong records raise.
_WRONG = (AttributeError, LookupError, TypeError, ValueError, OverflowError, TBloomError)
