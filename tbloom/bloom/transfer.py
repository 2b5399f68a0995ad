"""Writes a filter into a file, and restores it from there.

An exported file has all items that were added before the export began: bits are only ever set, and a part is read after the
layout that names it. Claims and kept answers are left out, because they belong to running processes, and to this server.

A file is known to be whole before anything is written to a server. Its parts are uploaded under temporary names with a TTL of
an hour, so the remains of a failed restore expire. Then each shard is installed by one script call.

With several shards, the parameters are stored first, so that crawlers with other parameters are refused from then on. If a
crawler adds to a shard before the shard is installed, the restore fails, and the shards that were installed are cleared. If the
server fails or the restore is killed between two shards, the filter is incomplete.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO, Protocol, TypeVar

from tbloom.bloom import calls
from tbloom.bloom.archive import MANIFEST, Archive, Manifest, Part, parts_at, writing
from tbloom.bloom.config import Config, shard_expiry
from tbloom.bloom.fingerprinter import checked
from tbloom.bloom.info import items_in
from tbloom.bloom.layout import Layout
from tbloom.engine.flow import Call, Flow, Status, request, text
from tbloom.engine.parameters import mismatch, refusal
from tbloom.engine.server import server_time
from tbloom.errors import TBloomError
from tbloom.window import ALWAYS

#: TTL of uploaded parts.
_LIFE_MS = 3_600_000
#: Takes the number of bytes that were moved since its last call.
Advance = Callable[[int], None]
T = TypeVar("T")


class Filter(Protocol):
    """What is asked of a ``TimeBloom``, which stands on a higher floor."""

    config: Config

    def run(self, flow: Flow[T]) -> T:
        """Run a flow, and return its result."""

    def clear(self) -> None:
        """Forget everything."""


def export(seen: Filter, file: BinaryIO, advance: Advance) -> tuple[int, int]:
    """Write a filter into a file, and return the numbers of its keys and their bytes.

    Raise TBloomError if the filter is cleared meanwhile.
    """
    config, found, written = seen.config, dict[str, Part](), 0
    layouts = _layouts(seen)
    with writing(file) as add:
        for name, part in parts_at(config, layouts, seen.run(server_time(config))).items():
            key = config.keys.slice(part.label, part.shard, part.number)
            data = _reply(seen, Call(("GET", key)))
            if not data:
                continue
            if len(data) != part.size:
                raise _cleared(config)
            add(name, data)
            found[name] = part
            written += len(data)
            advance(len(data))
        if [each.generation for each in layouts] != [each.generation for each in _layouts(seen)]:
            raise _cleared(config)
        items = dict[str, int]()
        for name, part in found.items():  # at least those that were read
            field = config.keys.field(part.label, part.number)
            counted = _reply(seen, Call(("HGET", config.keys.state(part.shard), field)))
            items[name] = items_in(counted)
        maker = checked(_reply(seen, Call(("GET", config.keys.fingerprinter()))))
        entries = [layout.entries for layout in layouts]
        manifest = Manifest(config.name, config.stored, maker, entries, items)
        add(MANIFEST, json.dumps(asdict(manifest)).encode())
    return len(found), written


def _layouts(seen: Filter) -> list[Layout]:
    """Return the layout of each shard. Raise ConfigMismatch if a shard has other parameters."""
    config, found = seen.config, list[Layout]()
    for shard in range(config.shards):
        key, state = config.keys.config(shard), config.keys.state(shard)
        calls = [Call(("GET", key)), Call(("HGET", state, "layout"))]
        stored, layout = seen.run(request(calls))
        if stored is not None and text(stored) != config.stored:
            raise mismatch(config, stored)
        found.append(Layout(config, text(layout or ""), shard))
    return found


def _reply(seen: Filter, call: Call) -> Any:
    [reply] = seen.run(request([call]))
    return reply


def _cleared(config: Config) -> TBloomError:
    return TBloomError(f"filter {config.name!r} was cleared, or expired, during the export")


def restore(
    seen: Filter,
    archive: Archive,
    parts: dict[Part, str],
    old: Filter | None,
    advance: Advance,
) -> None:
    """Restore these parts of an archive as a filter. Clear the ``old`` one once all parts are uploaded."""
    keys, token, incoming = seen.config.keys, secrets.token_hex(8), dict[Part, str]()
    try:
        for part, name in parts.items():
            incoming[part] = key = keys.incoming(part.label, part.shard, part.number, token)
            _reply(seen, Call(("SET", key, archive.read(name), "PX", str(_LIFE_MS))))
            advance(part.size)
        if old is not None:
            old.clear()
        _install(seen, archive.manifest, incoming)
    finally:
        with suppress(Exception):  # what was not installed expires anyway
            for key in incoming.values():
                _reply(seen, Call(("UNLINK", key)))


def _install(seen: Filter, manifest: Manifest, incoming: dict[Part, str]) -> None:
    """Install all parts, by one script call for each shard. ``incoming`` has their temporary keys, and is empty afterwards."""
    config, keys = seen.config, seen.config.keys
    expires = shard_expiry(config, max(part.expires for part in incoming), None)
    until = () if expires == ALWAYS.end else ("PXAT", str(expires))
    parameters = Call(("SET", keys.root, config.stored, "NX", *until))
    if config.shards > 1 and _reply(seen, parameters) is None:
        raise _begun(config)
    try:
        for shard, entries in enumerate(manifest.layouts):
            own = {part: key for part, key in incoming.items() if part.shard == shard}
            if own:  # other shards have no items
                _install_shard(seen, shard, entries, own)
    except BaseException:
        with suppress(Exception):
            if config.shards > 1:  # with one, nothing was changed
                seen.clear()
        raise
    incoming.clear()
    if maker := manifest.fingerprinter:
        _reply(seen, Call(("SET", keys.fingerprinter(), maker, *until)))


def _install_shard(seen: Filter, shard: int, entries: str, incoming: dict[Part, str]) -> None:
    config = seen.config
    restored = [
        (part.label, part.number, part.items, shard_expiry(config, part.expires, shard))
        for part in incoming
    ]
    call = calls.restore_shard(config, shard, entries, [*incoming.values()], restored)
    status, payload = _reply(seen, call)
    if status == Status.MISMATCH:
        raise _begun(config)
    if status == Status.DAMAGED:
        raise TBloomError(
            "the server dropped a key before the upload was complete; nothing was imported"
        )
    if status != Status.OK:
        raise refusal(config, status, payload)


def _begun(config: Config) -> TBloomError:
    return TBloomError(
        f"a crawler has created filter {config.name!r} meanwhile; stop the crawlers, and import it with --replace"
    )
