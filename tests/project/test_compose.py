"""The crawlers of examples/compose share a filter. (Images can't be fetched here.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import ROOT
from tests.helpers.localredis import free_port

pytestmark = pytest.mark.check
EXAMPLE = ROOT / "examples" / "compose"


def test_each_article_is_fetched_by_one_crawler_also_after_a_restart(
    own_url: str, tmp_path: Path
) -> None:
    port = free_port()
    env = {
        **os.environ,
        "PORT": str(port),
        "SITE_URL": f"http://127.0.0.1:{port}/",
        "REDIS_URL": own_url,
    }

    def crawler(name: str, articles: int) -> subprocess.Popen[bytes]:
        limit = ["-s", f"CLOSESPIDER_ITEMCOUNT={articles}", "-O", tmp_path / f"{name}.jl"]
        command = [sys.executable, "-m", "scrapy", "runspider", EXAMPLE / "spider.py", *limit]
        return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)

    with subprocess.Popen([sys.executable, EXAMPLE / "site.py"], env=env) as site:
        try:
            for crawlers in ([crawler("one", 10), crawler("two", 10)], [crawler("three", 1)]):
                assert [0] * len(crawlers) == [one.wait(120) for one in crawlers]
        finally:
            site.kill()
    pages = [
        json.loads(line)["url"] for path in tmp_path.iterdir() for line in path.open(encoding="utf-8")
    ]  # fmt: skip
    assert len({*pages}) == len(pages) > 20
