"""tbloom imported from a zip file, as zipapps, PEX and some clouds do it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import os, runpy, sys
import tbloom
from tbloom.cli import main
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
os.environ["_TBLOOM_COMPLETE"] = "bash_source"
main([])
del os.environ["_TBLOOM_COMPLETE"]
sys.argv[1:] = ["--help"]
runpy.run_module("tbloom", run_name="__main__")
"""


def test_the_package_works_in_a_zip_file(url: str, name: str, tmp_path: Path) -> None:
    """Its folders are those of the wheel, where the scripts are in the package (great_expectations#3772)."""
    archive = tmp_path / "tbloom.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for folder, within in (ROOT / "tbloom", "tbloom"), (ROOT / "lua", "tbloom/lua"):
            for file in folder.rglob("*.*"):
                if file.suffix != ".pyc":
                    made.write(file, Path(within) / file.relative_to(folder))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(archive), url, name],
        check=False, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(archive)},
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert done.stdout.startswith("True False\n" * 3)
    assert "_TBLOOM_COMPLETE=bash_complete" in done.stdout
    assert "Usage: tbloom" in done.stdout
