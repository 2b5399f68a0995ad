"""``tbloom restore``: a filter from a file by ``tbloom export``.

The file is read twice, so that it is known to be whole before anything is written to the server. Its
parts are uploaded under temporary names with a short TTL, so the remains of a failed restore expire.
Then each shard is installed by one script call.

With several shards, the parameters are stored first, so that crawlers with other parameters are refused
from then on. A crawler that adds to a shard before the shard is installed makes the restore fail; the
shards that were installed are cleared then. If the server fails or the restore is killed between two
shards, the filter is incomplete: restore it again with --replace.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import redis

from tbloom.bloom.config import from_stored
from tbloom.bloom.script_calls import leaves
from tbloom.cli.commands.export import expiries
from tbloom.cli.kit import filters, formats, interrupts, options, streams
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.exportfile import Reader
from tbloom.cli.kit.progress import Reporter
from tbloom.engine.flow import ScriptCall, Status, text
from tbloom.engine.scripts import Script
from tbloom.errors import TBloomError
from tbloom.window import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

    from tbloom import TimeBloom
    from tbloom.bloom.config import Config
    from tbloom.cli.kit.exportfile import Manifest, Part, Shard

_RESTORE_PIECE = Script("bloom/restore_piece")
_RESTORE_SHARD = Script("bloom/restore_shard")

#: TTL of uploaded parts, and the time after which it is renewed.
_LIFE_MS, _KEEP_SECONDS = 600_000, 60.0
_FAILURES = (redis.RedisError, redis.exceptions.RedisClusterException, TBloomError)
#: Tries to install a filter between the requests of a crawler that creates it again and again.
_TRIES = 100


@click.command(cls=Command, example="tbloom restore news.tbloom --name news-2")
@click.argument("file", type=click.Path())
@options.url
@click.option("--name", metavar="NEW", type=options.text_of, help="another name for the filter")
@click.option("--replace", is_flag=True, help="delete a filter of this name first")
@options.quiet
def command(file: str, url: str, name: str | None, *, replace: bool, quiet: bool) -> None:
    """Restores a filter from an exported file.

    - is standard input. Each slice expires at its old time. Don't crawl with the filter meanwhile: items that are added
    make the restore fail, or are forgotten.
    """
    reporter = Reporter(stderr=True, quiet=quiet)
    with filters.connect(url) as server, ExitStack() as stack:
        reader = Reader(_rewindable(stack, file), file)
        manifest = reader.manifest()
        config = from_stored(
            manifest.header.name if name is None else name, manifest.header.parameters
        )
        reader.check(manifest, config)
        old = None if server.stored(config.name) is None else server.filter(config.name)
        if old is not None and not replace:
            raise CommandError(
                f"filter {config.name!r} is on {server.place} already; "
                "--replace deletes it, --name restores under another name"
            )
        now, _ = expiries(server.client, [config.keys.root])
        live = {part for part in manifest.parts if part.expires > now}
        latest = _latest(config, now)
        for part in live:
            if part.expires > latest:
                raise CommandError(
                    f"{file}: slice {part.label!r} would stay for more than two windows; nothing was restored"
                )
        if not live:
            raise CommandError(f"{file}: all of its slices have left the window")
        total = sum(part.size for part in live)
        look = stack.enter_context(interrupts.held_back())
        upload = stack.enter_context(Upload(server.client, config, latest))
        with reporter.count("Restoring", total, "bytes") as advance:
            for done in upload.send(reader.parts(manifest), live):
                advance(done)
                look()
        _install(upload, manifest, old)
    gone = len({part.label for part in manifest.parts} - {part.label for part in live})
    left = f"; {formats.counted(gone, 'slice')} had left the window" if gone else ""
    keys = formats.counted(len(live), "key")
    reporter.say(f"{config.name}: {keys}, {formats.size(total)}{left}")


def _install(upload: Upload, manifest: Manifest, old: TimeBloom | None) -> None:
    """Replaces the old filter, which stays until all parts of the new one are uploaded.

    A crawler may create the filter again between the two steps. With one shard, another try loses nothing.
    """
    tries = _TRIES if old is not None and old.config.shards == 1 else 1
    for left in reversed(range(tries)):
        if old is not None:
            old.clear()
        try:
            upload.install(manifest)
        except BegunError:
            if not left:
                raise
        else:
            return


def _latest(config: Config, now: int) -> int:
    """When the last key is dropped that a filter can have (ms), if its clock was ahead by a window at most."""
    window = config.window
    return leaves(config, window.expires([*window.live(now), *window.ahead(now)][-1]), None)


def _rewindable(stack: ExitStack, file: str) -> BinaryIO:
    """The file; a pipe is copied to disk first."""
    opened = streams.open_file(stack, file)
    if opened.seekable():
        return opened
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(opened, copy)
    return copy


class BegunError(CommandError):
    """A crawler has created a filter of this name meanwhile."""


class Upload:
    """The parts of a filter, under temporary names. The end of the context deletes those not installed."""

    def __init__(self, client: Any, config: Config, latest: int) -> None:
        self._client = client
        self._config = config
        #: When the last key is dropped (ms), whatever the file says.
        self._latest = latest
        self._token = secrets.token_hex(8)
        self._keys: dict[Part, str] = {}
        self._kept = time.monotonic()

    def send(
        self, parts: Iterable[tuple[Part, Iterable[bytes]]], wanted: set[Part]
    ) -> Iterator[int]:
        """Uploads the wanted ones of these parts; yields the number of bytes sent, after each piece."""
        done = 0
        for part, pieces in parts:
            if part not in wanted:
                continue
            key = self._keys[part] = self._config.keys.incoming(*part.place, self._token)
            offset = 0
            for piece in pieces:
                if offset == 0 or piece.lstrip(b"\0"):  # Redis fills gaps with zeros
                    self._write(key, piece, offset, part.size)
                offset += len(piece)
                done += len(piece)
                yield done
            self._keep_alive()

    def install(self, manifest: Manifest) -> None:
        """Installs all parts, by one script call for each shard."""
        config = self._config
        # The window may have moved on since the export began.
        expires = self._until(manifest.header.expires, self._keys)
        parts: dict[int, list[Part]] = {}
        for part in self._keys:
            parts.setdefault(part.shard, []).append(part)
        until = None if expires == ALWAYS.end else expires
        if config.shards > 1 and not self._client.set(
            config.keys.root, config.stored, nx=True, pxat=until
        ):
            raise self._begun()
        try:
            for shard in manifest.shards:
                if shard.shard in parts:  # other shards have no items
                    self._install(shard, parts[shard.shard])
        except BaseException:
            if config.shards > 1:  # with one, nothing was changed
                with suppress(*_FAILURES):
                    filters.of_config(self._client, config).clear()
            raise
        self._keys.clear()
        if manifest.header.fingerprinter:
            key = config.keys.fingerprinter()
            self._client.set(key, manifest.header.fingerprinter, pxat=until)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(*_FAILURES):  # they expire anyway
            for key in self._keys.values():
                self._client.unlink(key)

    def _install(self, shard: Shard, parts: list[Part]) -> None:
        keys, config, number = self._config.keys, self._config, shard.shard
        status, payload = self._call(
            _RESTORE_SHARD,
            [
                *(keys.config(number), keys.layout(number), keys.register(number)),
                *(self._keys[part] for part in parts),
                *(keys.slice(*part.place) for part in parts),
            ],
            config.stored,
            self._until(shard.config_expires, parts),
            shard.layout,
            self._until(max(shard.layout_expires, shard.config_expires), parts),
            self._until(shard.register_expires, parts),
            *(part.expires for part in parts),
        )
        if status == Status.MISMATCH:
            raise self._begun()
        if status != Status.OK:
            raise self._dropped(text(payload))

    def _until(self, expires: int, parts: Iterable[Part]) -> int:
        """When a key is dropped (ms) that must outlive these parts."""
        return min(self._latest, max(expires, *(part.expires for part in parts)))

    def _write(self, key: str, piece: bytes, offset: int, size: int) -> None:
        status, _ = self._call(_RESTORE_PIECE, [key], piece, offset, size, _LIFE_MS)
        if status != Status.OK:
            raise self._dropped(key)

    def _keep_alive(self) -> None:
        if time.monotonic() - self._kept > _KEEP_SECONDS:
            for key in self._keys.values():
                self._client.pexpire(key, _LIFE_MS)
            self._kept = time.monotonic()

    def _call(self, script: Script, keys: list[str], *args: Any) -> Any:
        call = ScriptCall(script, keys, args).with_text()
        return self._client.execute_command(*call.words)

    def _begun(self) -> BegunError:
        return BegunError(
            f"a crawler has created filter {self._config.name!r} meanwhile; stop the crawlers, and restore it "
            "with --replace"
        )

    def _dropped(self, key: str) -> CommandError:
        return CommandError(
            f"the server dropped {key!r} before the upload was complete; nothing was restored"
        )
