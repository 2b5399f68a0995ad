"""After any sequence of puts, deletes, openings, rebuilds and clock steps, a page store has the pages of a plain dict."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tbloom.pages import Page, PageStore, export_warc, import_warc, record
from tbloom.window import Window, to_ms
from tests.helpers.pagestores import CODECS

START = datetime(2019, 10, 25, 12, tzinfo=UTC)  # before clocks are set back in Berlin
URLS = [
    "https://example.com/a",
    "https://EXAMPLE.com/%7e/../?q=a+b#part",
    "https://example.com/münchen/€/𝄞?q=é",
    "https://user:secret@[::1]:8080/'\"<>{}|\\^`",
    "http://a",
]
KEYS = [b"\x00\xff\r\n: ", "ключ".encode()]
ADDRESSES = [*URLS, *KEYS]
AT = START - timedelta(days=1000)
BODIES = st.binary() | st.sampled_from(
    [
        b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\nWARC/1.1\r\n\r\n",
        b"\x1f\x8b\x08" * 3 + b"\x28\xb5\x2f\xfd" * 3,
        bytes(range(256)) * 2,
        b"<p>page</p>\n" * 100,
        record.of_page(Page(URLS[0], 200, (), b"x", AT), 99, record.new_id(), "gzip"),
    ]
)
LATIN = st.characters(codec="latin-1", exclude_characters="\x00\r\n\x7f:", min_codepoint=33)
#: Any names; those that may say something untrue of the body, and those that an archive or a record has.
NAMES = st.text(LATIN, min_size=1) | st.sampled_from(
    [
        *("Content-Encoding", "CONTENT-LENGTH", "transfer-encoding", "x", "X", "WARC-Type"),
        *("X-Archive-Orig-Content-Length", "x-archive-orig-x", "X-Archive-Orig-", "X-Tbloom-Sequence"),
    ]
)  # fmt: skip
VALUES = st.text(LATIN) | st.sampled_from(["", "0", "gzip", "gzip, br", "a: b;\tc", "x" * 2_000])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3).map(tuple)
#: Further fields of a page's record.
FIELDS = st.sampled_from(
    [(), (("X-A", "é€"), ("x-a", "2")), (("WARC-IP-Address", "::1"), ("X!#$%&'*+.^_`|~9-", "a: b"))]
)
#: A page, whose time is a number of periods ago.
PAGES = st.fixed_dictionaries(
    {
        "address": st.sampled_from(ADDRESSES),
        "body": BODIES,
        "headers": HEADERS,
        "status": st.integers(100, 999),
        "back": st.floats(-1, 4) | st.sampled_from([-0.5, 0, 0, 1, 2]),
        "fields": FIELDS,
    }
)
PERIODS = {"h": timedelta(hours=1), "d": timedelta(days=1), "90s": timedelta(seconds=90)}


class StoreMachine(RuleBasedStateMachine):
    """A writer, a reader that stays open, and the expected pages by address."""

    #: Where its folders are.
    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.steps = 0
        self.pages: dict[str | bytes, Page] = {}
        self.folder = tempfile.TemporaryDirectory(dir=self.root)
        self.clock = patch("tbloom.pages.clock.now", lambda: self.now)
        self.clock.start()

    @initialize(
        granularity=st.sampled_from([None, *PERIODS]),
        slices=st.integers(1, 4),
        segment_bytes=st.sampled_from([1, 1500, 1 << 30]),
        codec=st.sampled_from(CODECS),
    )
    def start(self, granularity: str | None, slices: int, segment_bytes: int, codec: str) -> None:
        self.arguments: dict[str, Any] = {"segment_bytes": segment_bytes, "codec": codec}
        self.window = None
        self.period = PERIODS[granularity or "d"]
        parameters: dict[str, Any] = {}
        if granularity is not None:
            parameters = {"granularity": granularity, "slices": slices, "tz": "Europe/Berlin"}
            self.window = Window(granularity, slices, "Europe/Berlin")
        self.store = PageStore(self.folder.name, **parameters, **self.arguments)
        self.reader = PageStore(self.folder.name, readonly=True)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.reader.close()
        self.clock.stop()
        self.folder.cleanup()

    def since(self) -> int:
        """When the window begins (ms)."""
        return self.window.live(to_ms(self.now))[0].start if self.window else -(1 << 60)

    def is_kept(self, page: Page) -> bool:
        at = to_ms(page.at)
        return not self.window or self.window.slice_at(at).start >= self.since()

    def page(self, address: str | bytes, back: float, **more: Any) -> Page:
        at = max(
            self.now - self.period * back,
            datetime.fromtimestamp(max(self.since(), 0) / 1000, UTC),
        )
        url, key = (URLS[0], address) if isinstance(address, bytes) else (address, None)
        return Page(url, at=at, key=key, **more)

    @rule(given=PAGES)
    def put(self, given: dict[str, Any]) -> None:
        self.forget()
        page = self.page(**given)
        self.store.put(**dataclasses.asdict(page))
        self.pages[page.address] = page

    @rule(several=st.lists(PAGES), newer=st.booleans(), batch=st.sampled_from([1, 3, 256]))
    def put_many(self, several: list[dict[str, Any]], newer: bool, batch: int) -> None:
        self.forget()
        pages = [self.page(**given) for given in several]
        count = 0
        for page in pages:
            had = self.pages.get(page.address)
            if not newer or had is None or had.at < page.at:
                self.pages[page.address] = page
                count += 1
        with patch("tbloom.pages.writer.BATCH_PAGES", batch):
            assert count == self.store.put_many(iter(pages), newer=newer)

    @rule(address=st.sampled_from(ADDRESSES))
    def delete(self, address: str | bytes) -> None:
        self.forget()
        assert (self.pages.pop(address, None) is not None) == self.store.delete(address)

    @rule(codec=st.sampled_from(CODECS))
    def reopen(self, codec: str) -> None:
        self.forget()
        self.arguments["codec"] = codec
        self.store.close()
        self.store = PageStore(self.folder.name, **self.arguments)

    @rule(codec=st.sampled_from(CODECS))
    def move(self, codec: str) -> None:
        """Another store gets all pages, by an exported file."""
        self.forget()
        exported = BytesIO()
        assert len(self.pages) == export_warc(self.store, exported, codec=codec).pages
        exported.seek(0)
        with tempfile.TemporaryDirectory(dir=self.root) as folder, PageStore(folder) as other:
            done = import_warc(other, exported)
            assert (len(self.pages), 0, ()) == (done.stored, done.present, done.damaged)
            assert self.pages == {page.address: page for page in other.pages()}

    @rule(is_lost=st.booleans())
    def rebuild(self, is_lost: bool) -> None:
        """The index is replaced, and the reader goes on; or it is lost."""
        if not [*Path(self.folder.name).glob("*.warc.*")]:
            return  # nothing to make it from
        self.forget()
        self.store.close()
        if is_lost:
            self.reader.close()
            for path in Path(self.folder.name).glob("index.sqlite*"):
                path.unlink()
        PageStore.rebuild(self.folder.name)
        self.store = PageStore(self.folder.name, **self.arguments)
        if is_lost:
            self.reader = PageStore(self.folder.name, readonly=True)

    @precondition(lambda self: getattr(self, "window", None) is not None)
    @rule(periods=st.floats(-2.5, 2.5) | st.sampled_from([-30.0, 1.0, 9.0]))
    def step(self, periods: float) -> None:
        """Also back; pages that have left, and may be removed, are not expected then."""
        self.now += self.period * periods
        if periods > 0:
            self.store.delete("https://example.com/none")  # a writer removes what has left

    def forget(self) -> None:
        """Pages that have left the window are gone for good."""
        self.pages = {address: page for address, page in self.pages.items() if self.is_kept(page)}

    @invariant()
    def agrees(self) -> None:
        """The writer's and the reader's view, in turns."""
        self.forget()
        self.steps += 1
        store = self.reader if self.steps % 2 else self.store
        assert len(self.pages) == len(store)
        for address in ADDRESSES:
            assert self.pages.get(address) == store.get(address)
            assert (address in self.pages) == (address in store)
        several = [*ADDRESSES, URLS[0]]
        assert [self.pages.get(address) for address in several] == store.get_many(several)
        found = {page.address: page for page in store.pages()}
        assert (self.pages, len(self.pages)) == (found, len([*store]))
        info, report = store.stats(), store.verify()
        assert (len(self.pages), ()) == (info.pages, report.problems)
        assert (info.pages, info.records) == (report.pages, report.records)
        names = sorted(path.name for path in Path(self.folder.name).glob("*.warc.*"))
        assert (info.segments, info.bytes - info.index_bytes) == (
            len(names),
            sum((Path(self.folder.name) / name).stat().st_size for name in names),
        )
        assert [one.label for one in info.slices if one.segments] == sorted(
            {name.split("-")[0] for name in names}
        )
        if self.window:
            expected: dict[str, int] = {}
            for page in self.pages.values():
                label = self.window.slice_at(to_ms(page.at)).label
                expected[label] = expected.get(label, 0) + 1
            assert expected == {one.label: one.pages for one in info.slices if one.pages}
            for one in info.slices:
                slice = self.window.slice_at(to_ms(one.start))
                assert (slice.end, self.window.expires(slice)) == (
                    to_ms(one.end),
                    to_ms(one.expires),
                )


@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.check)])
def test_every_sequence_leaves_what_the_model_has(examples: int, tmp_path: Path) -> None:
    StoreMachine.root = tmp_path
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        ),
    )
