"""The house: who may import whom, what is public, and how its files look."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tbloom
from tbloom.engine.scripts import Script

ROOT = Path(__file__).parents[2]
FLOORS = [  # lowest first
    {"errors", "version"},
    {
        "circuit",
        "homememory",
        "window",
        "sizing",
        "measured",
        "hashing",
        "items",
        "keys",
        "scripts",
        "clock",
        "lanes",
    },
    {"batches", "config", "info", "calls"},
    {"layout", "tree"},
    {"survey", "plan"},
    {"reconfigure"},
    {"exchange"},
    {"bucketed", "conversation", "holdings"},
    {"claims", "importing"},
    {"sessions"},
    {"protocol"},
    {"failures", "heart", "wire", "clients"},
    {"caller"},
    {"syncdriver", "aiodriver"},
    {"base"},
    {"sync", "aio"},
    {"distinct", "exact", "local", "pages"},
    {"metrics"},
    {"scrapy", "cli"},
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
#: Up to here a module imports from lower floors only; above, also from its own.
STRICT = FLOOR["window"]

MODULES = sorted((ROOT / "tbloom").rglob("*.py"))
SHARED = ROOT / "lua" / "shared.lua"
SCRIPTS = sorted(set((ROOT / "lua").rglob("*.lua")) - {SHARED})
each_module = pytest.mark.parametrize(
    "path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES]
)
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=[path.name for path in SCRIPTS])


def room(path: Path) -> str:
    """The module or subpackage of tbloom that a file belongs to."""
    return path.relative_to(ROOT / "tbloom").parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The full name of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(path: Path) -> Iterator[str]:
    """The rooms of tbloom that a file imports from; the package's own names live in sync and aio."""
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package == "tbloom":
            first = rest.split(".")[0]
            yield first if first in FLOOR else "sync"


def contract_and_body(path: Path) -> tuple[str, str]:
    """A script's opening comment, and all the rest."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(lines[:end]), "\n".join(lines[end:])


@each_module
def test_imports_point_downwards(path: Path) -> None:
    """A file imports from floors below its own, and from its own only where that is allowed."""
    if path == ROOT / "tbloom" / "__init__.py":
        return
    own = FLOOR[room(path)]
    upwards = [name for name in rooms(path) if FLOOR[name] > own]
    beside = [name for name in rooms(path) if FLOOR[name] == own <= STRICT]
    assert ([], []) == (upwards, beside)


@each_module
def test_only_the_drivers_know_redis_and_scrapy(path: Path) -> None:
    """Nothing below ``failures`` imports redis, nothing below the drivers' users imports scrapy."""
    if path == ROOT / "tbloom" / "__init__.py":
        return
    foreign = {name.split(".")[0] for name in imports(path)}
    own = FLOOR[room(path)]
    banned = {"redis"} if own < FLOOR["failures"] else set()
    banned |= {"scrapy", "scrapy_redis"} if own < FLOOR["scrapy"] else set()
    assert set() == foreign & banned


@each_module
def test_only_the_page_store_knows_its_libraries(path: Path) -> None:
    """The extra ``pages`` need not be installed where no pages are kept."""
    foreign = {name.split(".")[0] for name in imports(path)}
    assert room(path) == "pages" or set() == foreign & {"isal", "lmdb", "warcio"}


def test_the_page_store_s_map_is_the_truth() -> None:
    """Its ``__init__`` names every file of the room once."""
    folder = ROOT / "tbloom" / "pages"
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    names = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    assert sorted(names) == sorted(re.findall(r"\b\w+\.py\b", text))


def test_all_is_the_truth() -> None:
    """``__all__`` is sorted, and is every public name that the package binds."""
    public = [
        name
        for name, value in vars(tbloom).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ] + ["__version__"]
    assert sorted(public) == tbloom.__all__


@each_module
def test_modules_are_short(path: Path) -> None:
    """A module over 300 lines is two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_there_are_scripts() -> None:
    """The scripts are where these tests look for them."""
    assert {"add.lua", "contains.lua", "clear.lua"} <= {path.name for path in SCRIPTS}


@each_script
def test_script_opens_with_its_contract(path: Path) -> None:
    """A script's first comment is its contract: verb, keys, arguments, reply, errors."""
    contract, _ = contract_and_body(path)
    assert re.match(rf"-- (\w+_)?{path.stem}: ", contract)
    assert [] == [word for word in ("KEYS[1]", "Reply", "Errors") if word not in contract]


@each_script
def test_contract_has_every_key_and_argument(path: Path) -> None:
    """Each KEYS[n] and ARGV[n] that the body uses is in the contract; if it loops, so is [n..]."""
    contract, body = contract_and_body(path)
    used = set(re.findall(r"\b(?:KEYS|ARGV)\[\d+\]", body))
    assert set() == {index for index in used if index not in contract}
    looped = set(re.findall(r"#(KEYS|ARGV)\b", body) + re.findall(r"\b(KEYS|ARGV)\[[A-Za-z]", body))
    looped |= set(re.findall(r"unpack\((KEYS|ARGV)\b", body))
    looped |= {"KEYS"} if "is_in_any(" in body else set()  # shared.lua's, which loops
    assert looped == set(re.findall(r"\b(KEYS|ARGV)\[\d+\.\.\]", contract))


def test_what_scripts_share_is_used() -> None:
    """Each function of shared.lua is called by a script, or by another one of its own."""
    text = SHARED.read_text(encoding="utf-8")
    bodies = [contract_and_body(path)[1] for path in SCRIPTS]
    for name in re.findall(r"local function (\w+)", text):
        assert sum(body.count(f"{name}(") for body in [*bodies, text]) > 1, name


@each_script
def test_script_is_loaded_with_what_it_calls(path: Path) -> None:
    """And with nothing else of shared.lua."""
    text = Script(path.relative_to(ROOT / "lua").with_suffix("").as_posix()).text
    for name in re.findall(r"local function (\w+)", SHARED.read_text(encoding="utf-8")):
        is_called = re.search(rf"(?<!function )\b{name}\(", text) is not None
        assert (f"local function {name}(" in text) == is_called, name


@each_script
def test_scripts_never_search_the_keyspace(path: Path) -> None:
    """No script uses KEYS * or SCAN: a cluster's scripts touch declared keys only."""
    text = path.read_text(encoding="utf-8")
    assert [] == re.findall(r"""KEYS \*|call\(\s*['"](?:KEYS|SCAN)['"]""", text, re.IGNORECASE)
