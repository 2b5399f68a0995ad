"""``tbloom count export``: members as a table, by pyarrow too. (The rest of ``tbloom count``: recorded/count.txt, slices.txt.)"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pyarrow import ipc, parquet

from tbloom.distinct import DistinctCounter
from tests.helpers.commands import refused, tbloom

READ = {
    "parquet": parquet.read_table,
    "arrow": lambda file: ipc.open_file(file).read_all(),
}


def export(url: str, name: str, to: object) -> str:
    """The output of ``tbloom count export``, which must succeed."""
    done = tbloom("count", "export", "--url", url, name, "--members", to)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def pages(own_url: str) -> DistinctCounter:
    return DistinctCounter.from_url(own_url, "pages", keep_members=True)


def test_ids_and_members_are_a_table(own_url: str, pages: DistinctCounter, tmp_path: Path) -> None:
    """As CSV, and by pyarrow."""
    members = ["plain", "ü", 'a "quoted", one', "two words", *(f"{i}" for i in range(20_000))]
    pages.add_many(members)
    expected = sorted(pages.members().pairs())
    assert sorted(members) == sorted(member for _, member in expected)
    export(own_url, "pages", tmp_path / "pages.csv")
    for text in ((tmp_path / "pages.csv").read_bytes().decode(), export(own_url, "pages", "-")):
        assert "\r" not in text
        head, *rows = csv.reader(text.splitlines())
        assert ["id", "member"] == head
        assert expected == sorted((int(id), member) for id, member in rows)
    for suffix, read in READ.items():
        export(own_url, "pages", tmp_path / f"pages.{suffix}")
        found = read(str(tmp_path / f"pages.{suffix}"))
        assert ["uint32", "string"] == [str(field.type) for field in found.schema]
        columns = (found[column].to_pylist() for column in ("id", "member"))
        assert expected == sorted(zip(*columns, strict=True))


def test_a_table_that_can_t_be_written_is_not_begun(
    own_url: str, pages: DistinctCounter, tmp_path: Path
) -> None:
    """Where a member is not UTF-8, the file of before stays; CSV has its bytes."""
    pages.add_many(["a", b"\xff"])
    table = tmp_path / "pages.parquet"
    table.write_text("before")
    done = tbloom("count", "export", "--url", own_url, "pages", "--members", table)
    refused(done, "is not UTF-8; only CSV can have it")
    assert [table] == [*tmp_path.iterdir()]
    assert "before" == table.read_text()
    export(own_url, "pages", tmp_path / "x")
    assert {b"id,member", b"0,a", b"1,\xff"} == {*(tmp_path / "x").read_bytes().split()}
