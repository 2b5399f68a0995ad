"""Notes of requests are packed: what comes back, and what else the server may have."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbloom import Claim, History, Note, TimeBloom
from tbloom.claims.fleet import FAILED, LEFT, Fleet, failed_queue_of
from tbloom.claims.notes import with_failure
from tbloom.claims.packed import pack, unpack

LINE = f"{bytes(range(20)).hex()} v31\n"
TEXT = LINE + json.dumps({"url": "https://www.example.com/catalogue/1.html", "callback": "parse"})

GOLDEN = "30303031303230333034303530363037303830393061306230633064306530663130313131323133207633310a01c3eae4d48ac45c602e07bb1c18528939f9e9a5a9fa8678c2a3160090a227e8"
FIELDS = st.dictionaries(st.text(max_size=9), st.text() | st.integers() | st.lists(st.text()))


@given(FIELDS, st.sampled_from([LINE, f"{'ab' * 32}\n", "", "\n", "a\nb\n"]), st.booleans())
def test_any_note_comes_back(fields: dict[str, Any], line: str, is_text: bool) -> None:
    """Also one that is no request, as programs leave it."""
    text = line + json.dumps(fields, ensure_ascii=False) + "." * is_text
    stored = pack(text)
    assert text == unpack(stored)
    assert (b"\n\x01" in stored) == (line.count("\n") == 1 < len(line) and not is_text)


@pytest.mark.parametrize("text", [
    "a\n\x01payload", "\n\x01hi", f"{LINE}{{}}", f"{LINE}\x01{{}}", f'{TEXT[:-1]}, "_failed": [1, "status/503"]}}',
])  # fmt: skip
def test_a_note_of_a_strange_form_comes_back(text: str) -> None:
    assert text == unpack(pack(text))


def test_the_form_never_changes() -> None:
    """A note that was packed by the first version."""
    assert TEXT == unpack(bytes.fromhex(GOLDEN))


def test_a_note_is_shorter_by_far() -> None:
    """Less its fingerprint, which stays as it is."""
    assert len(pack(TEXT)) - len(LINE) < 0.7 * (len(TEXT) - len(LINE))


def test_no_changed_byte_makes_another_note() -> None:
    """A crawler would fetch another page. Only the version in the line may be another one."""
    stored = pack(TEXT)
    for at in [*range(LINE.index(" ")), *range(len(LINE), len(stored))]:
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(stored)
            changed[at] ^= change
            unpacked = unpack(bytes(changed))
            with suppress(ValueError):  # no JSON
                fields = json.loads(unpacked.partition("\n")[2])
                assert unpacked == TEXT or "_damaged" in fields


def test_a_damaged_note_says_what_is_wrong() -> None:
    """One that is cut off, that others have written, or that would fill the memory."""
    own, cut_off = pack(TEXT), f'{LINE}{{"_damaged": "it is cut off"}}'
    for cut in (-1, -10, len(LINE) + 1, len(LINE) + 2):
        assert cut_off == unpack(own[:cut])
    mark = own.index(1)
    for foreign in (b"\xff" * 40, own[mark + 1 :][::-1], b"{}"):
        line, _, note = unpack(own[: mark + 1] + foreign).partition("\n")
        assert LINE == f"{line}\n"
        assert json.loads(note)["_damaged"]
    assert "\ufffd" in unpack(b"\xff not UTF-8 {}")
    assert cut_off == unpack(pack(LINE + json.dumps({"url": "a" * 1_000_000})))


@pytest.fixture
def seen(url: str, name: str) -> Any:
    with TimeBloom.from_url(url, name, capacity=1000) as seen:
        yield seen


@pytest.mark.parametrize("is_plain", [False, True])
def test_failures_come_and_go_at_the_end_of_a_note(seen: TimeBloom, is_plain: bool) -> None:
    """Also of one that another program has written as it is."""
    texts = {f"{n}": f"{LINE}{json.dumps({'url': f'https://a/{n}', 'n': n})}" for n in range(300)}
    notes = [Note(text, "shop") for text in texts.values()]
    assert {Claim.NEW} == {*seen.claim_many(texts, notes=notes)}
    if is_plain:
        key = seen.config.keys.claims(0)
        for digest, claim in seen.client.hgetall(key).items():
            if len(digest) == 16:
                seen.client.hset(key, digest, claim[:38] + unpack(claim[38:]).encode())
    fleet, queue = Fleet(seen, "shop"), failed_queue_of("shop")
    for at in (1, 2):
        history = History(queue, failures=at, reason="callback/KeyError", failed_at=at)
        seen.note_history(dict.fromkeys(texts, history))
        failure = json.dumps([at, "callback/KeyError"])
        expected = {with_failure(text, failure) for text in texts.values()}
        assert expected == {page.note for page in fleet.kept([FAILED])}
    assert (300, 0) == fleet.retry(fleet.kept([FAILED]))
    assert {*texts.values()} == {page.note for page in fleet.kept([LEFT])}
    assert {*texts.values()} == {
        note.text for _ in range(3) for note in seen.take(100, "shop").notes
    }
