"""``tbloom queue`` and ``failed`` on terminals of several widths."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tbloom import TimeBloom
from tests.bloom.test_fleet import claimed, failed, told
from tests.helpers.commands import screen, tbloom

LONG = "http://a-host-with-a-long-name.example.com/" + "a/path/of/many/words/" * 9
REASONS = {
    "download/DownloadConnectionRefusedError": 4120,
    "callback/KeyError": 13,
    "status/503": 7,
}


@pytest.fixture
def fleet(url: str, name: str) -> Iterator[TimeBloom]:
    """Twelve crawlers that work, with other arguments each, two that wait, and five that have ended, two of them by errors."""
    with ExitStack() as stack:
        own: dict[str, Any] = {"capacity": 1000, "session_ttl": 3600}
        for n in range(19):
            seen = stack.enter_context(TimeBloom.from_url(url, f"{name}:tbloom", **own))
            seen._keep_session = lambda: None  # type: ignore[method-assign]
            queue = f"{name}\n[('country', 'c{n % 12}')]"
            waits = 12 <= n < 14
            seen.take(1 if waits else 0, queue, idle=waits)
            if n < 12:
                claimed(seen, page := f"{LONG}{n}")
                why = "download/DownloadConnectionRefusedError"
                history = failed(why, at=int(time.time()))._replace(queue=f"{queue}\nfailed")
                seen.note_history({page: history})
            about: dict[str, Any] = {"queue": queue, "host": "crawl-a.example.com", "pid": 9990 + n}
            about |= {"done": 123_456, "per_minute": 1218, "taken": 84_000, "given": 91_200}
            reasons = [
                "finished",
                "shutdown",
                "closespider_errorcount",
                "tbloom_error",
                "cancelled",
            ]
            if n >= 14:
                about["ended"] = reasons[n - 14]
            told(seen, **about, up=7300, ttl=3600, failed=REASONS)
        yield seen


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_longer_than_the_terminal_and_no_word_is_folded(
    url: str, name: str, width: int
) -> None:
    """Each line is one of those in a pipe, less some columns; what is cut off says so. A wide terminal loses nothing that fits."""
    for words in ["queue"], ["queue", "--all"], ["failed"]:
        wide = {*re.findall(r"\S+", tbloom(words[0], name, *words[1:], "--url", url).stdout)}
        lines = screen(*words, name, "--url", url, width=width)
        assert max(map(len, lines)) <= width
        # (Ages differ.)
        words_of = (word for line in lines for word in line.split() if not word.isdigit())
        assert [] == [word for word in words_of if word not in wide and word[-1] != "…"]
        crawlers = [line.split() for line in lines if line.startswith("crawl-a")]
        assert len(crawlers) == {"queue": 14, "queue --all": 19}.get(" ".join(words), 0)
    assert any(re.search("  URL *$", line) for line in lines)
    headings = {80: 6, 100: 8, 140: 10}
    [heading] = [
        line for line in screen("queue", name, "--url", url, width=width) if "crawler " in line
    ]
    assert headings[width] <= len(re.split("  +", heading))


@pytest.mark.usefixtures("fleet")
def test_what_works_comes_first_then_what_has_ended_last(url: str, name: str) -> None:
    """And numbers are sorted as numbers. Of those that have ended, a line says how many, and how many by errors."""
    shown = tbloom("queue", name, "--url", url).stdout
    assert shown.endswith("\n\n5 ended, 2 of them by errors (--all shows them)\n")
    assert "1,234 done" not in shown
    done = f"{12 * 1218:,} done a minute; {19 * 123_456:,} done in the whole filter"
    assert f"\n12 claimed or left, {done}\n" in shown
    pids = [int(pid) for pid in re.findall(r"^crawl-a\S+:(\d+)", shown, re.MULTILINE)]
    assert [*range(9990, 10_004)] == pids
    shown = tbloom("queue", name, "--all", "--url", url).stdout
    pids = [int(pid) for pid in re.findall(r"^crawl-a\S+:(\d+)", shown, re.MULTILINE)]
    assert [*range(9990, 10_004), *range(10_008, 10_003, -1)] == pids
    sets = re.findall(r"^-a country=c(\d+) ", shown, re.MULTILINE)
    assert [*map(str, range(12))] == sorted(sets, key=int)
