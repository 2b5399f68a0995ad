"""The first steps of each kind of user, as the documents tell them: the built wheel, a fresh environment, an empty folder."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from tests.helpers.documents import ROOT, Runner, blocks
from tests.helpers.packages import install

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("away_from_midnight")]
DOCS = ROOT / "docs"
#: Prints the names and values of the log and the stats that count here.
CRAWL = r"""
(scrapy crawl news-spider {} 2>&1 || echo "exit code $?") |
    sed -nE 's/^.{{20}}(.tbloom.*(INFO|WARNING|ERROR).*)/\1/p; /Traceback|item_scr|exit code/p'
"""


@pytest.fixture
def runner(
    request: pytest.FixtureRequest, dist: Path, own_url: str, site: str, tmp_path: Path
) -> Runner:
    """Runs blocks where tbloom was installed with the extra of the test, or with none."""
    programs = install(dist, getattr(request, "param", ""), tmp_path / "home")
    (tmp_path / "empty").mkdir()
    return Runner(own_url, site, tmp_path / "empty", programs)


with_scrapy = pytest.mark.parametrize("runner", ["scrapy"], indirect=True)


def test_the_first_minutes_without_a_server_with_one_and_in_a_shell(runner: Runner) -> None:
    for block in takewhile(lambda block: block.file != "news.py", blocks(DOCS / "quickstart.md")):
        runner.run(block)
    assert "news  " in runner.shell("python -m tbloom list")
    assert "news  " not in runner.shell("tbloom clear news --yes && tbloom list")


@with_scrapy
def test_a_scrapy_project_from_its_first_command_to_its_first_mistake(runner: Runner) -> None:
    _make_project(runner)
    assert ", 0 items (0 in the newest), 0.00 MB, new, at " in _crawled(runner, 3)
    assert ", 2 items (2 in the newest), 0.04 MB, existing, at " in _crawled(runner, 1)
    local = "-s TBLOOM_STORE=local -s TBLOOM_MARK=scheduled -s REDIS_URL=redis://127.0.0.1:1/0"
    assert "at memory" in _crawled(runner, 3, local)
    for mistake, remedy in {
        "-s TBLOOM_SLICES=14": "ERROR: TBLOOM_SLICES is 14, the stored filter has 7: `tbloom recon",
        "-s TBLOOM_SLICE=7": "ERROR: TBLOOM_SLICE: expected TBLOOM_SLICES",
        "-s TBLOOM_RETRY_FOR=0 -s REDIS_URL=redis://127.0.0.1:1/0": "ERROR: REDIS_URL is redis://",
    }.items():
        assert remedy in _crawled(runner, None, mistake)
    runner.shell("tbloom reconfigure news-spider:tbloom --slices 14")
    _crawled(runner, 1, "-s TBLOOM_SLICES=14")


def _make_project(scrapy: Runner) -> None:
    """A project with the spider of the quickstart, and README's settings."""
    scrapy.shell("scrapy startproject shop .")
    scrapy.run(next(block for block in blocks(DOCS / "quickstart.md") if block.file == "news.py"))
    chosen = next(block.code for block in blocks(ROOT / "README.md") if block.file == "settings.py")
    with (scrapy.folder / "shop" / "settings.py").open("a", encoding="utf-8") as file:
        file.write(
            f"{chosen}\nREDIS_URL = {scrapy.url!r}\nROBOTSTXT_OBEY = False\nDOWNLOAD_DELAY = 0\n"
        )
    spider = (scrapy.folder / "news.py").read_text(encoding="utf-8")
    begin, _, rest = spider.partition("    custom_settings")
    spider = begin + rest.partition("    }\n")[2]
    (scrapy.folder / "shop" / "spiders" / "news.py").write_text(spider, encoding="utf-8")


def _crawled(scrapy: Runner, items: int | None, options: str = "") -> str:
    """What the crawl logs; it has fetched this number of pages, or has ended by one line."""
    said = scrapy.shell(CRAWL.format(options))
    assert "Traceback" not in said
    ends = "exit code 1" if items is None else f"'item_scraped_count': {items},"
    assert (ends in said, said.count("ERROR:")) == (True, items is None), said
    return said
