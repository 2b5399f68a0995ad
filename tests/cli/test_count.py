"""``tbloom count export``: many members as a table, by pyarrow too. (The rest of ``tbloom count``: recorded/count.txt, slices.txt.)"""

from __future__ import annotations

import csv
from pathlib import Path

from pyarrow import ipc, parquet

from tbloom.distinct import DistinctCounter
from tests.helpers.commands import tbloom

READ = {
    "parquet": parquet.read_table,
    "arrow": lambda file: ipc.open_file(file).read_all(),
}


def test_ids_and_members_are_a_table(own_url: str, tmp_path: Path) -> None:
    """As CSV, and by pyarrow."""
    pages = DistinctCounter.from_url(own_url, "pages", keep_members=True)
    members = ["plain", "ü", 'a "quoted", one', "two words", *(f"{i}" for i in range(20_000))]
    pages.add_many(members)
    expected = sorted(pages.members().pairs())
    assert sorted(members) == sorted(member for _, member in expected)
    for suffix in ("csv", *READ):
        words = ["pages", "--members", tmp_path / f"pages.{suffix}"]
        assert tbloom("count", "export", "--url", own_url, *words).returncode == 0
    text = (tmp_path / "pages.csv").read_bytes().decode()
    assert "\r" not in text
    head, *rows = csv.reader(text.splitlines())
    assert ["id", "member"] == head
    assert expected == sorted((int(id), member) for id, member in rows)
    for suffix, read in READ.items():
        found = read(str(tmp_path / f"pages.{suffix}"))
        assert ["uint32", "string"] == [str(field.type) for field in found.schema]
        columns = (found[column].to_pylist() for column in ("id", "member"))
        assert expected == sorted(zip(*columns, strict=True))
