"""``tbloom pages``, given and giving bytes that no recorded session can have. (The rest: recorded/pages.txt.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tbloom.pages import PageStore
from tests.helpers.commands import refused, tbloom, tbloom_bytes

URL = "https://example.com/"
#: Characters that must not reach a terminal.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.mark.parametrize(
    ("verb", "arguments", "said"),
    [
        ("put", ["https://example.com/\x1b[2J"], ["URL: ", r"\x1b[2J"]),
        ("put", ["https://example.com/\udcff"], ["URL: ", r"/\udcff'"]),
        ("put", [URL, "--header", "A: b\nC: d"], ["--header: ", "without line breaks"]),
        ("get", ["\udcff"], ["URL: ", r"'\udcff'"]),
        ("delete", ["\udcff"], ["URL: ", r"'\udcff'"]),
    ],
)
def test_what_no_shell_can_show_is_refused(
    tmp_path: Path, verb: str, arguments: list[str], said: list[str]
) -> None:
    with PageStore(tmp_path) as store:
        store.put(URL, b"before")
        before = [*store.pages()]
    refused(tbloom("pages", verb, tmp_path, *arguments), *said)
    with PageStore(tmp_path) as store:
        assert before == [*store.pages()]


def test_control_characters_of_urls_and_keys_are_not_printed(tmp_path: Path) -> None:
    """Such as escapes of eight bits, or text from right to left; the printed addresses work all the same."""
    addresses: list[tuple[str, str | bytes | None]] = [
        (f"{URL}\x9b2J", None),
        (f"{URL}\u202efdp.exe", None),
        (f"{URL}é/日本", None),
        (URL, "\x1b[2J"),
        (URL, f"{URL}\r\x1b[2J"),
        (URL, b"\xff\xfe"),
        (URL, "--json"),
        (URL, "key:00"),
        (URL, f"{URL}a page"),
        (URL, f"{URL}session"),
    ]
    with PageStore(tmp_path) as store:
        for number, (url, key) in enumerate(addresses):
            store.put(url, b"%d" % number, key=key)
    listed = tbloom("pages", "ls", tmp_path).stdout.splitlines()
    assert [f"{URL}é/日本", f"{URL}session"] == [one for one in listed if one[:4] != "key:"]
    bodies = [tbloom("pages", "get", tmp_path, one).stdout for one in listed]
    assert [f"{number}" for number in range(len(addresses))] == bodies
    for form in ([], ["--long"], ["--json"]):
        text = tbloom("pages", "ls", tmp_path, *form).stdout
        assert (len(addresses), None) == (len(text.splitlines()), CONTROL.search(text))


def test_pages_go_through_pipes(tmp_path: Path) -> None:
    """``tbloom pages export ... -o - | tbloom pages import ... -``; a body is any bytes."""
    body = bytes(range(256))
    put = tbloom_bytes("pages", "put", tmp_path / "here", URL, stdin=body)
    written = tbloom_bytes("pages", "export", tmp_path / "here", "-o", "-")
    assert (0, 0, b"1 page written\n") == (put.returncode, written.returncode, written.stderr)
    tbloom_bytes("pages", "import", tmp_path / "there", "-", stdin=written.stdout)
    get = ["pages", "get", tmp_path / "there", URL]
    assert body == tbloom_bytes(*get).stdout
    assert b"HTTP/1.1 200 OK\r\n\r\n" + body == tbloom_bytes(*get, "--headers").stdout
