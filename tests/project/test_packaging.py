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

from tests.helpers.making import missing

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
SCRIPTS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua")}
PYTHON = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tbloom").rglob("*.py")}
USE = (
    "from tbloom.engine.scripts import Script; import tbloom;"
    "print(tbloom.__file__, Script('bloom/add').sha)"
)
#: What a process without the extra ``pages`` can do, and what it is told.
WITHOUT_PAGES = """
import sys
for name in ("isal", "lmdb", "warcio"):
    sys.modules[name] = None
import tbloom, tbloom.cli
from tbloom import LocalBloom, StoreLocked
assert LocalBloom(capacity=100).add("a")
try:
    import tbloom.pages
except ModuleNotFoundError as error:
    print(error.name, error)
"""


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
    assert PYTHON == {name for name in names if name.startswith("tbloom/") and name.endswith(".py")}
    assert SCRIPTS == {
        name.removeprefix("tbloom/") for name in names if name.startswith("tbloom/lua/")
    }
    assert {"tbloom/py.typed", "tbloom/cli/commands/report/report.html"} <= set(names)
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
    assert SCRIPTS <= names
    assert {"LICENSE", "README.md", "setup.cfg", "pyproject.toml"} <= names


def test_without_the_extra_pages() -> None:
    """All else works; the error names what is missing, as with the extra ``metrics``."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PAGES],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("", 0) == (done.stderr, done.returncode)
    missing = done.stdout.partition(" ")[0].partition(".")[0]
    assert missing in {"isal", "lmdb", "warcio"}
    assert done.stdout.endswith(f" tbloom.pages needs {missing}: pip install 'tbloom[pages]'\n")


def test_importing_tbloom_does_not_import_the_page_store() -> None:
    """It would take a tenth of a second, and three libraries."""
    script = "import sys, tbloom; sys.exit(any(n.split('.')[0] in {'isal', 'lmdb', 'warcio'} for n in sys.modules))"
    assert 0 == subprocess.run([sys.executable, "-c", script], check=False).returncode
