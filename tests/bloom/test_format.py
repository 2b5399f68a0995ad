"""The storage format is that of docs/format.md, in Python and in Node.

``tests/format_vectors.json`` has examples for clients in any language. After a change of the format it is made anew by
``python -m tests.bloom.test_format > tests/format_vectors.json``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import columns_of, digest, digests_for, packed, shard_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.script_calls import constants
from tbloom.bloom.sizing import COLUMNS, ROW_BYTES, block_step, key_bytes
from tbloom.engine.keys import Keys
from tbloom.engine.scripts import Script
from tbloom.window import window_of
from tests.helpers.contents import block_of
from tests.helpers.making import made_once, missing

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "format_vectors.json"
NODE = ROOT / "examples" / "node"

#: Of all lengths up to two blocks of the hash function, and a few others.
ITEMS = [
    *("https://site.example/page/42?x=1"[:length] for length in range(1, 33)),
    "https://example.com/" + 20 * "long/",
    "Straße, 道, 🌍",
    b"\x00",
    b"\xff\xfe\x00not UTF-8",
]
BLOCKS = 1, 2, 5, 7200, 1 << 20
#: Blocks and rows of the parts that a call names, by size.
SIZES = [(7200, 12)], [(7200, 12), (9000, 14)], [(5, 1), (1 << 16, 15), (40, 20)]
SHARDS = 1, 3, 256
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"capacity": 1000, "slices": 2, "granularity": "h"},
    {"capacity": 10, "error_rate": 0.01, "granularity": "15min", "grow": False},
    {"capacity": 1000, "error_rate": 1e-6},
    {"capacity": 1000, "error_rate": 0.000012345678901234567},
    {"capacity": 100, "error_rate": 1e-9, "slices": 30},
    {"capacity": 5000, "granularity": "w", "slices": 4, "tz": "Europe/Berlin", "shards": 3},
    {"capacity": 50_000_000, "granularity": "m", "slices": 12},
    {"bits": 100_000, "hashes": 7},
    {"capacity": 1000, "granularity": None},
]
#: Granularity, zone, and instants (UTC).
INSTANTS: list[tuple[str | None, str, str]] = [
    ("d", "UTC", "2019-05-08T23:59:59.999"),
    ("d", "Europe/Berlin", "2019-03-31T12:00:00"),  # a day of 23 hours
    ("d", "America/Santiago", "2019-09-08T12:00:00"),  # it begins at 1 o'clock
    ("w", "UTC", "2021-01-03T00:00:00"),
    ("m", "Asia/Tokyo", "2019-12-31T15:00:00"),
    ("h", "UTC", "2019-05-08T13:14:15"),
    ("h", "Europe/Berlin", "2019-10-27T00:30:00"),
    ("h", "Europe/Berlin", "2019-10-27T01:30:00"),  # the same hour on the clock, again
    ("h", "Australia/Lord_Howe", "2019-04-06T15:15:00"),  # clocks go back by half an hour
    ("15min", "UTC", "2019-05-08T13:14:15"),
    ("7d", "UTC", "2019-05-08T13:14:15"),
    (None, "UTC", "2019-05-08T13:14:15"),  # without a window
]
SECRET = bytes(range(32))
GENERATION = "1557273600000000"
CHANGED = f"{GENERATION}.1557277200123456"
SMALL: list[dict[str, Any]] = [
    {"capacity": 10, "error_rate": 0.01, "slices": 2},
    {"capacity": 10, "error_rate": 1e-9, "slices": 1},  # more rows than a digest has columns
    {"bits": 1024, "hashes": 3, "capacity": 40, "error_rate": 0.1, "slices": 1},
]


def vectors() -> dict[str, Any]:
    """What ``tests/format_vectors.json`` holds."""
    return {
        "items": [_item(item) for item in ITEMS],
        "parameters": [_parameters(parameters) for parameters in PARAMETERS],
        "keys": [_keys(name, shards) for name in ("news", "news:3", "news:") for shards in (1, 4)],
        "slices": [_slice(*instant) for instant in INSTANTS],
        "growth": [
            *(_growth(PARAMETERS[number]) for number in (1, 5, 7, 0)),
            _growth(PARAMETERS[0], ";20190508=2000:58752:12"),
        ],
        "secrets": [_secret(SECRET)],
        "small_slices": [_small_slice(parameters) for parameters in SMALL],
    }


def _secret(secret: bytes) -> dict[str, Any]:
    config = configure("news", secret=secret)
    keyed = [{"item": item, "digest": config.digest(item).hex()} for item in ITEMS[30:34]]
    return {"secret_hex": secret.hex(), "stored": config.stored, "items": keyed}


def _item(item: str | bytes) -> dict[str, Any]:
    key = digest(item)
    return {
        **({"item": item} if isinstance(item, str) else {"item_hex": item.hex()}),
        "digest": key.hex(),
        "columns_of_20_rows": [*columns_of(key, 2)[:20]],
        "blocks": {blocks: block_of(key, blocks) for blocks in BLOCKS},
        "shards": {shards: shard_of(key, shards) for shards in SHARDS},
        "packed": [{"sizes": sizes, "bytes": _packed(key, sizes).hex()} for sizes in SIZES],
    }


def _packed(key: bytes, sizes: list[tuple[int, int]]) -> bytes:
    count = digests_for(max(rows for _, rows in sizes))
    return packed([key], count, [(blocks, block_step(rows) * ROW_BYTES) for blocks, rows in sizes])


def _parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    config = configure("news", **parameters)
    [part] = Layout(config).parts("any")
    return {"parameters": parameters, "stored": config.stored, "part": part._asdict()}


def _keys(name: str, shards: int) -> dict[str, Any]:
    keys = Keys(name, shards)
    return {
        "name": name,
        "shards": shards,
        "root": keys.root,
        "config": [keys.config(shard) for shard in range(shards)],
        "second_part": keys.slice("20190508", shards - 1, 1),
    }


def _slice(granularity: str | None, tz: str, at: str) -> dict[str, Any]:
    window = window_of(granularity, 3 if granularity else None, tz)
    instant = datetime.fromisoformat(at).replace(tzinfo=timezone.utc)
    ms = round(instant.timestamp() * 1000)
    slices = window.live(ms)
    return {
        "granularity": window.granularity,
        "tz": window.tz,
        "at": ms,
        "label": slices[-1].label,
        "begins": slices[-1].start,
        "ends": slices[-1].end,
        "live_of_3": [slice.label for slice in slices],
        "leaves_window_of_3": window.expires(slices[-1]),
    }


def _growth(parameters: dict[str, Any], entries: str = "") -> dict[str, Any]:
    """A slice that grows four times, while a later one is live; the later one begins, before it has an entry.

    ``entries``: of the layout before.

    ``grown``, ``begun`` and ``had_begun``: what the layout has then after its version.
    """
    config, live = configure("news", **parameters), ["20190509", "20190508", "20190507"]
    layout, grows = GENERATION + entries, []
    for _ in range(4):
        known = Layout(config, layout)
        grown = known.grown("20190508", live)
        grows.append({"layout": layout, "grown": grown})
        layout = f"{CHANGED};{grown}"
    # As if the slice before had grown in its time.
    before = grows[2]["layout"].rpartition(";")[0]
    known, items = Layout(config, before), 5 * config.first_capacity
    part = known.beginning(items)
    return {
        "parameters": parameters,
        "live": live,
        "slice": "20190508",
        "grows": grows,
        "begins": {
            "slice": "20190509",
            "layout": before,
            "items": items,
            "part": str(part),
            "begun": known.with_parts({"20190509": [part]}, live),
            "had_begun": known.grown("20190509", live),
        },
    }


def _small_slice(parameters: dict[str, Any]) -> dict[str, Any]:
    config, items = configure("news", **parameters), ITEMS[:5]
    [part] = Layout(config).parts("any")
    data = bytearray(key_bytes(part.bits))
    for key in map(digest, items):
        block = block_of(key, part.blocks) * block_step(part.hashes) * COLUMNS
        columns = columns_of(key, digests_for(part.hashes))[: part.hashes]
        for row, column in enumerate(columns):
            bit = block + row * COLUMNS + column
            data[bit // 8] |= 128 >> bit % 8
    return {"parameters": parameters, "items": items, "bytes": data.hex()}


def _text(found: dict[str, Any]) -> str:
    """JSON with a line for each example."""
    sections = (
        f" {json.dumps(section)}: [\n  "
        + ",\n  ".join(json.dumps(example, ensure_ascii=False) for example in examples)
        + "\n ]"
        for section, examples in found.items()
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _stored_vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VECTORS.read_text(encoding="utf-8"))
    return found


def test_the_examples_are_pythons() -> None:
    """If this fails, filters that are stored now are read wrongly: raise ``LAYOUT`` in bloom/config.py."""
    assert VECTORS.read_text(encoding="utf-8") == _text(vectors())


@pytest.mark.usefixtures("away_from_midnight")
@pytest.mark.parametrize("number", range(len(SMALL)))
def test_a_slice_on_a_server_has_the_bytes_of_the_example(url: str, name: str, number: int) -> None:
    small = _stored_vectors()["small_slices"][number]
    with (
        redis.Redis.from_url(url) as client,
        TimeBloom(client, name, **small["parameters"]) as seen,
    ):
        assert [True] * len(small["items"]) == seen.add_many(small["items"])
        *_, key = seen.keys()
        assert client.get(key).hex() == small["bytes"]


@pytest.mark.parametrize(("held", "changes"), [(9, False), (10, True), (11, True)])
def test_a_slice_grows_once_its_part_is_full(
    client: redis.Redis, name: str, *, held: int, changes: bool
) -> None:
    """A call that comes late, from a client that knows another layout, changes nothing."""
    keys = [f"{{{name}}}:config", f"{{{name}}}:state"]
    client.hset(keys[1], mapping={"layout": GENERATION, "20190508": held})
    never = 999999999999999
    shared = constants(0, never, never, size=(10, 100), version=GENERATION, field="20190508")
    for expected in changes, False:
        before = client.hget(keys[1], "layout")
        answer = client.eval(Script("bloom/set_layout").text, 2, *keys, shared, "20190508=1:64:1")
        layout = client.hget(keys[1], "layout")
        assert answer[:2] == [5, layout]
        assert (layout != before) is expected
        assert layout == before or re.fullmatch(rf"{GENERATION}\.\d{{16}};20190508=1:64:1", layout)
    client.delete(keys[1])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client of ``examples/node``, installed in a folder of its own."""
    if shutil.which("npm") is None:
        missing("npm")
    place = Path("examples") / "node"

    def install(root: Path) -> None:
        shutil.copytree(NODE, root / place, ignore=shutil.ignore_patterns("node_modules"))
        (root / "lua").symlink_to(ROOT / "lua")
        (root / "tests").symlink_to(ROOT / "tests")
        npm = ["npm", "install", "--no-audit", "--no-fund"]
        done = subprocess.run(npm, cwd=root / place, capture_output=True, text=True, check=False)
        if done.returncode:
            missing(f"what npm installs ({done.stderr[-300:]})")

    return made_once(tmp_path_factory, "checkout", install) / place / "main.mjs"


@pytest.mark.check
def test_node_agrees_with_the_examples(program: Path) -> None:
    done = subprocess.run(
        ["node", program, "--vectors"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.check
@pytest.mark.parametrize("error_rate", [1e-9, 1e-12])
def test_python_and_node_have_seen_what_the_other_one_adds(
    program: Path, client: redis.Redis, url: str, name: str, error_rate: float
) -> None:
    """In a slice that grows, by one client and by the other."""
    parameters = {"capacity": 500, "slices": 3, "error_rate": error_rate}

    def node(verb: str, items: Iterable[str]) -> list[bool]:
        done = subprocess.run(
            ["node", program, url, name, json.dumps(parameters), verb],
            input="".join(f"{item}\n" for item in items),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (0, "") == (done.returncode, done.stderr)
        return [answer == "1" for answer in done.stdout.split()]

    items = [f"https://site.example/{number}" for number in range(12_000)]
    with TimeBloom(client, name, **parameters) as seen:
        assert all(node("add", items[:4000]))
        assert [False] * 4000 + [True] * 4000 == seen.add_many(items[:8000])
        assert [False] * 8000 + [True] * 4000 == node("add", items)
        assert not any(seen.add_many(items))
        assert len(items) == seen.info().items
    assert [True, False] == node("contains", [items[0], "never"])


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(_text(vectors()))
