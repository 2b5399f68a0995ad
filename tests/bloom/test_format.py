"""The storage format is that of docs/format.md.

``tests/format_vectors.json`` has examples for clients in any language. After a change of the format
``python -m tests.bloom.test_format`` makes it anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.hasher import columns_of, digest, digests_for, packed, shard_of
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import COLUMNS, ROW_BYTES, block_step, key_bytes
from tbloom.bloom.view import header_of
from tbloom.engine.keys import Keys
from tbloom.engine.scripts import Script
from tbloom.window import window_of
from tests.helpers.contents import block_of

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "format_vectors.json"

GENERATION = "1557273600000000"
CHANGED = f"{GENERATION}.1557277200123456"


def vectors(examples: dict[str, Any]) -> dict[str, Any]:
    """The same examples as they are today."""
    anew: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "items": _item,
        "parameters": _parameters,
        "keys": _keys,
        "slices": _slice,
        "growth": _growth,
        "secrets": _secret,
        "small_slices": _small_slice,
    }
    return {section: [anew[section](each) for each in some] for section, some in examples.items()}


def _secret(example: dict[str, Any]) -> dict[str, Any]:
    config = configure("news", secret=bytes.fromhex(example["secret_hex"]))
    items = [each["item"] for each in example["items"]]
    keyed = [{"item": item, "digest": config.digest(item).hex()} for item in items]
    return {"secret_hex": example["secret_hex"], "stored": config.stored, "items": keyed}


def _item(example: dict[str, Any]) -> dict[str, Any]:
    name, given = next(iter(example.items()))  # as text, or in hexadecimal
    key = digest(given if name == "item" else bytes.fromhex(given))
    sizes = [each["sizes"] for each in example["packed"]]
    return {
        name: given,
        "digest": key.hex(),
        "columns_of_20_rows": [*columns_of(key, 2)[:20]],
        "blocks": {blocks: block_of(key, int(blocks)) for blocks in example["blocks"]},
        "shards": {shards: shard_of(key, int(shards)) for shards in example["shards"]},
        "packed": [{"sizes": each, "bytes": _packed(key, each).hex()} for each in sizes],
    }


def _packed(key: bytes, sizes: list[tuple[int, int]]) -> bytes:
    count = digests_for(max(rows for _, rows in sizes))
    return packed([key], count, [(blocks, block_step(rows) * ROW_BYTES) for blocks, rows in sizes])


def _parameters(example: dict[str, Any]) -> dict[str, Any]:
    config = configure("news", **example["parameters"])
    [part] = Layout(config).parts("any")
    return {
        "parameters": example["parameters"],
        "stored": config.stored,
        "part": part._asdict(),
    }


def _keys(example: dict[str, Any]) -> dict[str, Any]:
    name, shards = example["name"], example["shards"]
    keys = Keys(name, shards)
    return {
        "name": name,
        "shards": shards,
        "root": keys.root,
        "config": [keys.config(shard) for shard in range(shards)],
        "second_part": keys.slice("20190508", shards - 1, 1),
    }


def _slice(example: dict[str, Any]) -> dict[str, Any]:
    granularity, tz, ms = example["granularity"], example["tz"], example["at"]
    window = window_of(granularity, 3 if granularity else None, tz)
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


def _growth(example: dict[str, Any]) -> dict[str, Any]:
    """A slice that grows four times, while a later one is live; the later one begins, before it has an entry.

    ``grown``, ``begun`` and ``had_begun``: what the layout has then after its version.
    """
    parameters, live = example["parameters"], ["20190509", "20190508", "20190507"]
    config, layout, grows = configure("news", **parameters), example["grows"][0]["layout"], []
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


def _small_slice(example: dict[str, Any]) -> dict[str, Any]:
    parameters, items = example["parameters"], example["items"]
    config = configure("news", **parameters)
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


def test_the_examples_are_what_python_computes() -> None:
    """If this fails, filters that are stored now are read wrongly: raise ``LAYOUT`` in bloom/config.py."""
    assert VECTORS.read_text(encoding="utf-8") == _text(vectors(_stored_vectors()))


@pytest.mark.usefixtures("away_from_midnight")
@pytest.mark.parametrize("number", range(3))
def test_a_slice_on_a_server_is_as_the_example(url: str, name: str, number: int) -> None:
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
    shared = header_of(0, never, never, size=(10, 100), version=GENERATION, field="20190508")
    for expected in changes, False:
        before = client.hget(keys[1], "layout")
        answer = client.eval(Script("bloom/set_layout").text, 2, *keys, shared, "20190508=1:64:1")
        layout = client.hget(keys[1], "layout")
        assert answer[:2] == [5, layout]
        assert (layout != before) is expected
        assert layout == before or re.fullmatch(rf"{GENERATION}\.\d{{16}};20190508=1:64:1", layout)
    client.delete(keys[1])


if __name__ == "__main__":
    VECTORS.write_text(_text(vectors(_stored_vectors())), encoding="utf-8")
