"""What is stored has the number of its format. A store with another number is refused, by both numbers, and stays as it is."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tbloom import ConfigMismatch, ExactFilter, LocalBloom, TimeBloom
from tbloom.bloom import archive
from tbloom.distinct import DistinctCounter
from tbloom.local.claims import LocalClaims
from tbloom.pages import PageStore
from tests.helpers.commands import refused, tbloom
from tests.helpers.contents import snapshot


class Place(NamedTuple):
    """Where a store is made."""

    client: redis.Redis
    name: str
    url: str
    path: Path


#: Makes a store whose format has another number. Returns its name, calls that refuse it, and commands that do.
Made = tuple[str, list[Callable[[], object]], list[tuple[str, ...]]]


def _renumber(client: redis.Redis, key: str, number: int) -> None:
    stored = json.loads(client.get(key) or "")
    assert 1 == stored["layout"]
    client.set(key, json.dumps({**stored, "layout": number}, separators=(",", ":")), keepttl=True)


def _filter(place: Place, number: int) -> Made:
    with TimeBloom(place.client, place.name, capacity=1000) as seen:
        seen.add("a")
    _renumber(place.client, seen.config.keys.root, number)
    seen = TimeBloom(place.client, place.name, capacity=1000)
    calls = [partial(seen.add, "b"), partial(seen.contains, "a"), partial(seen.claim, "a")]
    opened = partial(TimeBloom.open, place.url, place.name)
    commands = [("info", place.name), ("add", place.name), ("export", place.name, "-")]
    return place.name, [*calls, seen.info, seen.clear, opened], commands


def _exact(place: Place, number: int) -> Made:
    with ExactFilter(place.client, place.name) as seen:
        seen.add("a")
    _renumber(place.client, seen.config.keys.root, number)
    seen = ExactFilter(place.client, place.name)
    opened = partial(ExactFilter.open, place.url, place.name)
    calls = [partial(seen.add, "b"), partial(seen.contains, "a"), seen.info, seen.clear, opened]
    return place.name, calls, [("info", place.name), ("add", place.name)]


def _counter(place: Place, number: int, *, mapping: bool) -> Made:
    shared = place.name if mapping else None
    name = "urls" if mapping else place.name
    with DistinctCounter(place.client, name, shared) as counter:
        counter.add(7)
    _renumber(place.client, counter.config.keys.root, number)
    counter = DistinctCounter(place.client, name, shared)
    calls = [partial(counter.add, 8), counter.count, counter.clear]
    clears = [partial(counter.clear, mapping=True)] * mapping
    own = ("--mapping", place.name) if mapping else ()
    return place.name, [*calls, *clears], [("count", "show", name, *own)]


def _index(place: Place, number: int) -> Made:
    """With other tables, as another format may have them (wake#1703)."""
    with PageStore(place.path) as pages:
        pages.put("https://a/", b"page")
    with closing(sqlite3.connect(place.path / "index.sqlite")) as index, index:
        [[stored]] = index.execute("SELECT parameters FROM meta")
        assert '{"layout":1,' in stored
        stored = stored.replace('"layout":1', f'"layout":{number}')
        index.execute("UPDATE meta SET parameters = ?", (stored,))
        index.execute("ALTER TABLE pages RENAME TO fetched")
    calls = [partial(PageStore, place.path, readonly=True), partial(PageStore, place.path)]
    return str(place.path), calls, [("pages", "ls", str(place.path))]


def _segments(place: Place, number: int) -> Made:
    """Whose index is lost, so that it is made from the records."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tbloom.pages.config.LAYOUT", number)
        with PageStore(place.path) as pages:
            pages.put("https://a/", b"page")
    for part in place.path.glob("index*"):
        part.unlink()
    path = str(place.path)
    return path, [partial(PageStore.rebuild, path)], [("pages", "rebuild", path)]


def _local(place: Place, number: int) -> Made:
    with LocalBloom(path=place.path) as seen:
        seen.add("a")
    data = place.path.read_bytes()
    assert data.startswith(b"tbloom local 1 ")
    place.path.write_bytes(f"tbloom local {number} ".encode().ljust(16) + data[16:])
    calls = [partial(LocalBloom, path=place.path, readonly=only) for only in (True, False)]
    return str(place.path), calls, []


def _local_filter(place: Place, number: int) -> Made:
    """A file whose filter has another format."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tbloom.bloom.config.LAYOUT", number)
        with LocalBloom(path=place.path) as seen:
            seen.add("a")
    seen = LocalBloom(path=place.path)
    calls = [partial(seen.add, "b"), partial(seen.contains, "a"), seen.info]
    return str(place.path), calls, []


def _claims(place: Place, number: int) -> Made:
    """The claims that a crawl without a server keeps beside its filter."""
    with LocalClaims(path=place.path) as seen:
        seen.open_claims()
        seen.claim_many([b"a" * 20], notes=["a"])
    path = f"{place.path}.claims"
    with closing(sqlite3.connect(path)) as claims, claims:
        assert [(1,)] == claims.execute("PRAGMA user_version").fetchall()
        claims.execute(f"PRAGMA user_version = {number}")
    return path, [LocalClaims(path=place.path).open_claims], []


def _archive(place: Place, number: int) -> Made:
    """Without a field, as another format may be: it is not called damaged (powsybl-core#3553)."""
    with TimeBloom(place.client, place.name, capacity=1000) as seen:
        seen.add("a")
        assert 0 == tbloom("export", "--url", place.url, place.name, place.path).returncode
        seen.clear()
    with tarfile.open(place.path) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr] # files
    values = json.loads(found[archive.MANIFEST])
    assert 1 == values.pop("format")
    del values["layouts"]
    found[archive.MANIFEST] = json.dumps({**values, "format": number}).encode()
    with place.path.open("wb") as made, archive.writing(made) as add:
        for name, data in found.items():
            add(name, data)

    def read() -> None:
        with place.path.open("rb") as made, archive.reading(made):
            pass

    return str(place.path), [read], [("import", str(place.path))]


KINDS = {
    "filter": _filter,
    "exact filter": _exact,
    "counter": partial(_counter, mapping=True),
    "counter of integers": partial(_counter, mapping=False),
    "page store": _index,
    "page store without its index": _segments,
    "local file": _local,
    "filter in a local file": _local_filter,
    "claims beside a local file": _claims,
    "archive": _archive,
}


@pytest.fixture
def place(client: redis.Redis, name: str, url: str, tmp_path: Path) -> Place:
    return Place(client, name, url, tmp_path / "stored")


def _held(place: Place) -> dict[Any, Any]:
    files = [path for path in place.path.parent.rglob("*") if path.is_file()]
    # SQLite's own files beside an index, and the lock with the last writer's process.
    kept = {path: path.read_bytes() for path in files if path.suffix in ("", ".gz", ".sqlite")}
    kept.pop(place.path / "lock", None)
    return kept | snapshot(place.client, place.name)


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_another_format_is_named_with_ours_and_stays(place: Place, kind: str, number: int) -> None:
    """A client whose number was lower wrote it over the stored one (lionagi#2607)."""
    shown, calls, commands = KINDS[kind](place, number)
    sentence = f"{shown!r} has format {number}, and this version of tbloom reads format 1; use the version that wrote it"
    before = _held(place)
    assert before
    for call in calls:
        with pytest.raises(ConfigMismatch) as caught:
            call()
        assert (sentence, (number, 1)) == (str(caught.value), caught.value.differences["layout"])
    for verb, *words in commands:
        url = () if kind.startswith("page") else ("--url", place.url)
        done = tbloom(verb, *words, *url, stdin="b\n" if verb == "add" else "")
        assert f"tbloom: {sentence}\n" == refused(done)
    assert before == _held(place)
