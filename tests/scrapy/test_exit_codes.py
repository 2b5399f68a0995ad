"""The exit codes of ``scrapy crawl``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import ROOT
from tests.helpers.schedulers import UNREACHABLE

SPIDER = """
import scrapy

class News(scrapy.Spider):
    name = "news"

    async def start(self):
        yield scrapy.Request(self.start_url + "/status/503")
"""
SETTINGS = """
ADDONS = {"tbloom.scrapy.Addon": 500}
SPIDER_MODULES = ["spiders"]
RETRY_ENABLED = False
"""


@pytest.mark.check
def test_failed_pages_leave_the_exit_code_and_errors_of_tbloom_do_not(
    url: str, name: str, site: str, tmp_path: Path
) -> None:
    """docs/scrapy.md and docs/operating.md say so."""
    (tmp_path / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "spiders.py").write_text(SPIDER, encoding="utf-8")

    def crawl(server: str) -> int:
        words = f"-a start_url={site} -s REDIS_URL={server} -s TBLOOM_KEY={name}".split()
        path = f"{tmp_path}{os.pathsep}{ROOT}"
        own = {"SCRAPY_SETTINGS_MODULE": "settings", "PYTHONPATH": path}
        command = [sys.executable, "-m", "scrapy", "crawl", "news", *words]
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, check=False
        ).returncode

    assert [0, 1] == [crawl(url), crawl(UNREACHABLE)]
