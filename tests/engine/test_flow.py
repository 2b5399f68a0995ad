"""Calls as data."""

from __future__ import annotations

from tbloom.engine.flow import ScriptCall, pack, pairs, unpack
from tbloom.engine.scripts import Script
from tests.helpers.flows import keys_of


def test_a_call_has_its_words() -> None:
    """Also by its text."""
    script = Script("bloom/add")
    call = ScriptCall(script, ("key", b"\r\n"), (1, "", "\u00e9", b"$3\r\n" * 9))
    words = (b"2", b"key", b"\r\n", b"1", b"", b"\xc3\xa9", b"$3\r\n" * 9)
    assert ("EVALSHA", script.sha.encode(), *words) == call.words
    assert ("EVAL", script.text.encode(), *words) == call.with_text().words
    assert words[1:3] == keys_of(call) == keys_of(call.with_text())
    assert b"key" == call.key == call.with_text().key
    assert [] == [*unpack(pack(()))]


def test_a_hash_is_a_dict_whoever_has_read_it() -> None:
    assert {b"a": b"1", b"b": b"2"} == pairs([b"a", b"1", b"b", b"2"])
    assert {b"a": b"1"} == pairs({b"a": b"1"})
    assert {} == pairs([])
