"""What is shipped works where it is installed: sdist and wheel, in clean environments.

The editable install is the one that all other tests run on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import missing

ROOT = Path(__file__).parents[1]
SCRIPTS = {f"{path.name}" for path in (ROOT / "lua").glob("*.lua")}
USE = (
    "from tbloom import scripts, TimeBloom; import tbloom; print(tbloom.__file__, scripts.ADD.sha)"
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of this checkout, and a wheel made from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "setuptools" in done.stderr:
        missing("PyPI, to build with")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_wheel_works_in_a_clean_environment(dist: Path, tmp_path: Path) -> None:
    """With redis and mmh3, and without the checkout."""
    [wheel] = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert SCRIPTS == {Path(name).name for name in names if name.startswith("tbloom/lua/")}
    assert {"tbloom/py.typed", "tbloom/cli/report.html"} <= set(names)
    assert {"tbloom", f"tbloom-{wheel.name.split('-')[1]}.dist-info"} == {
        n.split("/")[0] for n in names
    }
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=120)
    # On PYTHONPATH our dependencies are found, but not the editable install beside them.
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [python, "-c", USE], env={**os.environ, "PYTHONPATH": packages}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(environment))


def test_the_sdist_holds_all_that_a_build_needs(dist: Path) -> None:
    """(The wheel above was made from it.)"""
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"lua/{script}" for script in SCRIPTS} <= names
    assert {"LICENSE", "README.md", "setup.cfg", "pyproject.toml"} <= names
