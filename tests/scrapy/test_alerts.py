"""The extension of docs/recipes.md that writes metrics, and the exit codes of ``scrapy crawl``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import DOCUMENTS, ROOT, blocks
from tests.helpers.schedulers import UNREACHABLE

SPIDER = """
import scrapy

class News(scrapy.Spider):
    name = "news"

    async def start(self):
        yield scrapy.Request(self.start_url, dont_filter=True)

    def parse(self, response):
        for page in ("/a", "/status/503", "/status/500"):
            yield response.follow(page, self.parse_page)

    def parse_page(self, response):
        yield {"page": response.url}
"""
SETTINGS = """
ADDONS = {"tbloom.scrapy.Addon": 500}
SPIDER_MODULES = ["spiders"]
RETRY_ENABLED = False
"""


@pytest.mark.check
def test_the_extension_writes_what_an_alert_needs(
    url: str, name: str, site: str, tmp_path: Path
) -> None:
    """Pages that have failed leave the exit code of ``scrapy crawl`` at 0; an error of tbloom's makes it 1."""
    page = next(path for path in DOCUMENTS if path.name == "recipes.md")
    [alerts] = [block.code for block in blocks(page) if block.file == "alerts.py"]
    [settings] = [
        block.code
        for block in blocks(page)
        if "alerts." in block.code and block.file == "settings.py"
    ]
    files = {
        "alerts.py": alerts,
        "settings.py": SETTINGS + settings.replace("/var/lib/crawler", str(tmp_path)),
        "spiders.py": SPIDER,
    }
    for file, code in files.items():
        (tmp_path / file).write_text(code, encoding="utf-8")

    def crawl(server: str) -> int:
        words = f"-a start_url={site} -s REDIS_URL={server} -s TBLOOM_KEY={name}".split()
        path = f"{tmp_path}{os.pathsep}{ROOT}"
        own = {"SCRAPY_SETTINGS_MODULE": "settings", "PYTHONPATH": path}
        command = [sys.executable, "-m", "scrapy", "crawl", "news", *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode

    def metrics() -> dict[str, int]:
        text = (tmp_path / "news-1.prom").read_text(encoding="utf-8")
        found = re.findall(r'^crawl_(\w+)\{crawler="news-1"\} (\d+)$', text, re.MULTILINE)
        assert len(found) == len(text.splitlines())
        return {name: int(value) for name, value in found}

    usual = {"done": 0, "left": 0, "given_up": 0, "outages": 0, "failed": 0}
    assert (0, {**usual, "done": 1, "left": 2}) == (crawl(url), metrics())
    assert (0, {**usual, "left": 2}) == (crawl(url), metrics())
    assert (0, {**usual, "given_up": 2}) == (crawl(url), metrics())
    assert (1, {**usual, "failed": 1}) == (crawl(UNREACHABLE), metrics())
    assert not [*tmp_path.glob("*.new")]
    [rules] = [block.code for block in blocks(page) if "crawl_failed" in block.code]
    assert {*re.findall(r"crawl_(\w+)", rules)} <= usual.keys()
