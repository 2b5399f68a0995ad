"""Bitmaps in Roaring's portable format, read and changed by implementations in other languages."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tbloom import ConfigError
from tbloom.distinct import DistinctCounter
from tbloom.distinct.roaring import bitmap_of, containers_of, imported
from tests.helpers.making import missing

HERE = Path(__file__).parent / "interop"
#: Where Maven keeps the reference implementation.
JARS = Path.home() / ".m2/repository/org/roaringbitmap/RoaringBitmap"
#: Lists, bitmaps and runs; ids at the end of all.
IDS = {*range(10, 200_000), *range(1 << 20, 1 << 21, 3), 1 << 24, *range((1 << 32) - 5, 1 << 32)}
Change = Callable[[bytes], tuple[int, bytes]]

_chunk = st.one_of(
    st.sets(st.integers(0, 65_535), min_size=1, max_size=30),
    st.tuples(st.integers(0, 65_535), st.integers(1, 65_536)).map(
        lambda run: {*range(run[0], min(65_536, sum(run)))}
    ),
    st.integers(2, 20).map(lambda step: {*range(0, 65_536, step)}),
)
_chunks = st.dictionaries(st.integers(0, 65_535), _chunk, max_size=6)


@given(_chunks, st.booleans())
def test_containers_are_bitmaps(chunks: dict[int, set[int]], runs: bool) -> None:
    ids = BitMap(chunk << 16 | low for chunk, lows in chunks.items() for low in lows)
    if runs:
        ids.run_optimize()
    containers = containers_of(ids)
    assert containers.keys() == chunks.keys()
    assert ids == bitmap_of(containers)
    assert ids == imported(ids.serialize())
    with pytest.raises(ConfigError, match="and none behind them"):
        imported(ids.serialize() + b"\0")
    # As the server keeps a bitmap that has lost ids.
    bitmaps = {}
    for chunk, lows in chunks.items():
        bits = sum(1 << low for low in lows).to_bytes(8192, "little")
        bitmaps[chunk] = b"b" + struct.pack("<H", len(lows) - 1) + bits
    assert ids == bitmap_of(bitmaps)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Change:
    """The npm package ``roaring-wasm``."""
    if shutil.which("npm") is None:
        missing("npm")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "change.mjs"):
        shutil.copy(HERE / name, folder)
    install = ["npm", "install", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"what npm installs ({done.stderr[-300:]})")
    return lambda data: changed(["node", str(folder / "change.mjs")], data)


@pytest.fixture(scope="module")
def java() -> Change:
    """Java's RoaringBitmap, the format's reference, which shares no code with pyroaring."""
    jars = sorted(JARS.glob("*/*.jar"))
    if shutil.which("java") is None or not jars:
        pytest.skip("Java, or RoaringBitmap in its Maven repository, is missing")
    command = ["java", "-cp", str(jars[-1]), str(HERE / "Change.java")]
    return lambda data: changed(command, data)


def changed(command: list[str], data: bytes) -> tuple[int, bytes]:
    """What the program says of the bitmap, and what it makes of it."""
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stderr), done.stdout


@pytest.mark.check
@pytest.mark.parametrize("program", ["node", "java"])
def test_a_counter_goes_to_another_language_and_back(
    request: pytest.FixtureRequest, url: str, name: str, program: str
) -> None:
    change: Change = request.getfixturevalue(program)
    with DistinctCounter.from_url(url, f"{name}-a", None) as counter:
        other = DistinctCounter(counter.client, f"{name}-b", None)
        counter.from_roaring(BitMap(IDS).serialize())
        counter.discard_many([*range(10, 20), (1 << 32) - 1])
        ids = IDS - {*range(10, 20), (1 << 32) - 1}
        size, data = change(counter.members().to_roaring())
        assert len(ids) == size
        other.from_roaring(data)
        expected = ids - {20} | {(1 << 32) - 1}
        assert len(expected) == other.count()
        assert BitMap(expected) == other.members().bitmap()
