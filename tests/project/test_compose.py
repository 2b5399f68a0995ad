"""examples/compose: what its files name exists, and its crawlers share a filter. (Images can't be fetched here.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tbloom.cli.commands.metrics import PORT
from tests.helpers.documents import ROOT
from tests.helpers.localredis import free_port

pytestmark = pytest.mark.check
EXAMPLE = ROOT / "examples" / "compose"


def _read(name: str) -> Any:
    return yaml.safe_load((EXAMPLE / name).read_text(encoding="utf-8"))


def test_its_files_name_what_exists() -> None:
    services = _read("compose.yaml")["services"]
    mounted = {}
    for service in services.values():
        assert {*service.get("depends_on", ())} <= services.keys()
        for volume in service.get("volumes", ()):
            path, target, _ = volume.split(":")
            mounted[target] = EXAMPLE / path
            assert mounted[target].is_file()
        if "build" in service:
            context = EXAMPLE / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
    assert [2] == [s["deploy"]["replicas"] for s in services.values() if "deploy" in s]
    [job] = _read("prometheus.yml")["scrape_configs"]
    assert [{"targets": [f"metrics:{PORT}"]}] == job["static_configs"]
    [source] = _read("grafana/datasources.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = _read("grafana/dashboards.yaml")["providers"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(provider["options"]["path"] + "/")
    assert json.loads(mounted[home].read_text(encoding="utf-8"))["title"] == "tbloom"


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
