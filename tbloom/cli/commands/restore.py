"""``tbloom restore``: a filter from a file by ``tbloom export``.

The file is known to be whole before anything is written to the server. Its parts are uploaded under temporary names
with a TTL of an hour, so the remains of a failed restore expire. Then each shard is installed by one script call.

With several shards, the parameters are stored first, so that crawlers with other parameters are refused
from then on. A crawler that adds to a shard before the shard is installed makes the restore fail; the
shards that were installed are cleared then. If the server fails or the restore is killed between two
shards, the filter is incomplete: restore it again with --replace.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from typing import Any

import click
import redis

from tbloom.bloom import calls
from tbloom.bloom.config import Config, from_stored, shard_expiry
from tbloom.bloom.layout import Layout
from tbloom.cli.commands.export import MANIFEST, Part, damaged, opened, parts_at
from tbloom.cli.kit import filters, formats, options, output, progress
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.filters import Server
from tbloom.engine.flow import Status
from tbloom.engine.parameters import refusal
from tbloom.errors import TBloomError
from tbloom.window import ALWAYS

#: TTL of uploaded parts.
_LIFE_MS = 3_600_000
_FAILURES = (redis.RedisError, redis.exceptions.RedisClusterException, TBloomError)


@click.command(cls=Command, example="tbloom restore news.tbloom --name news-2")
@click.argument("file", type=click.Path())
@options.server
@click.option("--name", metavar="NEW", type=options.text_of, help="another name for the filter")
@click.option("--replace", is_flag=True, help="delete a filter of this name first")
@options.quiet
def command(file: str, server: Server, name: str | None, *, replace: bool) -> None:
    """Restores a filter from an exported file.

    Each slice expires at its old time. The file - is standard input. Don't crawl with the filter meanwhile: items that are added
    are forgotten, or make the restore fail, when --replace has deleted the old filter already. Needs room for the whole filter in the folder of temporary files.
    """
    with ExitStack() as stack:
        manifest, tar = opened(stack, file)
        config = from_stored(name or manifest.name, manifest.parameters, prefix=server.prefix)
        layouts = [Layout(config, text, shard) for shard, text in enumerate(manifest.layouts)]
        places = parts_at(config, layouts, server.now(config.keys.root))
        members = [member for member in tar if member.name != MANIFEST]
        live = {
            places[name]._replace(items=manifest.items.get(name, 0)): member
            for member in members
            if (name := member.name) in places
        }
        sizes = all(part.size == member.size for part, member in live.items())
        if len(layouts) != config.shards or not sizes:
            raise damaged(file)
        if not live:
            raise CommandError(f"{file}: all of its slices have left the window")
        old = None if server.stored(config.name) is None else server.filter(config.name)
        if old is not None and not replace:
            raise CommandError(
                f"filter {config.name!r} is on {server.place} already; "
                "--replace deletes it, --name restores under another name"
            )
        upload = Upload(server.client, config)
        stack.callback(upload.remove)
        total = sum(part.size for part in live)
        advance = stack.enter_context(progress.bar("bytes", total))
        for part, member in live.items():
            upload.send(part, tar.extractfile(member).read())  # type: ignore[union-attr] # a file
            advance(part.size)
        # The old filter stays until all parts of the new one are uploaded.
        if old is not None:
            old.clear()
        upload.install(layouts, manifest.fingerprinter)
    gone = formats.counted(len(members) - len(live), "key")
    left = f"; {gone} had left the window" if len(members) > len(live) else ""
    keys = formats.counted(len(live), "key")
    output.summary(f"{config.name}: {keys}, {formats.size(total)}{left}")


class Upload:
    """The parts of a filter, under temporary names until they are installed."""

    def __init__(self, client: Any, config: Config) -> None:
        self._client = client
        self._config = config
        self._token = secrets.token_hex(8)
        self._keys: dict[Part, str] = {}

    def send(self, part: Part, data: bytes) -> None:
        """Uploads a part."""
        key = self._config.keys.incoming(part.label, part.shard, part.number, self._token)
        self._keys[part] = key
        self._client.set(key, data, px=_LIFE_MS)

    def install(self, layouts: list[Layout], fingerprinter: str) -> None:
        """Installs all parts, by one script call for each shard."""
        config, client = self._config, self._client
        expires = shard_expiry(config, max(part.expires for part in self._keys), None)
        until = None if expires == ALWAYS.end else expires
        if config.shards > 1 and not client.set(
            config.keys.root, config.stored, nx=True, pxat=until
        ):
            raise self._begun()
        try:
            for shard, layout in enumerate(layouts):
                parts = [part for part in self._keys if part.shard == shard]
                if parts:  # other shards have no items
                    self._install(shard, layout, parts)
        except BaseException:
            with suppress(*_FAILURES):
                if config.shards > 1:  # with one, nothing was changed
                    filters.of_config(client, config).clear()
            raise
        self._keys.clear()
        if fingerprinter:
            client.set(config.keys.fingerprinter(), fingerprinter, pxat=until)

    def remove(self) -> None:
        """Deletes the parts that were not installed."""
        with suppress(*_FAILURES):  # they expire anyway
            for key in self._keys.values():
                self._client.unlink(key)

    def _install(self, shard: int, layout: Layout, parts: list[Part]) -> None:
        restored = [
            (part.label, part.number, part.items, shard_expiry(self._config, part.expires, shard))
            for part in parts
        ]
        incoming = [self._keys[part] for part in parts]
        call = calls.restore_shard(self._config, shard, layout.entries, incoming, restored)
        call = call.with_text()
        status, payload = self._client.execute_command(*call.words)
        if status == Status.MISMATCH:
            raise self._begun()
        if status == Status.DAMAGED:
            raise CommandError(
                "the server dropped a key before the upload was complete; nothing was restored"
            )
        if status != Status.OK:
            raise refusal(self._config, status, payload)

    def _begun(self) -> CommandError:
        return CommandError(
            f"a crawler has created filter {self._config.name!r} meanwhile; stop the crawlers, and restore it with --replace"
        )
