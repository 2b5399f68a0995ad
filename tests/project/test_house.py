"""The house: its rooms, who may import whom, and what is public."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tbloom
from tbloom import TimeBloom

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "tbloom").rglob("*.py"))
}


def test_imports_point_downwards_and_each_library_has_its_rooms() -> None:
    """The contracts are in pyproject.toml."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_packages_all_names_what_it_imports() -> None:
    """``__all__`` is what the package imports, at once or when it is first used, and type checkers see the same."""
    tree = ast.parse(MODULES["tbloom"].read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tbloom.")
        for alias in node.names
    }
    assert sorted(homes) == tbloom.__all__
    assert set(homes) <= set(dir(tbloom))
    for name, module in homes.items():
        assert getattr(tbloom, name) is getattr(import_module(module), name)
    later = tbloom._MODULES.items()
    assert [] == [name for name, module in later if homes[name] != f"tbloom.{module}"]
    with pytest.raises(AttributeError, match="module 'tbloom' has no attribute 'TimeBlom'"):
        tbloom.TimeBlom  # noqa: B018 - looks it up


#: What a program does, and the packages that it does without.
UNUSED = {
    "import tbloom": "redis asyncio dataclasses",
    "import tbloom.errors, tbloom.window, tbloom.arguments": "redis asyncio",
    "from tbloom import LocalBloom; assert LocalBloom().add('a')": "redis asyncio",
    "from tbloom import TimeBloom; TimeBloom.from_url('redis://h', 'a')": "pyroaring isal sqlite3 rich",
    "from tbloom.distinct import DistinctCounter": "pyroaring",
    "from tbloom.cli import main; main(['--version'])": "redis mmh3",
    "from tbloom.cli import main; main(['plan'])": "redis",
    "import tbloom.demo.server": "scrapy",
}


@pytest.mark.check
@pytest.mark.parametrize("script", UNUSED)
def test_a_process_imports_only_what_it_uses(script: str) -> None:
    """redis-py takes a fifth of a second, which only stores on Redis need."""
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set() == {*UNUSED[script].split()} & {*done.stdout.split()}


#: By extra: its package, and what needs it.
EXTRAS = [
    ("scrapy", "scrapy", "import tbloom.scrapy"),
    ("metrics", "prometheus_client", "import tbloom.metrics"),
    ("pages", "isal", "import tbloom.pages"),
    ("distinct", "pyroaring", "from tbloom.distinct.roaring import bitmaps; bitmaps()"),
    *(
        (extra, package, f"from tbloom.cli import main; print(main({words}))")
        for extra, package, words in [
            ("scrapy", "scrapy", ["push", "news"]),
            ("metrics", "prometheus_client", ["metrics", "news"]),
            ("cli", "jinja2", ["watch", "NAME", "--once", "-"]),
            ("pages", "isal", ["pages", "ls", "store"]),
            ("demo", "scrapy", ["demo"]),
        ]
    ),
]


@pytest.mark.check
@pytest.mark.parametrize("case", EXTRAS)
def test_an_extra_is_named_where_its_own_package_is_missing(
    case: tuple[str, str, str], tmp_path: Path, url: str, name: str
) -> None:
    """A package that is there, but lacks another one, is no reason to install the extra."""
    extra, package, script = case
    project = {"SCRAPY_SETTINGS_MODULE": "settings"}  # else a command needs no Scrapy
    advice = f"pip install 'tbloom[{extra}]'"
    (tmp_path / package).mkdir()
    TimeBloom.from_url(url, name).add("a")  # for the page
    for content in "raise ModuleNotFoundError(__name__, name=__name__)", "import gone":
        (tmp_path / package / "__init__.py").write_text(content)
        done = subprocess.run(
            [sys.executable, "-c", script.replace("NAME", name)],
            env={**os.environ, **project, "PYTHONPATH": str(tmp_path), "TBLOOM_URL": url},
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (advice in done.stderr) == ("gone" not in content)
        assert ("No module named 'gone'" in done.stderr) == ("gone" in content)
