"""Calls as data."""

from __future__ import annotations

from tbloom.engine.flow import Command, ScriptCall
from tbloom.engine.scripts import Script


def test_no_number_is_given_to_redis_py() -> None:
    """A signal handler that raises while hiredis makes a number's text crashes the interpreter."""
    call = ScriptCall(Script("bloom/add"), ("key", b"key"), (1, 2.5, "text", b"bytes", True))
    words = [*call.words, *call.with_text().words, *Command(("BITCOUNT", "key", 8, 16)).words]
    assert {str, bytes} == {*map(type, words)}
    assert ("EVALSHA", "2") == (call.words[0], call.words[2])
