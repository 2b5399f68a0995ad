"""The benchmarks: one file has all figures, the documents show these, and each section of the page has its command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import results
from bench.__main__ import SECTIONS
from bench.contest import rounds_of
from bench.results import Result
from bench.tables import Table
from tbloom.cli.commands import plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", results.PAGES, ids=lambda page: page.name)
def test_documents_show_the_figures_of_the_file(page: Path) -> None:
    """``python -m bench --fill`` puts them there."""
    text = page.read_text(encoding="utf-8")
    assert results.filled(text, results.read()) == text


def test_each_table_of_the_file_is_shown() -> None:
    shown = {name for page in results.PAGES for name in results.marked(page.read_text("utf-8"))}
    assert shown - {"compared"} == results.read().keys()


def test_each_table_has_its_command_beside_it() -> None:
    """The last command before it measures the section that its name begins with."""
    named = set()
    for page in (ROOT / "docs" / name for name in ("benchmarks.md", "scaling.md")):
        command = ""
        for only, table in re.findall(r'--only (\w+)"|<!--table:([\w-]+)-->', page.read_text()):
            command = only or command
            if table not in ("", "versions"):
                assert command == table.partition("-")[0]
                named.add(command)
    assert SECTIONS.keys() == named


def test_places_for_tables_and_figures_are_filled_and_all_else_is_left() -> None:
    speed = Table("speed", {"": "", "per second": ",.0f"}, [["`add`", 1234.5], ["`get`", None]])
    measured = {**results.read(), "speed": Result(speed, {"date": "2026-11-24", "idle": True})}
    page = (
        "a <!--table:speed-->old<!--end--> b <!--figure:speed; add; per second-->1<!--end--> c "
        "<!--figure:speed; add; per second; .1e--><!--end--> d"
    )
    filled = results.filled(page, measured)
    assert filled == (
        "a <!--table:speed-->\n\n"
        "|  | per second |\n|---|---:|\n| `add` | 1,234 |\n| `get` |  |\n\n*2026-11-24, idle.*\n\n"
        "<!--end--> b <!--figure:speed; add; per second-->1,234<!--end--> c "
        "<!--figure:speed; add; per second; .1e-->1.2e+03<!--end--> d"
    )
    assert results.filled(filled, measured) == filled


def test_a_run_replaces_its_tables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "benchmarks.json"
    file.write_text(results.FILE.read_text())
    monkeypatch.setattr(results, "FILE", file)
    monkeypatch.setattr(results, "PAGES", [])
    before = results.read()
    results.store([Table("links", {"": "", "s": ".1f"}, [["tbloom", 1 / 3]])], idle=False)
    after = results.read()
    assert after.pop("links").markdown().splitlines()[2:] == ["| tbloom | 0.3 |", "", "*busy.*"]
    del before["links"]
    assert before == after


def test_plan_compares_with_what_was_measured() -> None:
    measured = results.read()["footprint"].table
    for computed, name in (
        (plan._SET_BYTES, "scrapy-redis: SADD"),
        (plan._KEY_BYTES, "SET NX EX, a key each"),
    ):
        assert computed == pytest.approx(measured.row(name)["bytes per item"], rel=0.03)


@pytest.mark.parametrize("duplicates", [0, 50, 95])
def test_rounds_have_their_share_of_items_that_were_asked_before(duplicates: int) -> None:
    stream = rounds_of("test", 1000, duplicates)
    asked = set(next(stream)[0])
    for items, truth in (next(stream), next(stream)):
        assert 1000 - 10 * duplicates == sum(truth)
        for item, is_new in zip(items, truth, strict=True):
            assert (item not in asked) is is_new
            asked.add(item)


@pytest.mark.check
def test_a_quick_run_prints_and_writes_no_page() -> None:
    for module in ("scrapy_redis_bloomfilter", "rbloom"):
        pytest.importorskip(module, reason="needs the group bench")
    before = [page.read_bytes() for page in (results.FILE, *results.PAGES)]
    command = [sys.executable, "-m", "bench", "--quick", "--only", "scaling", "footprint"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "\nscaling\n" in done.stdout
    assert "tbloom, 7 slices" in done.stdout
    assert before == [page.read_bytes() for page in (results.FILE, *results.PAGES)]
