"""The benchmarks' page: its commands exist, a run of some sections keeps the others, the page store's section shows its figures."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.making import missing

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
PAGE = ROOT / "docs" / "benchmarks.md"
#: What the page is written from.
TEMPLATES = (BENCH / "template.py", BENCH / "pages_text.py", BENCH / "large_text.py")


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def sections() -> set[str]:
    """The names that ``run.py`` knows; its imports need packages that the tests don't."""
    for node in ast.parse((BENCH / "run.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SECTIONS":
            assert isinstance(node.value, ast.Dict)
            return {ast.literal_eval(key) for key in node.value.keys if key}
    raise AssertionError("run.py has no SECTIONS")


@pytest.mark.parametrize("path", [PAGE, *TEMPLATES], ids=lambda path: path.name)
def test_every_command_that_is_named_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"--only (\w+)", text)) - sections() == set()
    for script in re.findall(r"`python (\S+\.py)", text):
        assert (ROOT / script).is_file(), script


def test_every_section_names_its_command() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    assert sections() == set(re.findall(r"--only (\w+)", text))


def real_pages() -> Any:
    if not DOCUMENTATION.is_dir():
        missing("Debian's package python3.11-doc")
    from stored import RealPages  # noqa: PLC0415 - of bench

    return RealPages(30)


def of_few_pages(folder: Path) -> dict[str, Any]:
    """All figures of the section, with few pages."""
    from pages import measure  # noqa: PLC0415 - of bench

    return measure(
        folder,
        real_pages(),
        sizes=[20, 40],
        gets=10,
        rounds=3,
        looked_through=20,
        cached=20,
        cached_rounds=2,
        sliced_pages=20,
    )


@pytest.mark.check
def test_the_section_on_pages_shows_all_its_figures(tmp_path: Path) -> None:
    found = of_few_pages(tmp_path)
    assert {"20", "40"} == {path.name for path in tmp_path.iterdir()}, (
        "only the stores are left on the disk"
    )
    import pages_text  # noqa: PLC0415 - of bench

    for table in pages_text.tables(found):
        assert {len(table.header)} == {len(row) for row in table.rows}
        assert table.markdown() in pages_text.text(found)
    assert [20, 40] == [row["pages"] for row in found["growth"]["rows"]]
    assert found["growth"]["rows"][0]["ratio"] == 1
    assert {row["name"] for row in found["peers"]["rows"]} >= {pages_text.OURS, pages_text.FILES}
    assert [1, 7, 30, 168] == [row["slices"] for row in found["sliced"]["rows"]]
    assert found["compressors"]["ours"] in [row["name"] for row in found["compressors"]["rows"]]


def test_a_get_that_finds_another_page_stops_the_bench() -> None:
    from stored import timed  # noqa: PLC0415 - of bench

    with pytest.raises(AssertionError, match="3, not 4"):
        timed(len, ["a", "bc"], 4)


def test_a_faster_peer_is_named() -> None:
    import pages_text  # noqa: PLC0415 - of bench

    rows = [
        {"name": pages_text.OURS, "put": 2.0, "get": 1.0, "cold": 1.0},
        {"name": "tbloom, itself", "put": 1.0, "get": 0.5, "cold": 1.0},
        {"name": "quick", "put": 1.0, "get": 1.5, "cold": 0.5},
    ]
    expected = [
        "Faster than `PageCacheStorage` to store a page: quick (2.0 x).",
        "None of them is faster to get one.",
        "Faster than `PageCacheStorage` to get one from the disk: quick (2.0 x).",
    ]
    assert expected == [*pages_text.faster({"rows": rows})]


def test_small_pages_are_measured_and_shown(tmp_path: Path) -> None:
    import pages_small  # noqa: PLC0415 - of bench
    import pages_text  # noqa: PLC0415 - of bench

    found = pages_small.small(tmp_path / "store", 50)
    assert (50, 10) == (found["pages"], len(found["part_seconds"]))
    assert found["disk_bytes"] > 50 * found["body_bytes"] / 2  # the bodies hardly compress
    assert "50 pages with bodies of 200 bytes" in pages_text.of_small(found)


def test_the_measured_small_pages_are_those_of_the_command_beside_them() -> None:
    import pages_text  # noqa: PLC0415 - of bench

    pages = json.loads(pages_text.SMALL.read_text(encoding="utf-8"))["pages"]
    assert f"pages_small.py {pages:_}`" in pages_text.TEMPLATE


@pytest.mark.check
def test_large_pages_are_measured_and_shown(tmp_path: Path) -> None:
    import large_text  # noqa: PLC0415 - of bench
    import pages_large  # noqa: PLC0415 - of bench
    from made import MadePages  # noqa: PLC0415 - of bench

    made = MadePages(real_pages())
    assert len({made.body(number) for number in range(100)}) == 100
    found = pages_large.large(tmp_path / "store", made, 100)
    assert found["like"]["made"] == pytest.approx(found["like"]["real"], rel=0.2)  # of few pages
    assert "100 pages" in large_text.text(found)


def test_the_measured_large_pages_are_those_of_the_command_beside_them() -> None:
    import large_text  # noqa: PLC0415 - of bench
    import pages_text  # noqa: PLC0415 - of bench

    of = json.loads(pages_text.LARGE.read_text(encoding="utf-8"))
    gigabytes = re.search(r"pages_large.py (\d+e9) ", large_text.TEMPLATE)
    assert gigabytes is not None
    assert of["body_bytes"] == pytest.approx(float(gigabytes[1]), rel=0.001)
    # The gets are of pages that were never asked for, and take at most twice as long as reads of the disk.
    assert of["gets"] * of["rounds"] == 10_000
    assert of["ways"]["get"]["total"] <= 2 * of["ways"]["read"]["total"]


def test_the_plan_is_that_of_the_measured_stores() -> None:
    """Within a tenth."""
    import large_text  # noqa: PLC0415 - of bench
    import pages_text  # noqa: PLC0415 - of bench

    small, large = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (pages_text.SMALL, pages_text.LARGE)
    )
    table = large_text.compared({"rows": []}, 0, small, large)
    ratios = [float(row[column]) for row in table.rows for column in (3, 6)]
    assert ratios == pytest.approx([1] * 4, abs=0.1)


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ({"pages": 10**6, "get": 299e-6, "ratio": 1.29}, ["yes", "yes"]),
        ({"pages": 10**6, "get": 301e-6, "ratio": 1.31}, ["**no**", "**no**"]),
        ({"pages": 10**4, "get": 1e-6, "ratio": 1}, ["", ""]),
    ],
)
def test_the_goals_of_the_page_store_are_checked_among_a_million_pages(
    row: dict[str, float], holds: list[str]
) -> None:
    pytest.importorskip("pottery", reason="goals.py needs the group bench")
    pytest.importorskip("rbloom", reason="goals.py needs the group bench")
    import goals  # noqa: PLC0415 - of bench

    table = goals.table({"pages": {"growth": {"rows": [row]}}})
    assert holds == [row[-1] for row in table.rows if "PageStore" in row[0]]


@pytest.mark.parametrize("duplicates", [0, 50, 95])
def test_rounds_have_their_share_of_items_that_were_asked_before(duplicates: int) -> None:
    from streams import rounds_of  # noqa: PLC0415 - of bench

    stream = rounds_of("test", 1000, duplicates)
    asked = set(next(stream)[0])
    for items, truth in (next(stream), next(stream)):
        assert 1000 - 10 * duplicates == sum(truth)
        for item, is_new in zip(items, truth, strict=True):
            assert (item not in asked) is is_new
            asked.add(item)


def test_the_goals_of_adds_are_checked_on_the_main_server() -> None:
    pytest.importorskip("pottery", reason="goals.py needs the group bench")
    import goals  # noqa: PLC0415 - of bench

    rows = [
        {"on": on, "name": goals.ADD_MANY, "duplicates": 50, "placement": "", "sent": sent}
        for on, sent in (("main", 29), ("other", 99))
    ]
    table = goals.table({"adding": {"servers": ["main", "other"], "rows": rows}})
    assert [["<= 32 bytes", "29.00 bytes", "yes"]] == [r[1:] for r in table.rows if "bytes" in r[1]]


def of_tasks() -> dict[str, Any]:
    """Figures of a run of the section on tasks and threads alone."""
    import together  # noqa: PLC0415 - of bench

    costs = dict.fromkeys(("elapsed", "client", "client_ratio", "commands", "server", "sent"), 1.0)
    rows = [
        {"name": together.ASYNC_ADD, "placement": "", "count": count, **figures, **costs}
        for count, figures in (
            (1, {"ratio": 0.79, "to_one": 1.0}),
            (100, {"ratio": 5.0, "to_one": 6.0}),
        )
    ]
    about = {"when": "2030-01-02T03:04+00:00", "machine": "M(R), 2 cores"}
    return {"quick": False, "about": about, "asyncio": {"rounds": 7, "items": 4000, "rows": rows}}


@pytest.fixture
def needs_the_contenders() -> None:
    for module in ("pottery", "rbloom"):
        pytest.importorskip(module, reason="needs the group bench")


@pytest.mark.usefixtures("needs_the_contenders")
def test_the_goals_of_asyncio() -> None:
    import goals  # noqa: PLC0415 - of bench

    rows = [row for row in goals.table(of_tasks()).rows if row[0].startswith("asyncio")]
    assert ["**no**", "yes", "yes"] == [row[-1] for row in rows]


def test_without_figures_the_page_stays() -> None:
    import template  # noqa: PLC0415 - of bench

    page = PAGE.read_text(encoding="utf-8")
    assert page == template.filled({}, page)


@pytest.mark.usefixtures("needs_the_contenders")
def test_a_run_of_one_section_replaces_its_part_of_the_page() -> None:
    import page  # noqa: PLC0415 - of bench

    found, former = of_tasks(), PAGE.read_text(encoding="utf-8")
    new = page.text(found, former)
    assert "7 rounds of 4,000 items, half of them seen before. Each task" in new
    assert "tasks | 100 | 1,000,000 | 5.00 | 6.00 |" in new
    assert "| >= 5 x | 5.00 x | yes |" in new
    assert new.endswith(
        " (`--only asyncio` was measured by itself on 2030-01-02, on M(R), 2 cores.)\n"
    )
    assert former.partition("## An add")[0] == new.partition("## An add")[0]
    assert new == page.text(found, new)
