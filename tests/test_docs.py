"""What the documents point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


@each_document
def test_every_test_that_is_named_exists(path: Path) -> None:
    named = re.findall(r"`(?:tests/)?([\w/]+\.py)::(\w+)`", path.read_text(encoding="utf-8"))
    for file, test in named:
        code = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?(?:def|class) {test}\b|^{test} = ", code, re.MULTILINE), (
            f"{file}::{test}"
        )
    assert named or path.name != "guarantees.md"


@each_document
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (path.parent / target).exists(), target


@each_document
def test_every_make_command_that_is_named_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"`make ([\w-]+)", path.read_text(encoding="utf-8")):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
