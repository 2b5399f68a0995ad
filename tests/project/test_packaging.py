"""What is shipped works where it is installed: sdist and wheel, in clean environments.

The editable install is the one that all other tests run on.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tbloom.version import NEWEST_TESTED
from tests.helpers import website
from tests.helpers.making import made_once, missing

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
SCRIPTS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua")}
PYTHON = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tbloom").rglob("*.py")}
#: What a shell does with each extra alone, on the server TBLOOM_URL with the name NAME; "" is none.
STEPS = {
    "": """
python -c "import os, tbloom; assert tbloom.TimeBloom.from_url(os.environ['TBLOOM_URL'], '$NAME').add('a')"
python -c "import os, tbloom; assert tbloom.ExactFilter.from_url(os.environ['TBLOOM_URL'], '$NAME-exact').add('a')"
echo a > lines
tbloom plan --capacity 1000000
tbloom add $NAME-new lines --create
tbloom check $NAME-new --seen lines
tbloom list
tbloom list --json
tbloom info $NAME-new
tbloom export $NAME-new file
tbloom import file --replace
echo 61 > hex
tbloom migrate $NAME-new --from-seen hex
tbloom count list
""",
    "cli": """
echo a | tbloom add --create $NAME
tbloom watch $NAME --once page.html
""",
    "scrapy": """
cat > pages.py <<END
import scrapy
class Pages(scrapy.Spider):
    name, start_urls = "pages", ["data:,a"]
    def parse(self, response):
        return [scrapy.Request("data:,b"), scrapy.Request("data:,b")]
END
scrapy runspider pages.py -s 'ADDONS={"tbloom.scrapy.Addon": 500}' -s REDIS_URL=$TBLOOM_URL -s TBLOOM_KEY=$NAME 2> log
grep "'finish_reason': 'finished'" log
grep "'tbloom/busy': 3," log
""",
    "distinct": """
python -c "import os, tbloom.distinct as d; c = d.DistinctCounter.from_url(os.environ['TBLOOM_URL'], '$NAME', '$NAME-ids'); c.add('a'); assert c.members().to_roaring()"
""",
    "metrics": """
echo a | tbloom add --create $NAME
timeout --signal INT 5 tbloom metrics $NAME --port 0 || test $? = 124
""",
    "pages": """
echo a | tbloom pages put pages https://example.com/
tbloom pages get pages https://example.com/
""",
    "demo": "REDIS_URL=$TBLOOM_URL tbloom demo",
    "server": """
port=$(python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
for answer in "" "--seen"; do
    rm -f said
    tbloom server --port $port 2> said &
    trap "kill $! || true" EXIT
    until grep -s Serving said; do kill -0 $!; sleep 0.1; done
    echo a | tbloom ${answer:+check} ${answer:-add --create} $NAME --url redis://127.0.0.1:$port
    kill $!
    wait $!
done
""",
    "all": """
python -c "
import importlib, pkgutil, tbloom
for module in pkgutil.walk_packages(tbloom.__path__, 'tbloom.'):
    if not module.name.endswith('__main__'):
        importlib.import_module(module.name)"
""",
}


def uv(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What uv did; it finds the packages itself, and keeps them for the next environment."""
    return subprocess.run(
        [sys.executable, "-m", "uv", *words],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def build(folder: Path) -> None:
    """Makes an sdist of this checkout, and a wheel from that sdist, without a warning. (One would say that Python compiles nothing.)"""
    compiles = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = uv("build", "--out-dir", folder, ROOT, env=compiles)
    if done.returncode and "setuptools" in done.stderr:
        missing("PyPI, to build with")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [] == [line for line in said.splitlines() if "warning" in line.lower()]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of this checkout, and a wheel made from that sdist."""
    return made_once(tmp_path_factory, "dist", build)


def test_sdist_and_wheel_hold_the_package(dist: Path) -> None:
    """The wheel was made from the sdist, which so holds all that a build needs."""
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        folders = {name.split("/")[1] for name in tar.getnames() if name.count("/") > 1}
    assert {"lua", "tbloom", "tbloom.egg-info"} == folders
    [wheel] = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert PYTHON == {name for name in names if name.startswith("tbloom/") and name.endswith(".py")}
    lua = {name for name in names if name.startswith("tbloom/lua/")}
    assert {f"tbloom/{script}" for script in SCRIPTS} == lua
    assert {"tbloom/py.typed", "tbloom/cli/commands/watch.html"} <= set(names)
    [metadata] = importlib.metadata.distributions(path=[str(wheel)])
    assert {*STEPS} == {"", *metadata.metadata.get_all("Provides-Extra")}
    assert {"tbloom", f"tbloom-{wheel.name.split('-')[1]}.dist-info"} == {
        n.split("/")[0] for n in names
    }


@pytest.mark.parametrize("extra", STEPS)
def test_each_extra_works_alone(
    dist: Path, extra: str, url: str, name: str, tmp_path: Path
) -> None:
    """The wheel in a fresh environment, outside the checkout."""
    [wheel] = dist.glob("*.whl")
    done = uv(
        *("run", "--quiet", "--isolated", "--no-project", "--python", sys.executable),
        *("--with", f"tbloom[{extra}] @ {wheel.as_uri()}"),
        *("bash", "-euo", "pipefail", "-c", STEPS[extra]),
        cwd=tmp_path,
        env={**os.environ, "TBLOOM_URL": url, "NAME": name},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_demo_takes_packages_from_where_pip_is_told(tmp_path: Path) -> None:
    """A company's mirror that stands in pip's configuration only: uv#1404. This one is empty."""
    project, config = tmp_path / "tbloom", tmp_path / "pip.conf"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, project, ignore=left_out)
    uv(
        "venv", "--seed", "--python", sys.executable, project / ".venv"
    )  # with a pip that is new enough
    (project / ".venv" / ".pip").touch()
    with website.served(website.Page, asked=Counter()) as mirror:
        lines = [f"index-url = {mirror.url}/simple", "extra-index-url =", "find-links ="]
        config.write_text("\n".join(["[global]", *lines]), encoding="utf-8")
        done = subprocess.run(
            ["make", "demo"],
            cwd=project, env={"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": str(config)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert "No matching distribution found for setuptools" in done.stderr
    assert "/simple/setuptools/" in mirror.asked


def test_an_index_can_show_the_package(dist: Path) -> None:
    done = uv("tool", "run", "twine", "check", "--strict", *dist.glob("tbloom-*"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    "TBLOOM_NIGHTLY" not in os.environ,
    reason="a library's new release is no fault of a change: the nightly run tells of it",
)
def test_the_newest_versions_are_tested() -> None:
    """Those of NEWEST_TESTED that the index of packages offers for this Python."""
    words = ("pip", "compile", "--quiet", "--no-header", "--no-deps", "--python", sys.executable)
    done = uv(*words, "-", input="\n".join(NEWEST_TESTED))
    assert done.returncode == 0, done.stderr
    offered = re.findall(r"^(\w+)==((\d+)\.(\d+).*)", done.stdout, re.MULTILINE)
    assert {*NEWEST_TESTED} == {name for name, *_ in offered}
    newer = [
        f"{name} {version} is out: run `make test check` with it, and raise NEWEST_TESTED in tbloom/version.py"
        for name, version, major, minor in offered
        if (int(major), int(minor)) > NEWEST_TESTED[name]
    ]
    assert not newer, "\n".join(newer)
