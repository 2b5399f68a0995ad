"""What the documents say, run: Python, shell commands, files and settings."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrapy.settings import Settings

from tbloom.scrapy.addon import Addon
from tbloom.scrapy.options import make_store
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import missing, needed

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
#: Lines that are left to other tests: what sets up a machine, takes long, or goes on until it is ended.
_ELSEWHERE = re.compile(
    r"(pip|python3 -m venv|make|redis-cli COPY|tbloom (demo|metrics|watch|push))\b"
)


@dataclass
class Block:
    """A code block; ``output`` is the text block that follows a shell block at once, what it prints."""

    language: str
    code: str
    output: str | None = None

    @property
    def file(self) -> str:
        """The Python file that it is, by its first line; else empty."""
        match = re.match(r"# (\w+\.py)\n", self.code)
        return match[1] if match else ""


def blocks(path: Path) -> list[Block]:
    """The document's blocks, in order."""
    text = path.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        code = re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE)
        follows = found and found[-1].language == "sh" and not text[end : match.start()].strip()
        if match[2] == "text" and follows:
            found[-1].output = code
        else:
            found.append(Block(match[2], code))
        end = match.end()
    return found


def example(document: str, words: str, module: str) -> dict[str, Any]:
    """The names of the document's one block that has these words, as those of this module."""
    [code] = [block.code for block in blocks(ROOT / "docs" / document) if words in block.code]
    names: dict[str, Any] = {"__name__": module}
    exec(code, names)  # noqa: S102 - our own document
    return names


@dataclass
class Runner:
    """Runs the blocks of one document, on this server and this website, in this folder."""

    url: str
    site: str
    folder: Path
    #: Serves the folder's own ``site``, as ``python -m http.server 8000 --directory site`` does in a reader's second terminal.
    own_site: str
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Runs it, and raises where it fails, or does not do what it says."""
        code = self._here(block.code)
        if block.file == "settings.py":
            given: dict[str, Any] = {"REDIS_URL": self.url}
            exec(code, {}, given)  # noqa: S102 - our own documents
            settings = Settings(given)
            if "DUPEFILTER_CLASS" not in given:
                Addon().update_settings(settings)
            make_store(settings, "news")
        elif block.file:
            (self.folder / block.file).write_text(code, encoding="utf-8")
        elif block.language == "python":
            exec(checked(code), self.names)  # noqa: S102 - our own documents
        elif block.language == "sh":
            output = self.shell(code)
            if block.output is not None:
                assert trimmed(self._here(block.output)) == trimmed(output), code
        elif block.language == "conf":
            self._start_server(code)

    def _here(self, code: str) -> str:
        """The code with this test's addresses; a second server is another database."""
        code = code.replace("https://example.com/", self.site)
        code = code.replace("http://localhost:8000/", self.own_site)
        code = code.replace("/var/lib/crawler", str(self.folder))
        code = re.sub(r"redis://other(?::6379)?/0", self.url.removesuffix("0") + "1", code)
        return re.sub(r"redis://localhost(?::6379)?(?:/0)?", self.url, code)

    def shell(self, code: str) -> str:
        """What the commands print. Some are left to other tests."""
        if "redis-cli" in code and not shutil.which("redis-cli"):
            missing("redis-cli")
        lines = [line for line in code.splitlines() if not _ELSEWHERE.match(line)]
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
            "TBLOOM_URL": self.url,
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        return done.stdout

    def _start_server(self, code: str) -> None:
        """A server takes these lines of a redis.conf."""
        words = [line.split() for line in code.splitlines() if not line.startswith("#")]
        given = [word for name, *values in words for word in (f"--{name}", *values)]
        with LocalRedis(needed(), *given):
            pass


def checked(code: str) -> str:
    """The code, in which an expression must have the value with which its comment opens."""
    lines = code.splitlines()
    statements = []
    for statement in ast.parse(code).body:
        source = ast.unparse(statement)
        comment = lines[statement.end_lineno - 1].partition("#")[2].strip()
        said = re.match(r"(True\b|False\b|\[[^\]]*\]|\d+\b)", comment)
        if said and isinstance(statement, ast.Expr) and "asyncio" not in source:
            source = f"_got = {source}\nassert {said[1]} == _got, ({source!r}, _got)"
        statements.append(source)
    return "\n".join(statements)


def trimmed(text: str) -> list[str]:
    """The lines, without spaces at their ends."""
    return [line.rstrip() for line in text.strip().splitlines()]
