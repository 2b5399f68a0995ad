"""The upload of a filter: its parts get temporary names and a short TTL until all of them are on the server."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis

from tbloom.cli.kit import filters
from tbloom.cli.kit.errors import CommandError
from tbloom.engine.flow import ScriptCall, Status, text
from tbloom.engine.scripts import Script
from tbloom.errors import TBloomError
from tbloom.window import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

    from tbloom.bloom.config import Config
    from tbloom.cli.kit.exportfile import Manifest, Part, Shard

_RESTORE_PIECE = Script("bloom/restore_piece")
_RESTORE_SHARD = Script("bloom/restore_shard")

#: TTL of uploaded parts, and the time after which it is renewed.
_LIFE_MS, _KEEP_SECONDS = 600_000, 60.0
_FAILURES = (redis.RedisError, redis.exceptions.RedisClusterException, TBloomError)


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
