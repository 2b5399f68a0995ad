"""tbloom imported from a zip file, as zipapps, PEX and some clouds do it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys
import tbloom
from tbloom.distinct import DistinctCounter
zip, url, name = sys.argv[1:]
assert tbloom.__file__.startswith(zip)
for seen in (
    tbloom.TimeBloom.from_url(url, name),
    tbloom.ExactFilter.from_url(url, f"{name}-exact"),
    DistinctCounter.from_url(url, "one", f"{name}-counters"),
):
    print(seen.add("a"), seen.add("a"))
    seen.close()
"""


def test_the_package_works_in_a_zip_file(url: str, name: str, tmp_path: Path) -> None:
    """Its folders are those of the wheel, where the scripts are in the package (great_expectations#3772)."""
    archive = tmp_path / "tbloom.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for folder, within in (ROOT / "tbloom", "tbloom"), (ROOT / "lua", "tbloom/lua"):
            for file in folder.rglob("*.*"):
                if file.suffix != ".pyc":
                    made.write(file, Path(within) / file.relative_to(folder))
    environment = {**os.environ, "PYTHONPATH": str(archive)}

    def ended(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            check=False, capture_output=True, text=True, env=environment, cwd=tmp_path,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        return done.stdout

    assert "True False\n" * 3 == ended("-c", _PROGRAM, str(archive), url, name)
    assert "Usage: tbloom" in ended("-m", "tbloom", "--help")
    assert "tbloom" in ended("-m", "tbloom", "completion", "bash")
