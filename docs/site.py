"""MkDocs' hooks for this site: documents from other folders, links to them, programs, and tables for narrow screens."""

from __future__ import annotations

import itertools
import posixpath
import re
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File

from tbloom.cli import COMMANDS, command, tbloom

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Files from outside this folder, and their names on the site.
PROJECT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.txt",
    "tests/format_vectors.json": "format_vectors.json",
}
PROJECT |= {
    path.relative_to(ROOT).as_posix(): f"{path.relative_to(ROOT).as_posix()}.txt"
    for path in (
        *ROOT.glob("lua/bloom/*.lua"),
        *ROOT.glob("lua/claims/*.lua"),
        *ROOT.glob("lua/shared/*.lua"),
        *ROOT.glob("examples/*.py"),
        *ROOT.glob("tests/distinct/interop/*.py"),
    )
}


def on_config(config: MkDocsConfig) -> None:
    """Link each page to the repository, once setup.cfg has its address."""
    setup = ConfigParser()
    setup.read(Path(config.config_file_path).with_name("setup.cfg"), encoding="utf-8")
    if url := setup["metadata"].get("url"):
        # (Material's own link to a repository fetches facts about it from GitHub.)
        config.extra["social"] = [
            {"icon": "fontawesome/brands/github", "link": url, "name": "Source"}
        ]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the files from outside this folder, and the help of the commands."""
    for source, name in PROJECT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "reference/commands.md", content=_commands()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' signature
    """Return the page with the links of the site, and with programs in place of their names."""
    place = posixpath.dirname(f"docs/{page.file.src_uri}")
    folder = "" if page.file.generated_by else place
    markdown = re.sub(
        r"(?<=\]\()(?!\w+:|#)([^)#]+)", lambda match: _on_site(folder, match[1], place), markdown
    )
    # GitHub chooses between light and dark pictures by the system's scheme, the site by its own.
    markdown = re.sub(
        r"^\[!\[.*\n", "", markdown, flags=re.MULTILINE
    )  # badges, which are elsewhere
    markdown = re.sub(r"<picture>.*?</picture>", _both_pictures, markdown, flags=re.DOTALL)
    return re.sub(r"<!-- (examples/.*) -->", _code, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Return the HTML with the column's title in each cell of text, which narrow screens show (site.css)."""
    html = re.sub(r"<table>.*?</table>", _of_words, html, flags=re.DOTALL)
    return re.sub(r"<code>[^<\n]+</code>", _with_options, html)


def _commands() -> str:
    """Return the help of each command, as it is printed on 80 columns."""
    root = tbloom.make_context("tbloom", [], resilient_parsing=True, terminal_width=80)
    parts = ["# Commands\n\n[Command line](docs/cli.md) says what they share.", _help(root)]
    for name in COMMANDS:
        context = click.Context(command(name), root, name)
        parts += [f"## `tbloom {name}`", _help(context)]
        for verb, each in getattr(context.command, "commands", {}).items():
            parts.append(_help(click.Context(each, context, verb)))
    return "\n\n".join(parts)


def _help(context: click.Context) -> str:
    return f"```text\n$ {context.command_path} --help\n{context.get_help()}\n```"


def _with_options(match: re.Match[str]) -> str:
    """Keep browsers from breaking a line within ``--option``."""
    return re.sub(r"(?<![\w-])--?\w[\w-]*", r'<span class="option">\g<0></span>', match[0])


def _of_words(match: re.Match[str]) -> str:
    table = match[0]
    if "text-align: right" in table:
        return table  # has numbers
    titles = itertools.cycle(
        re.sub("<.*?>", "", title) for title in re.findall("<th>(.*?)</th>", table)
    )
    table = re.sub("<td>", lambda _: f'<td data-title="{next(titles)}">', table)
    return table.replace("<table>", "<table data-words>", 1)


def _both_pictures(match: re.Match[str]) -> str:
    dark, light = re.findall(r'src(?:set)?="(?:docs/)?([^"]+)"', match[0])
    return f'<img src="{light}#only-light" {"".join(re.findall("alt=.*>", match[0]))}<img src="{dark}#only-dark" alt="">'


def _code(match: re.Match[str]) -> str:
    """Return a program as a block of code."""
    return f"```python\n{(ROOT / match[1]).read_text(encoding='utf-8')}```"


def _on_site(folder: str, link: str, place: str) -> str:
    """Return a link of a document in ``folder`` as a link of the site's page in ``place``."""
    path = posixpath.normpath(posixpath.join(folder, link))
    path = f"docs/{PROJECT[path]}" if path in PROJECT else path
    return posixpath.relpath(path, place)
