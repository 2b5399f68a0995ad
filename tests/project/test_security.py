"""What SECURITY.md says that an attacker can do, and can't."""

from __future__ import annotations

import hashlib
import secrets
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import FilterFull, TimeBloom
from tbloom.bloom.hasher import digest
from tbloom.bloom.sizing import COLUMNS
from tests.helpers.documents import ROOT, blocks
from tests.helpers.places import block_of

BLOCKS = [block.code for block in blocks(ROOT / "SECURITY.md") if block.language == "python"]
SCRAPY = {"DUPEFILTER_CLASS": "tbloom.scrapy.DupeFilter"}

_MASK = (1 << 64) - 1


def _unmixed(word: int) -> int:
    """mmh3's last step, backwards."""
    word ^= word >> 33
    word = word * pow(0xC4CEB9FE1A85EC53, -1, 1 << 64) & _MASK
    word ^= word >> 33
    word = word * pow(0xFF51AFD7ED558CCD, -1, 1 << 64) & _MASK
    return word ^ word >> 33


def _unrolled(word: int, bits: int) -> int:
    return (word >> bits | word << (64 - bits)) & _MASK


def _item_with(digest: int) -> bytes:
    """The one item of 16 bytes that mmh3 maps to the digest: its steps, backwards."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1, h2 = digest & _MASK, digest >> 64
    h2 = (h2 - h1) & _MASK
    h1 = (h1 - h2) & _MASK
    h1, h2 = _unmixed(h1), _unmixed(h2)
    h2 = (h2 - h1) & _MASK
    h1 = (h1 - h2) & _MASK
    h1, h2 = h1 ^ 16, h2 ^ 16
    h2 = (h2 - 0x38495AB5) * pow(5, -1, 1 << 64) & _MASK
    k2 = _unrolled((h2 - h1) & _MASK, 31)
    h1 = (h1 - 0x52DCE729) * pow(5, -1, 1 << 64) & _MASK
    k1 = _unrolled(h1, 27)
    k1 = _unrolled(k1 * pow(c2, -1, 1 << 64) & _MASK, 31) * pow(c1, -1, 1 << 64) & _MASK
    k2 = _unrolled(k2 * pow(c1, -1, 1 << 64) & _MASK, 33) * pow(c2, -1, 1 << 64) & _MASK
    return k1.to_bytes(8, "little") + k2.to_bytes(8, "little")


def _keyed(url: bytes, key: bytes) -> bytes:
    names: dict[str, Any] = {}
    exec(BLOCKS[0], names)  # noqa: S102 - our own document
    item: bytes = names["item"](url.decode("latin-1"), key)
    return item


def test_an_item_of_chosen_bytes_makes_a_url_seen_unless_keyed(own: redis.Redis) -> None:
    victim = b"https://victim.example/"
    forged = _item_with(int.from_bytes(digest(victim), "little"))
    seen = TimeBloom(own, "open", capacity=1000)
    seen.add(forged)
    assert victim in seen
    key = secrets.token_bytes(32)
    keyed = TimeBloom(own, "keyed", capacity=1000)
    keyed.add(_keyed(forged, key))
    assert [False, True] == [_keyed(url, key) in keyed for url in (victim, forged)]
    assert _keyed(victim, key) != _keyed(victim, b"another")


def test_chosen_urls_hide_another_under_scrapys_fingerprints(own: redis.Redis) -> None:
    """For a slice of 1000 items some 10,000 tries do; for a million, 7 million did, in 15 s."""
    seen = TimeBloom(own, "aimed", capacity=1000)
    blocks = seen.config.bits // (seen.config.hashes * COLUMNS)
    victim = hashlib.sha1(b"https://victim.example/").digest()  # noqa: S324 - Scrapy's choice
    aim, urls = digest(victim), 0
    missing = set(range(seen.config.hashes))
    for number in count():
        fingerprint = hashlib.sha1(b"https://attacker.example/%d" % number).digest()  # noqa: S324
        found = digest(fingerprint)
        if block_of(found, blocks) == block_of(aim, blocks):
            set_rows = {row for row in missing if found[row] == aim[row]}
            if set_rows:
                missing -= set_rows
                seen.add(fingerprint)
                urls += 1
        if not missing:
            break
    assert urls <= 14 == seen.config.hashes
    assert victim in seen


def test_without_growth_memory_is_bounded(own: redis.Redis) -> None:
    seen = TimeBloom(own, "bounded", capacity=1000, grow=False)
    with pytest.raises(FilterFull):
        seen.add_many(map(str, range(2000)))
    assert seen.info().items == 1000


def test_the_keyed_fingerprinter_of_the_document_works(
    crawl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "myfingerprints.py").write_text(BLOCKS[1])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    keyed = {**SCRAPY, "REQUEST_FINGERPRINTER_CLASS": "myfingerprints.KeyedFingerprinter"}
    pages = ["a", "a", "p?x=1&y=2", "p?y=2&x=1"]
    for key, fetched in (("secret", 2), ("secret", 0), ("another", 2)):
        result = crawl("pages", {**keyed, "FINGERPRINT_KEY": key}, pages)
        assert fetched == len(result["fetched"])


def test_no_url_is_stored_or_sent_and_every_key_expires(own: redis.Redis) -> None:
    """But for the name, what MONITOR shows is numbers, hashes and our own scripts. No hash is stored."""
    own.flushall()
    own.script_flush()
    url = "https://user:secret@hidden.example/path"
    with own.monitor() as monitor:
        seen = TimeBloom(own, "quiet", capacity=1000)
        seen.add(url)
        seen.add_many([url, f"{url}/2"])
        assert url in seen
        own.echo("the end")
        said = ""
        while "the end" not in said:
            said += monitor.next_command()["command"]
    stored = b"".join(own.dump(key) for key in own.scan_iter()).decode("latin-1")
    for text in ("hidden", "secret"):
        assert text not in said
        assert text not in stored
    assert digest(url).decode("latin-1") not in stored
    assert digest(url).hex() not in stored
    assert all(own.ttl(key) > 0 for key in own.scan_iter())
