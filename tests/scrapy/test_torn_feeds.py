"""What a reader finds once a crawl has appended to the file of one that was killed, or whose disk was full; or has replaced it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exporters import CsvItemExporter, JsonLinesItemExporter
from scrapy.extensions.feedexport import FeedSlot, FileFeedStorage, ItemFilter

from tbloom.scrapy.done.feed_files import begin, mend
from tests.helpers.making import missing
from tests.helpers.pagestores import mounted
from tests.helpers.projects import Project, path_of

GZIP = {"postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"]}
FIELDS = ("url", "title", "text")
NEW = {"url": "new", "title": "x", "text": "a\nb"}


class Semicolons(CsvItemExporter):
    """Chooses its dialect itself, as a recipe on the web does."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more, delimiter=";", quotechar="'")


# At every byte: a feed as Scrapy opens it


def append(path: Path, items: list[Any], **options: Any) -> None:
    """Append items as a crawl does."""
    usual: dict[str, Any] = {
        "format": "csv",
        "fields": None,
        "indent": None,
        "item_export_kwargs": {},
    }
    options = {**usual, "encoding": "utf-8", **options}
    crawler = Crawler(Spider)
    slot = FeedSlot(
        storage=FileFeedStorage(str(path)),
        uri=str(path),
        format=options["format"],
        store_empty=False,
        batch_id=1,
        uri_template=str(path),
        filter=ItemFilter(options),
        feed_options=options,
        spider=None,  # type: ignore[arg-type]
        exporters={"csv": CsvItemExporter, "own": Semicolons, "jsonlines": JsonLinesItemExporter},
        settings=crawler.settings,
        crawler=crawler,
    )
    if mend(slot):
        begin(slot, items[0])
    else:
        slot.start_exporting()
    exporter: Any = slot.exporter
    for item in items:
        exporter.export_item(item)
    slot.finish_exporting()
    slot.storage.store(slot.file)  # type: ignore[arg-type]


#: Options of a feed, and how Python reads what it writes.
DIALECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"format": "own"}, {"delimiter": ";", "quotechar": "'"}),
    *(
        ({"item_export_kwargs": kwargs}, kwargs)
        for kwargs in (
            {"delimiter": "\t", "lineterminator": "\n"},
            {"delimiter": "]", "quotechar": "^"},
            {"quoting": csv.QUOTE_ALL, "skipinitialspace": True},
            {"doublequote": False, "escapechar": "\\"},
            {"quoting": csv.QUOTE_NONE, "escapechar": "\\"},
        )
    ),
    ({"item_export_kwargs": {"join_multivalued": "\n"}}, {}),
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "gb18030"]
texts = st.text(st.sampled_from("ab ,;\"'\n\\]^\té表\U0001f600"), min_size=1, max_size=8)
olds = st.lists(st.lists(texts | st.just('""'), min_size=3, max_size=3), min_size=1, max_size=4)


@given(st.sampled_from(DIALECTS), st.sampled_from(ENCODINGS), olds, st.integers(0))
def test_csv_torn_at_any_byte_hides_no_later_row(
    tmp_path_factory: pytest.TempPathFactory,
    dialect: tuple[dict[str, Any], dict[str, Any]],
    encoding: str,
    old: list[list[str]],
    cut: int,
) -> None:
    path = tmp_path_factory.mktemp("torn") / "out.csv"
    options, reads = {**dialect[0], "encoding": encoding}, dialect[1]
    append(path, [dict(zip(FIELDS, row, strict=True)) for row in old], **options)
    path.write_bytes(path.read_bytes()[: cut % path.stat().st_size + 1])
    text = "a, b" if reads.get("quoting") == csv.QUOTE_NONE else "a\nb, \"c\"; 'd' é"
    new = [dict(zip(FIELDS, (f"new {n}", "x", text), strict=True)) for n in range(3)]
    append(path, new, **options)
    with path.open(encoding=encoding, newline="") as file:
        found = [row for row in csv.DictReader(file, **reads) if row["url"].startswith("new")]
    assert new == found


def test_crawlers_that_begin_together_move_a_torn_file_once(tmp_path: Path) -> None:
    """Each of them reads the old file, and some of them end once the first one has begun a new file."""
    path, together = tmp_path / "out.csv", 3
    path.write_bytes(b"url,title,text\r\n" + b'x,y,"a ""quoted"" text"\r\n' * 1_500_000 + b'x,"')
    with ThreadPoolExecutor(together) as crawlers:
        done = []
        for n in range(together):
            done.append(crawlers.submit(append, path, [NEW | {"url": str(n)}]))
            time.sleep(0.1)  # the next one reads longer
    for each in done:
        each.result()
    [aside] = tmp_path.glob("out.csv.torn-*")
    with path.open(encoding="utf-8", newline="") as file:
        found = [row["url"] for row in csv.DictReader(file) if row["url"] != "url"]
    assert [*map(str, range(together))] == sorted(found)
    assert aside.stat().st_size > 30_000_000


# After a crawl


class Rows(Project):
    """Three items, whose texts CSV has to quote."""

    pages: Sequence[str] = ("1", "2", "3")

    def parse(self, response: Any) -> Any:
        page = path_of(response)
        yield {"url": page, "title": f'say "hé" {page}', "text": self.text}

    text = "a\nb"


OLD = b"url,title,text\r\nold,good,t\r\n"
QUOTED = OLD + b'x,"ha'
#: What a file has when a crawl begins, and the options of its feed.
TORN: dict[str, tuple[bytes, dict[str, Any]]] = {
    "in a field": (QUOTED, {}),
    "at a line's end in a field": (OLD + b'x,y,"first line\n', {}),
    "in a header": (b"url,ti", {}),
    "no header": (b'old,good,t\r\nx,"a,', {"item_export_kwargs": {"include_headers_line": False}}),
    "in a character": (OLD + "x,é".encode()[:-1], {}),
    "UTF-16": (QUOTED.decode().encode("utf-16"), {"encoding": "utf-16"}),
    "half of UTF-16": (OLD.decode().encode("utf-16")[:-1], {"encoding": "utf-16"}),
    "whole gz": (gzip.compress(QUOTED), GZIP),
    "half a row in a whole gz": (gzip.compress(OLD + b"x,y"), GZIP),
}
HALF: dict[str, tuple[bytes, dict[str, Any]]] = {
    "in a row": (OLD + b"x,y", {}),
    "behind a quote": (OLD + b'x,"y""z"', {}),
    "in a row's end": (OLD + b"x,y,z\r", {}),
    "whole": (OLD, {}),
}


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize("torn", TORN)
def test_torn_csv_is_moved_aside_before_new_rows(project: Any, tmp_path: Path, torn: str) -> None:
    """Python's reader would take all that follows for one field (csvw#52)."""
    text, options = TORN[torn]
    path = tmp_path / "out.csv"
    path.write_bytes(text)
    [end] = project(Rows, FEEDS={str(path): {"format": "csv", **options}})
    [warning] = end.warnings("WARNING", str(path))
    [aside] = tmp_path.glob("out.csv.torn-*")
    assert (text, True) == (aside.read_bytes(), aside.name in warning)
    assert ["1", "2", "3"] == sorted(row[0] for row in rows_of(path, options) if "url" not in row)


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize("half", HALF)
def test_half_a_row_of_csv_stays_before_new_rows(project: Any, tmp_path: Path, half: str) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(HALF[half][0])
    [end] = project(Rows, FEEDS={str(path): {"format": "csv"}})
    assert int(half != "whole") == len(end.warnings("WARNING", "half a line"))
    assert ["out.csv"] == [each.name for each in tmp_path.glob("out*")]
    rows = [row[0] for row in rows_of(path, {}) if row[1:]]
    assert ["url", "old", "1", "2", "3"] == [rows[0], rows[1], *sorted(rows[-3:])]
    assert len(rows) <= 6


def rows_of(path: Path, options: dict[str, Any]) -> list[list[str]]:
    """The rows that Python's reader finds."""
    data = path.read_bytes()
    text = gzip.decompress(data) if "postprocessing" in options else data
    decoded = io.StringIO(text.decode(options.get("encoding", "utf-8")), newline="")
    return [*csv.reader(decoded)]


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize(
    "end", [b'{"url": "\xc3', b'{"url": "', b'{"url": {"a": 1}', b'{"url": "last"}']
)
def test_torn_json_lines_hide_no_new_line(project: Any, tmp_path: Path, end: bytes) -> None:
    """Half a character stops each reader of text (hermes-agent#112575), half a line some that look at all (eliza#30878)."""
    path, is_whole = tmp_path / "out.jl", end.endswith(b'"}')
    path.write_bytes(old := b'{"url": "old"}\n' + end)
    feeds = {str(path): {"format": "jsonlines", "encoding": "utf-8"}}
    [crawl] = project(Rows, FEEDS=feeds)
    assert 1 == len(crawl.warnings("WARNING", "half a line" if is_whole else "is torn", str(path)))
    found = [json.loads(line)["url"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert ["1", "2", "3"] == sorted(found[-3:])
    assert (["old", "last"] if is_whole else []) == found[:-3]
    aside = [each.read_bytes() for each in tmp_path.glob("out.jl.*")]
    assert ([] if is_whole else [old]) == aside


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("json", {}),
        ("json", GZIP),
        pytest.param("xml", {}, marks=pytest.mark.check),
        pytest.param("pickle", {}, marks=pytest.mark.check),
        pytest.param("marshal", {}, marks=pytest.mark.check),
    ],
)
def test_one_line_says_of_a_torn_document_what_is_known(
    project: Any, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """It is no older whole one, and nobody knows that a crawler was killed."""
    path = tmp_path / "out"
    path.write_bytes(gzip.compress(b"[{")[:-3] if options else b"[{")
    [end] = project(Rows, FEEDS={str(path): {"format": kind, **options}})
    [warning] = end.warnings("WARNING", str(path))
    words = "is torn, by a crawler that was killed or still runs" if options else "whole or not"
    assert words in warning
    [aside] = tmp_path.glob("out.*")
    assert aside.name in warning


# On a full disk, and killed in the midst of a write


class Large(Rows):
    """Has no room for all items if there is ballast, or is killed in the midst of one if there is a limit."""

    pages = tuple(f"{n:02}" for n in range(40))
    text = ('é "quoted", ' * 9 + "\n") * 300

    def links(self) -> Iterator[Any]:
        if ballast := self.settings.get("BALLAST"):
            Path(ballast).write_bytes(bytes(2_000_000))
        if limit := self.settings.get("LIMIT"):
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        return super().links()


def found_in(folder: Path, kind: str) -> set[str]:
    """The pages whose whole items a reader finds that takes one after the other."""
    found = set[str]()
    for path in folder.glob("out*"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if kind == "csv":
            rows = csv.DictReader(io.StringIO(text, newline=""))
            found |= {row["url"] for row in rows if row.get("text") == Large.text}
        elif kind == "xml":
            with suppress(ET.ParseError):
                for _, each in ET.iterparse(path):  # noqa: S314 - our own
                    found |= {each.text or ""} if each.tag == "url" else set()
        else:
            for line in re.split(r",?\n", text.strip("[]\n")):
                with suppress(ValueError):
                    found.add(json.loads(line)["url"])
    return found


def found_by_pandas_and_duckdb(path: Path, kind: str) -> list[set[str]]:
    """The pages in a file that two usual readers find."""
    try:
        import duckdb  # noqa: PLC0415 - for `make check` only
        import pandas as pd  # noqa: PLC0415
    except ImportError:
        missing("pandas or DuckDB")
    if kind == "csv":
        rows, relation = pd.read_csv(path, dtype=str), duckdb.read_csv(path, all_varchar=True)
    else:
        rows, relation = pd.read_json(path, lines=True, dtype=False), duckdb.read_json(path)
    return [{*rows["url"]}, {row[0] for row in relation.fetchall()}]


LATER = [pytest.param(kind, marks=pytest.mark.check) for kind in ("jsonlines", "json", "xml")]


@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize("kind", ["csv", *LATER])
def test_all_items_are_found_after_a_kill_in_a_write(
    project: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"out.{kind}"
    more = {"FEEDS": {str(path): {"format": kind, "encoding": "utf-8", "indent": 0}}}
    assert project(Large, LIMIT=700_000, **more) is None
    assert 700_000 == path.stat().st_size
    [end] = project(Large, **more)
    assert (1, {*Large.pages}) == (
        len(end.warnings("WARNING", str(path))),
        found_in(tmp_path, kind),
    )


@pytest.mark.check
@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize("kind", ["csv", "jsonlines", "json", "xml"])
def test_all_items_are_found_after_a_full_disk(project: Any, tmp_path: Path, kind: str) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2600k", "tmpfs") as disk:
        feeds = {str(disk / f"out.{kind}"): {"format": kind, "encoding": "utf-8", "indent": 0}}
        ballast = disk / "ballast"
        [first] = project(Large, FEEDS=feeds, BALLAST=str(ballast))
        assert first.stats.get("tbloom/done", 0) < len(Large.pages)
        ballast.unlink()
        project(Large, FEEDS=feeds)
        assert {*Large.pages} == found_in(disk, kind)


@pytest.mark.check
@pytest.mark.parametrize("mark", ["done, local"])
@pytest.mark.parametrize(
    ("kind", "torn"),
    [
        ("csv", QUOTED),
        ("csv", OLD + b"x,\xc3"),
        ("jsonlines", b'{"url": "old", "title": "\xc3'),
        ("jsonlines", b'{"url": "old"}\n{"url": "'),
    ],
)
def test_pandas_and_duckdb_find_the_new_rows(
    project: Any, tmp_path: Path, kind: str, torn: bytes
) -> None:
    path = tmp_path / f"out.{kind}"
    path.write_bytes(torn)
    project(Rows, FEEDS={str(path): {"format": kind, "encoding": "utf-8"}})
    assert [{"1", "2", "3"}] * 2 == found_by_pandas_and_duckdb(path, kind)


# Feeds that each crawl replaces


class OneMore(Rows):
    pages = ("1", "4")


@pytest.mark.parametrize("mark", ["done, local"])
def test_a_crawl_says_that_it_replaces_older_items(project: Any, tmp_path: Path) -> None:
    """It has no items but those of its new pages (scrapy#5579). A file of another name in each crawl is not replaced."""
    replaced, kept = tmp_path / "out.jl", tmp_path / "kept.jl"
    overwrites = {"format": "jsonlines", "overwrite": True}
    feeds: dict[str, Any] = {str(replaced): overwrites, str(kept): {"format": "jsonlines"}}
    feeds[f"{tmp_path}/%(time)s.jl"] = feeds["stdout:"] = overwrites
    first, second = project(Rows, OneMore, FEEDS=feeds)
    assert [] == first.warnings("replaces")
    [warning] = second.warnings("WARNING", "replaces", "'overwrite': False", "%(time)s")
    assert str(replaced) in warning
    assert ["4"] == [json.loads(line)["url"] for line in replaced.read_text().splitlines()]
    assert 4 == len(kept.read_text().splitlines())
