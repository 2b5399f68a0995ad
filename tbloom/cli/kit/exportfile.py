"""The file that holds a whole filter: what ``tbloom export`` writes and ``tbloom restore`` reads.

A gzip stream, by whose checksum and length it is found whether the file is damaged or cut off. In it
are records, a line of JSON each, and the bytes of each part behind its record::

    {"tbloom": {"format": 1, "name": "news", "parameters": "{...}", "time": 1557316800000, "expires": ...}}
    {"part": {"shard": 0, "label": "20190507", "number": 0, "expires": 1557835200000, "size": 3218517}}
    <3218517 bytes>
    {"shard": {"shard": 0, "layout": "", "config_expires": ..., "layout_expires": ..., "register_expires": ...}}
    {"part": {"shard": 0, "label": "20190508", "number": 0, "expires": 1557921600000, "size": 3218517}}
    <3218517 bytes>
    {"end": {"parts": 2}}

Times are in ms since the epoch, by the server's clock; -2: there is no such key. ``parameters`` and
``layout`` are the texts that the server has, and the bytes are those of Redis' strings, so any server,
of any version, can take them. Names of keys are not in the file: the filter may get another name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, get_type_hints

from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import key_bytes
from tbloom.cli.kit.errors import CommandError
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from tbloom.bloom.config import Config

FORMAT = 1
#: So many bytes are read and written at once: neither server nor client is busy with them for long.
CHUNK = 1 << 20
_LONGEST_LINE = 4 * CHUNK
_SPEED = 1  # of zlib's levels: bits compress hardly better at others


class Header(NamedTuple):
    """What filter it is, as of when, and when its parameters are dropped."""

    format: int
    name: str
    parameters: str
    time: int
    expires: int


class Shard(NamedTuple):
    """A shard's layout, and when the keys are dropped that it has beside its parts."""

    shard: int
    layout: str
    config_expires: int
    layout_expires: int
    register_expires: int


class Part(NamedTuple):
    """One key of a slice: where it belongs, when it is dropped, and its bytes."""

    shard: int
    label: str
    number: int
    expires: int
    size: int

    @property
    def place(self) -> tuple[str, int, int]:
        """As ``Keys.slice`` takes it."""
        return self.label, self.shard, self.number


class End(NamedTuple):
    """Nothing is missing."""

    parts: int


Record = Header | Shard | Part | End
_KINDS: dict[str, type[Record]] = {"tbloom": Header, "shard": Shard, "part": Part, "end": End}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class Contents(NamedTuple):
    """All of a file's records."""

    header: Header
    shards: list[Shard]
    parts: list[Part]


class Writer:
    """Writes the records, one after another."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = gzip.GzipFile("", "wb", _SPEED, file, mtime=0)

    def add(self, record: Record) -> None:
        """A record; that of a part is followed by its bytes."""
        line = json.dumps({_NAMES[type(record)]: record._asdict()}, separators=(",", ":"))
        self._stream.write(line.encode() + b"\n")

    def write(self, chunk: bytes) -> None:
        """Some of a part's bytes."""
        self._stream.write(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Reader:
    """Reads a file, as often as it is asked to; ``name`` is for messages."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def contents(self) -> Contents:
        """The records of a file that was read to its end, and is whole."""
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
        """Each part and its bytes, in pieces, which are read there and then or never."""
        for record, stream in self._records():
            if isinstance(record, Part):
                yield record, self._pieces(stream, record.size)

    def check(self, contents: Contents, config: Config) -> None:
        """Raises where this can't be what is left of a filter with these parameters."""
        with self._refusing():
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
            if len(layouts) != len(keys[0]) or len(set(keys[1])) != len(keys[1]):
                raise ValueError

    def _records(self) -> Iterator[tuple[Record, gzip.GzipFile]]:
        """Each record, and the stream, which is behind its line."""
        self._file.seek(0)
        with self._refusing(), gzip.GzipFile(fileobj=self._file, mode="rb") as stream:
            while line := stream.readline(_LONGEST_LINE):
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
        hints = get_type_hints(type(record))
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
        """An error says what is wrong with the file."""
        try:
            yield
        except EOFError:
            raise CommandError(f"{self._name}: cut off; nothing was restored") from None
        except (gzip.BadGzipFile, zlib.error, RecursionError, *_WRONG) as error:
            if isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" in str(error):
                reason = "not a file that 'tbloom export' has written"
            else:
                reason = "damaged, or not written by 'tbloom export'"
            raise CommandError(f"{self._name}: {reason}; nothing was restored") from None
        except OSError as error:
            raise CommandError(f"{self._name}: {error.strerror or error}") from None


#: What wrong records lead to.
_WRONG = (AttributeError, LookupError, TypeError, ValueError, OverflowError, TBloomError)
