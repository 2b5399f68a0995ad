"""The benchmarks: their pages name a command for each table, and a run replaces its own tables only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import PAGES, SECTIONS
from bench.contest import rounds_of
from bench.tables import filled, marked

ROOT = Path(__file__).parents[2]


def test_each_table_has_its_command_beside_it() -> None:
    """The last command before it measures the section that its name begins with."""
    named = set()
    for page in PAGES:
        command = ""
        for only, table in re.findall(r'--only (\w+)"|<!--table:([\w-]+)-->', page.read_text()):
            command = only or command
            if table not in ("", "versions"):
                assert command == table.partition("-")[0]
                named.add(command)
    assert SECTIONS.keys() == named


def test_a_run_replaces_its_tables_and_nothing_else() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    assert len(marked(page)) == page.count("<!--end-->") == len(set(marked(page)))
    assert page == filled(page, {})
    new = filled(page, {"asyncio": "| new |", "of another page": "| other |"})
    before, after = page.split("<!--table:asyncio-->")
    assert new == f"{before}<!--table:asyncio-->\n\n| new |\n\n<!--end-->" + after.partition("<!--end-->")[2]  # fmt: skip
    assert new == filled(new, {"asyncio": "| new |"})


@pytest.mark.parametrize("duplicates", [0, 50, 95])
def test_rounds_have_their_share_of_items_that_were_asked_before(duplicates: int) -> None:
    stream = rounds_of("test", 1000, duplicates)
    asked = set(next(stream)[0])
    for items, truth in (next(stream), next(stream)):
        assert 1000 - 10 * duplicates == sum(truth)
        for item, is_new in zip(items, truth, strict=True):
            assert (item not in asked) is is_new
            asked.add(item)


def test_the_steps_are_those_of_the_script() -> None:
    pytest.importorskip("scrapy_redis_bloomfilter", reason="needs the group bench")
    from bench import steps  # noqa: PLC0415 - see above

    texts = steps.scripts()
    assert len(texts) == len(set(texts.values()))


@pytest.mark.check
def test_a_quick_run_prints_and_writes_no_page() -> None:
    for module in ("scrapy_redis_bloomfilter", "rbloom"):
        pytest.importorskip(module, reason="needs the group bench")
    before = [page.read_bytes() for page in PAGES]
    command = [sys.executable, "-m", "bench", "--quick", "--only", "scaling", "footprint"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "\nscaling\n" in done.stdout
    assert "tbloom, 7 slices" in done.stdout
    assert before == [page.read_bytes() for page in PAGES]
