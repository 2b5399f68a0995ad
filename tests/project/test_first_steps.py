"""The first steps of each kind of user, as the documents tell them: the built wheel, a fresh environment, an empty folder."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
import redis

from tests.helpers.documents import ROOT, Runner, blocks
from tests.helpers.making import made_once
from tests.helpers.packages import install

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("away_from_midnight")]
DOCS = ROOT / "docs"
#: Prints the names and values of the log and the stats that count here.
CRAWL = r"""
(scrapy crawl news-spider {} 2>&1 || echo "exit code $?") |
    sed -nE 's/^.{{20}}(.tbloom.*(INFO|WARNING|ERROR).*)/\1/p; /Traceback|item_scr|exit code/p'
"""
ASKS_FOR_EVER = """
import asyncio
from tbloom import AsyncTimeBloom

async def work(seen):
    while True:
        await seen.add("https://example.com/a")

async def main():
    async with AsyncTimeBloom.from_url("URL", "load") as seen:
        print(await seen.add("https://example.com/b"), flush=True)
        await asyncio.gather(*(work(seen) for _ in range(100)))

asyncio.run(main())
"""


@pytest.fixture
def url(own: redis.Redis) -> str:
    """A server with nothing on it."""
    own.flushall()
    return f"redis://127.0.0.1:{own.connection_pool.connection_kwargs['port']}/0"


@pytest.fixture
def runner(
    dist: Path, url: str, site: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Runner]:
    """Runs blocks where tbloom was installed with this extra, or with none."""

    def make(extra: str) -> Runner:
        place = extra or "plain"
        home = made_once(tmp_path_factory, place, lambda folder: install(dist, extra, folder))
        return Runner(url, site, tmp_path, home / "bin")

    return make


@pytest.fixture
def plain(runner: Callable[[str], Runner]) -> Runner:
    return runner("")


@pytest.fixture
def scrapy(runner: Callable[[str], Runner]) -> Runner:
    return runner("scrapy")


def test_the_first_minutes_without_a_server_with_one_and_in_a_shell(plain: Runner) -> None:
    for block in takewhile(lambda block: block.file != "news.py", blocks(DOCS / "quickstart.md")):
        plain.run(block)
    assert "news  " in plain.shell("python -m tbloom list")
    assert "news  " not in plain.shell("tbloom clear news --yes && tbloom list")


def test_the_programs_of_the_readme_and_the_guide_asyncio_too(plain: Runner) -> None:
    programs = [
        block
        for document in (ROOT / "README.md", DOCS / "python.md")
        for block in blocks(document)
        if "from tbloom import" in block.code
    ]
    assert any("AsyncTimeBloom" in block.code for block in programs)
    for block in programs:
        plain.run(block)


def test_an_operator_plans_looks_and_moves_a_filter(plain: Runner) -> None:
    for block in blocks(DOCS / "operating.md"):
        if block.language == "sh":
            plain.run(block)


def test_ctrl_c_ends_an_asyncio_program(plain: Runner) -> None:
    """Without hiredis, under load."""
    program = ASKS_FOR_EVER.replace("URL", plain.url)
    assert plain.home
    with subprocess.Popen(
        [plain.home / "python", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        restore_signals=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == b"True\n"
        running.send_signal(signal.SIGINT)
        try:
            _, errors = running.communicate()
        finally:
            running.kill()
    assert errors.rstrip().endswith(b"KeyboardInterrupt")


def test_a_scrapy_project_from_its_first_command_to_its_first_mistake(scrapy: Runner) -> None:
    _make_project(scrapy, ROOT / "README.md")
    assert ", 0 items, 0.00 MB, at " in _crawled(scrapy, 3)
    assert ", 2 items, 0.03 MB, at " in _crawled(scrapy, 1)
    local = "-s TBLOOM_STORE=local -s TBLOOM_MARK=scheduled -s REDIS_URL=redis://127.0.0.1:1/0"
    assert "at memory" in _crawled(scrapy, 3, local)
    for mistake, remedy in {
        "-s TBLOOM_SLICES=14": "is stored with other parameters: slices is 7 there and 14 here",
        "-s TBLOOM_SLICE=7": "ERROR: TBLOOM_SLICE: expected TBLOOM_SLICES",
        "-s TBLOOM_RETRY_FOR=0 -s REDIS_URL=redis://127.0.0.1:1/0": "ERROR: 127.0.0.1:1/0: the server does not answer",
    }.items():
        assert remedy in _crawled(scrapy, None, mistake)
    scrapy.shell("tbloom reconfigure news-spider:tbloom --slices 14")
    _crawled(scrapy, 1, "-s TBLOOM_SLICES=14")


def test_a_crawl_moves_from_scrapy_redis_and_fetches_nothing_twice(scrapy: Runner) -> None:
    """The fingerprints are those of scrapy-redis' own filter, and of many more pages."""
    _make_project(scrapy, DOCS / "migration.md")
    theirs = (
        "-s ADDONS= -s DUPEFILTER_CLASS=scrapy_redis.dupefilter.RFPDupeFilter -s SCHEDULER_PERSIST=1 "
        "-s SCHEDULER=scrapy_redis.scheduler.Scheduler -s SCHEDULER_DUPEFILTER_KEY=news:dupefilter"
    )
    _crawled(scrapy, 3, theirs)
    with redis.Redis.from_url(scrapy.url) as client:
        client.sadd("news:dupefilter", *(f"{i:040x}" for i in range(50_000)))
    imports = [each for each in blocks(DOCS / "migration.md") if "tbloom import news" in each.code]
    for block in imports:
        scrapy.run(block)
    assert "existing" in _crawled(scrapy, 1, "-s TBLOOM_KEY=news:tbloom")


def _make_project(scrapy: Runner, document: Path) -> None:
    """A project with the spider of the quickstart, and the document's settings, the first or those with a fingerprinter."""
    scrapy.shell("scrapy startproject shop .")
    scrapy.run(next(block for block in blocks(DOCS / "quickstart.md") if block.file == "news.py"))
    settings = [block.code for block in blocks(document) if block.file == "settings.py"]
    chosen = next((code for code in settings if "FINGERPRINTER" in code), settings[0])
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
