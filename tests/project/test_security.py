"""What SECURITY.md says that an attacker can do, and can't."""

from __future__ import annotations

import hashlib
from itertools import count

import redis

from tbloom import TimeBloom
from tbloom.bloom.hasher import columns_of, digest
from tbloom.bloom.sizing import blocks_in
from tests.helpers.places import block_of


def test_chosen_urls_hide_another_under_scrapys_fingerprints(own: redis.Redis) -> None:
    """For a slice of 1000 items some 10,000 tries do; for a million, 7 million did, in 15 s."""
    seen = TimeBloom(own, "aimed", capacity=1000)
    blocks = blocks_in(seen.config.bits, seen.config.hashes)
    victim = hashlib.sha1(b"https://victim.example/").digest()  # noqa: S324 - Scrapy's choice
    aim, urls = digest(victim), 0
    columns = columns_of(aim, 1)
    missing = set(range(seen.config.hashes))
    for number in count():
        fingerprint = hashlib.sha1(b"https://attacker.example/%d" % number).digest()  # noqa: S324
        found = digest(fingerprint)
        if block_of(found, blocks) == block_of(aim, blocks):
            set_rows = {row for row in missing if columns_of(found, 1)[row] == columns[row]}
            if set_rows:
                missing -= set_rows
                seen.add(fingerprint)
                urls += 1
        if not missing:
            break
    assert urls <= 12 == seen.config.hashes
    assert victim in seen


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
