"""Commands in the folder of a Scrapy project: they ask its server, whatever the environment names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tbloom import ExactFilter, TimeBloom
from tbloom.distinct import DistinctCounter
from tests.cli.test_rights import LINES, PREFIX
from tests.helpers.commands import WORDS, refused
from tests.helpers.documents import ROOT
from tests.helpers.folders import Folder
from tests.helpers.schedulers import UNREACHABLE

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
#: By row of the page's table, its commands.
ROWS = [
    {(*each.split(),) for each in re.findall("`(.*?)`", row)}
    for row in re.findall(
        r"^\| ((?:`[a-z ]+`(?:, )?)+) \|", PAGE.split("## Input")[0], re.MULTILINE
    )
]
SPIDERS = "import scrapy\nclass News(scrapy.Spider): name = 'news'\n"


@pytest.fixture
def project(
    own_url: str, own: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Folder:
    """With an exact filter and a counter on its server; the environment names another one."""
    ExactFilter(own, "exact", prefix=PREFIX).add("a")
    DistinctCounter(own, "urls", prefix=PREFIX).add("a")
    for name in ("TBLOOM_URL", "REDIS_URL"):
        monkeypatch.setenv(name, UNREACHABLE)
    settings = {"REDIS_URL": own_url, "TBLOOM_KEY_PREFIX": PREFIX, "TBLOOM_SHARDS": 3}
    return Folder(tmp_path, SPIDERS, **settings)


def test_every_command_asks_the_projects_server(project: Folder, own: redis.Redis) -> None:
    """cement#440. NAME is the spider, whose filter has another name."""
    file = project.path / "file"
    file.write_text("aa\nbb\ncc\n")
    tried = set[tuple[str, ...]]()
    for line in ["push news", "doctor", *LINES]:
        words = line.format(file=file).split()
        done = project.run(*words, stdin="http://a/\n")
        assert 0 == done.returncode, (line, done.stderr)
        tried.add((*words[: 1 + line.startswith("count")],))
        if line.startswith("migrate"):
            assert [b"app1:{news:tbloom}:config"] == own.keys("*news:tbloom}:config")
    asked = set.union(*ROWS[:4])
    assert asked == tried | {("metrics",)}
    of_pages = {words for words in WORDS if words[0] == "pages"}
    assert {*WORDS} == asked | ROWS[4] | of_pages | {("count",)}


@pytest.mark.check
def test_a_server_on_the_command_line_overrides_the_projects(
    project: Folder, own: redis.Redis
) -> None:
    TimeBloom(own, "news:tbloom", prefix="b:", shards=3).add("a")
    url = project.settings["REDIS_URL"]
    project.write(REDIS_URL=UNREACHABLE)
    for words in (["list"], ["info", "news"], ["queue", "news"], ["export", "news", "/dev/null"]):
        said = "REDIS_URL" if words[0] == "queue" else "(REDIS_URL in the project's settings names"
        refused(project.run(*words), UNREACHABLE, said)
        done = project.run(*words, "--url", url, "--prefix", "b:")
        assert 0 == done.returncode, done.stderr


def test_a_counter_may_have_a_spiders_name(project: Folder, own: redis.Redis) -> None:
    DistinctCounter(own, "news", prefix=PREFIX).add("a")
    assert "news: 1 distinct member" in project.said("count", "show", "news")
