"""The benchmarks: one file has all figures of one run, and the documents show these and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import results
from bench.__main__ import SECTIONS
from tbloom.cli.commands.plan import _PAGE_BYTES, _SET_BYTES

ROOT = Path(__file__).parents[2]
#: A time, a rate, or the bytes of something. Only docs/format.md has such numbers that are not measured.
FIGURE = re.compile(
    r"[\d.,]*\d ?(?:(?:us|µs|ms)\b|\w+(?:/s\b| a second\b)|bytes (?:a|an|per) (?:item|link|page|URL))"
)
MEASURED = [page for page in results.PAGES if page.name != "format.md"]


@pytest.mark.parametrize("page", results.PAGES, ids=lambda page: page.name)
def test_documents_show_the_figures_of_the_file(page: Path) -> None:
    """``python -m bench --fill`` puts them there."""
    text = page.read_text(encoding="utf-8")
    assert results.filled(text, results.read()) == text


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.name)
def test_documents_show_no_other_figures(page: Path) -> None:
    """README's bytes per URL are those of the file, rounded."""
    footprint = results.read().tables["footprint"].row("tbloom, 7 slices")["bytes per item"]
    text = results.without_places(page.read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert {*FIGURE.findall(text)} <= {f"{footprint:.1f} bytes per URL"}


def test_each_table_of_the_file_is_shown() -> None:
    shown = {name for page in results.PAGES for name in results.marked(page.read_text("utf-8"))}
    assert shown == results.read().tables.keys() | {"run"}


def test_the_file_has_each_section_and_the_page_its_command() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [*SECTIONS] == re.findall(r"^`--only (\w+)`", text, re.MULTILINE)
    assert SECTIONS.keys() == {name.partition("-")[0] for name in results.read().tables}


def test_plan_knows_what_a_set_and_a_waiting_page_take() -> None:
    tables = results.read().tables
    a_set = tables["footprint"].row("scrapy-redis: SADD")["bytes per item"]
    assert _SET_BYTES == pytest.approx(a_set, rel=0.03)
    page = tables["fleet-waiting"].row('"done"')["memory of a waiting page (bytes)"]
    assert _PAGE_BYTES == pytest.approx(page, rel=0.03)
