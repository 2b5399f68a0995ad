"""A release on GitHub is what its tag says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import ROOT

CHANGELOG = "# Changelog\n\n## [1.2.0] - 2026-11-21\n\n- [A verb](docs/python.md#verbs).\n\n## [1.1.0] - 2026-01-01\n"
NOTES = "- [A verb](https://git.example/of/us/blob/v1.2.0/docs/python.md#verbs).\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "answer"),
    [
        ("v1.2.0", CHANGELOG, NOTES),
        ("v1.2.1", CHANGELOG, "The tag is v1.2.1, and tbloom/version.py has 1.2.0\n"),
        ("v1.2.0", CHANGELOG.replace("[1.2.0] - 2026-11-21", "[1.2.0]"), "CHANGELOG.md has no line"),
    ],
)  # fmt: skip
def test_a_release_has_the_version_of_its_tag_and_a_dated_section(
    tmp_path: Path, tag: str, changelog: str, answer: str
) -> None:
    home = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "of/us"}
    (tmp_path / "tbloom").mkdir()
    (tmp_path / "tbloom/version.py").write_text('"""The version."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    done = subprocess.run(
        [sys.executable, ROOT / ".github/release_notes.py", tag],
        cwd=tmp_path, env=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout or done.stderr).startswith(answer)
    assert done.returncode == (not done.stdout)
