"""Calls as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tbloom.engine import flow
from tbloom.engine.flow import Command, ScriptCall, pack, pairs, unpack
from tbloom.engine.scripts import Script


def test_no_number_is_given_to_hiredis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that raises while hiredis makes a number's text crashes the interpreter."""
    types = set[type]()

    def note(words: Sequence[Any]) -> bytes:
        types.update(map(type, words))
        return packed(words)

    packed = flow.pack_command
    monkeypatch.setattr(flow, "pack_command", note)
    call = ScriptCall(Script("bloom/add"), ("key", b"key"), (1, 2.5, "text", b"bytes", True))
    assert call.with_text().packed
    command = Command(("BITCOUNT", "key", 8, 16))
    assert command.packed
    assert {str, bytes} == types == {*map(type, command.words)} | {bytes}


@pytest.mark.parametrize("packer", ["hiredis", "redis-py's own"])
def test_a_call_has_its_words(packer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by its text."""
    if packer != "hiredis":  # as where it is not installed
        monkeypatch.setattr("tbloom.engine.flow.pack_command", None)
    script = Script("bloom/add")
    call = ScriptCall(script, ("key", b"\r\n"), (1, "", "\u00e9", b"$3\r\n" * 9))
    words = (b"2", b"key", b"\r\n", b"1", b"", b"\xc3\xa9", b"$3\r\n" * 9)
    assert ("EVALSHA", script.sha.encode(), *words) == call.words
    assert ("EVAL", script.text.encode(), *words) == call.with_text().words
    assert words[1:3] == call.keys == call.with_text().keys
    assert b"key" == call.key == call.with_text().key
    assert [] == [*unpack(pack(()))]


def test_a_hash_is_a_dict_whoever_has_read_it() -> None:
    assert {b"a": b"1", b"b": b"2"} == pairs([b"a", b"1", b"b", b"2"])
    assert {b"a": b"1"} == pairs({b"a": b"1"})
    assert {} == pairs([])
