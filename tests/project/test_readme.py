"""README, typed by a stranger from its first line to its last: a fresh environment, a copy of this folder, a new Scrapy project."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import guard, website
from tests.helpers.documents import ROOT, blocks, checked, trimmed
from tests.helpers.localredis import free_port, wait_until_ready
from tests.helpers.making import missing

README = ROOT / "README.md"
#: What the stranger has done already, does not need beside tbloom server, or what .ci/run types first (make).
LEFT_OUT = re.compile(r"(git clone|cd tbloom|python3? -m venv|\. env|docker|sudo|make)\b")
#: The line that ``scrapy startproject`` writes, and that README says to replace.
NO_ADDONS = "ADDONS = {}\n"
SPIDER = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = ["SITE"]

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""


@dataclass
class Stranger:
    """Someone with Python and an empty folder. All that is typed and shown has ``port`` in place of 6379, which may be in use."""

    home: Path
    port: int

    def __post_init__(self) -> None:
        hidden = re.compile("PYTHON|VIRTUAL_ENV|TBLOOM_|REDIS_")
        environment = {name: value for name, value in os.environ.items() if not hidden.match(name)}
        self.environment = {
            **environment,
            "PATH": f"{self.home}/env/bin:/usr/local/bin:/usr/bin:/bin",
            "COLUMNS": "80",
            # Commands of tbloom use port 6379 by default.
            "TBLOOM_URL": f"redis://localhost:{self.port}/0",
        }
        #: Where the next command is typed.
        self.folder = self.home

    def here(self, text: str) -> str:
        """The text with this stranger's port."""
        return text.replace("6379", str(self.port))

    def type(self, commands: str) -> str:
        """Return what the commands print. A ``cd`` holds for the next ones too. Fail where one of them does."""
        lines = [line for line in commands.splitlines() if not LEFT_OUT.match(line)]
        place = self.home / "place"
        typed = self.here("\n".join(lines))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{typed}\npwd > "{place}"'],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if "pip install" in typed and "No matching distribution" in done.stdout:
            missing("PyPI")
        assert done.returncode == 0, f"README's command failed:\n\n{typed}\n\n{done.stdout}"
        self.folder = Path(place.read_text().strip())
        return done.stdout

    @contextmanager
    def second_terminal(self, command: str) -> Iterator[None]:
        """A server, ended by Ctrl-C as README says."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command} --port {self.port}"],
            cwd=self.home, env=self.environment, start_new_session=True,
        )  # fmt: skip
        guard.watch(process.pid)
        try:
            wait_until_ready(self.port, process)
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(30)
        guard.forget(process.pid)


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """In a copy of this folder, with an environment that has nothing but pip."""
    stranger = Stranger(tmp_path, free_port())
    stranger.folder = tmp_path / "tbloom"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, stranger.folder, ignore=left_out)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    return stranger


@pytest.mark.check
@pytest.mark.usefixtures("away_from_midnight")
def test_each_step_of_the_readme_does_what_it_says(stranger: Stranger) -> None:
    """Its blocks in order, each with the output that it shows; the settings in a project that is crawled."""
    text, steps = README.read_text(encoding="utf-8"), blocks(README)
    commands = re.findall(r"`(pip install '\.\[server\]'|env/bin/tbloom server)`", text)
    assert commands, "README does not say how to start a server with Python alone"
    install = [each for each in commands if each.startswith("pip")]
    [server] = {*commands} - {*install}
    typed = set[str]()
    with ExitStack() as open_until_the_end:
        site = open_until_the_end.enter_context(website.served(website.Page, asked=Counter()))
        for step in steps:
            typed.add(step.file or step.language)
            if step.file == "settings.py":
                crawl_three_times(stranger, step.code, site)
            elif step.file:
                (stranger.folder / step.file).write_text(stranger.here(step.code))
            elif step.language == "python":
                (stranger.home / "typed.py").write_text(stranger.here(checked(step.code)))
                stranger.type(f'python "{stranger.home}/typed.py"')
            elif step.language == "sh":
                output = stranger.type(step.code)
                if step.output is not None:
                    shown = trimmed(stranger.here(step.output))
                    assert shown == trimmed(output), f"README shows another output of {step.code}"
            if server and "pip install" in step.code:  # tbloom is installed: it needs a server now
                stranger.type("\n".join(install))
                open_until_the_end.enter_context(stranger.second_terminal(server))
                server = ""
    assert set() == {"sh", "settings.py", "python"} - typed


def crawl_three_times(stranger: Stranger, settings: str, site: website.Server) -> None:
    """Put README's lines where README says, into a new project, and crawl: the second time, only the start page is fetched.
    Without them, the third crawl is Scrapy's own."""
    stranger.type("scrapy startproject shop >/dev/null && cd shop")
    file = stranger.folder / "shop" / "settings.py"
    written = file.read_text()
    assert 1 == written.count(NO_ADDONS), "`scrapy startproject` writes other settings"
    file.write_text(written.replace(NO_ADDONS, stranger.here(settings)))
    spider = stranger.folder / "shop" / "spiders" / "pages.py"
    spider.write_text(SPIDER.replace("SITE", f"{site.url}/"))
    stranger.type("tbloom doctor")
    for fetched in ({"/": 1, "/a": 1, "/b": 1}, {"/": 2, "/a": 1, "/b": 1}):
        said = stranger.type("scrapy crawl pages")
        asked = {path: times for path, times in site.asked.items() if path != "/robots.txt"}
        assert fetched == asked, said
    assert "pages:tbloom" in stranger.type("tbloom list")
    file.write_text(written)  # as docs/comparison.md says, to leave
    stranger.type("scrapy crawl pages")
    assert (3, 2, 2) == (site.asked["/"], site.asked["/a"], site.asked["/b"])
