"""The straight line from ``TimeBloom.add`` to its script is short, and CONTRIBUTING's map of it is true."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import tbloom
from tbloom import TimeBloom

PACKAGE = Path(tbloom.__file__).parent
CONTRIBUTING = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def files_of_a_warm_add(url: str, name: str) -> list[str]:
    """The file of each function of tbloom's that an ``add`` enters."""
    entered: dict[Any, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered[frame.f_code] = path.relative_to(PACKAGE).as_posix()

    with TimeBloom.from_url(url, name) as seen:
        seen.add_many(["the connection", "is open", "and the script is known"])
        assert seen.add("the templates are made")
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            is_new = seen.add("new")
        finally:
            sys.setprofile(before)
    assert is_new
    return [*entered.values()]


def test_the_map_of_the_hot_path(url: str, name: str) -> None:
    entered = files_of_a_warm_add(url, name)
    [row] = re.findall(r"\*\*The hot path\*\*.*", CONTRIBUTING)
    assert [*dict.fromkeys(entered)] == re.findall(r"`(\w+/\w+\.py)`", row)
    [number] = re.findall(r"enters (\d+) functions", row)
    assert len(entered) == int(number)
